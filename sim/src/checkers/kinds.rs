//! What there are histories of: files, and volumes. How the entries of each are the operations that users wanted.

use std::fmt::Debug;

use base::ObjectId;
use node::file::{Change, FileError};

use super::entries::Effect;
use crate::check::Specification;
use crate::check::file::{Content, FileModel, FileOp, FileOutcome};
use crate::check::volume::{Placed, Told, Volume, VolumeModel, VolumeOp};

/// A kind of thing that users do something to.
pub trait Kind: Specification<State: Debug, Op: Clone + Debug, Outcome: Clone + Debug> + Debug {
    /// Who says what is wrong.
    const CHECKER: &'static str;
    /// Whether another order of the changes than that of the replicas may explain a history.
    const HAS_OTHER_ORDERS: bool;

    /// What can always be done, and what comes of it.
    fn nothing() -> (Self::Op, Self::Outcome);

    /// Whether an outcome says that nothing has changed, and nothing else.
    fn says_nothing(outcome: &Self::Outcome) -> bool;

    /// The operation that an entry is, by which the request for `wish` took effect. None if it changes nothing and has no
    /// place in the order. An error if it is something else than what was wanted.
    fn bind(
        &self,
        wish: &Self::Op,
        object: ObjectId,
        effect: &Effect<'_>,
    ) -> Result<Option<Self::Op>, String>;

    /// The same of an entry that no user has asked for.
    fn unasked(&self, effect: &Effect<'_>) -> Result<Option<Self::Op>, String>;

    /// What comes of an operation, if that can be said.
    fn outcome(&self, state: &Self::State, op: &Self::Op) -> Option<Self::Outcome>;

    /// In a few words, how it began.
    fn tell(&self, start: &Self::State) -> String;
}

impl Kind for FileModel {
    const CHECKER: &'static str = "linearizability";
    const HAS_OTHER_ORDERS: bool = true;

    fn nothing() -> (FileOp, FileOutcome) {
        (FileOp::Nothing, FileOutcome::Done)
    }

    fn says_nothing(outcome: &FileOutcome) -> bool {
        *outcome == FileOutcome::NoSpace
    }

    fn bind(&self, wish: &FileOp, _: ObjectId, effect: &Effect<'_>) -> Result<Option<FileOp>, String> {
        Ok((effect.op.change != Change::NoSpace).then(|| wish.clone()))
    }

    fn unasked(&self, _: &Effect<'_>) -> Result<Option<FileOp>, String> {
        Ok(None)
    }

    fn outcome(&self, _: &Content, _: &FileOp) -> Option<FileOutcome> {
        None
    }

    fn tell(&self, start: &Content) -> String {
        format!("a file that began with {} bytes", start.bytes.len())
    }
}

impl Kind for VolumeModel {
    const CHECKER: &'static str = "trees";
    const HAS_OTHER_ORDERS: bool = false;

    fn nothing() -> (Placed, Result<Told, FileError>) {
        (VolumeOp::Nothing.into(), Ok(Told::Done))
    }

    fn says_nothing(_: &Result<Told, FileError>) -> bool {
        false
    }

    fn bind(&self, wish: &Placed, object: ObjectId, effect: &Effect<'_>) -> Result<Option<Placed>, String> {
        self.entry_of(&wish.op, (object, effect.at), (effect.request, effect.op)).map(Some)
    }

    fn unasked(&self, effect: &Effect<'_>) -> Result<Option<Placed>, String> {
        self.entry_of_daemon(effect.at, (effect.request, effect.op)).map(Some)
    }

    fn outcome(&self, state: &Volume, op: &Placed) -> Option<Result<Told, FileError>> {
        Some(state.clone().run(op))
    }

    fn tell(&self, _: &Volume) -> String {
        "a volume".to_owned()
    }
}
