//! What the committed entries of an object have made, and what a replica keeps of it over a restart.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use base::{Epoch, Members, NodeId, View, ViewId};

use crate::damage::Lacking;
use crate::replica::follow_each_other;
use crate::sessions::Sessions;
use crate::{Entry, Machine, Memory, Position};

/// The state of an object after an entry.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State<M: Machine> {
    pub(crate) rest: Rest<M::Outcome>,
    pub(crate) machine: M,
}

/// All of a state but the machine: small enough for one message.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Rest<R> {
    /// The last entry that has taken effect.
    pub at: Position,
    /// The last tenure that may have recovered less than was acknowledged as written: the *loss generation*.
    pub generation: Epoch,
    /// The members.
    pub view: View,
    /// The view before that.
    pub before: ViewId,
    /// The last view that every member of every earlier view knows of.
    pub settled: ViewId,
    /// The members of the views before this one that may not know of it yet.
    pub former: BTreeSet<NodeId>,
    /// The first members, if they are where anybody looks who knows nothing else of the object: they are told of every
    /// view, and keep the last one for ever.
    pub home: Option<Members>,
    /// Which requests have taken effect.
    pub sessions: Sessions<R>,
}

/// Everything that a replica has to keep, at one time. With the records that were written since, it is the replica.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint<M: Machine> {
    pub(crate) promised: Epoch,
    pub(crate) accepted: Epoch,
    pub(crate) state: State<M>,
    pub(crate) holding: Holding,
    pub(crate) base: Position,
    pub(crate) entries: Vec<Entry<M::Op>>,
    pub(crate) adopted: Option<View>,
    pub(crate) damaged_at: Option<u64>,
    pub(crate) lacking: Lacking<M>,
}

/// All of a [`Checkpoint`] but its machine, whose parts are kept one by one.
#[derive(Clone, PartialEq, Debug)]
pub struct Head<M: Machine> {
    /// Nobody earlier is followed.
    pub promised: Epoch,
    /// The latest epoch of which an entry was ever here.
    pub accepted: Epoch,
    /// The state, but for the machine.
    pub rest: Rest<M::Outcome>,
    /// What is here.
    pub holding: Holding,
    /// What the first entry stands behind.
    pub base: Position,
    /// The log.
    pub entries: Vec<Entry<M::Op>>,
    /// A view that is known to be committed, whatever the log says.
    pub adopted: Option<View>,
    /// Up to epochs of this number what was kept was damaged.
    pub damaged_at: Option<u64>,
    /// Parts of the machine that are lacking, each in this version.
    pub lacking: Vec<(M::Key, Position)>,
    /// Whether more than that is lacking: the parts are of several states.
    pub is_mixed: bool,
}

/// What a replica has of the object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Holding {
    /// Nothing: it has never heard of the object.
    Nothing,
    /// A state, and a log behind it.
    Whole,
    /// Some parts of a state, and some of another one's, which comes from the primary of this epoch.
    Mixed(Epoch),
}

impl<M: Machine> Checkpoint<M> {
    /// An object that begins: its first members, and its state before the first entry.
    pub fn first(members: Members, machine: M) -> Self {
        let view = View { id: ViewId::default(), members };
        Self::of(view, machine, Holding::Whole)
    }

    /// An object whose first members are where anybody looks who knows nothing else of it.
    pub fn at_home(mut self) -> Self {
        let rest = &mut self.state.rest;
        rest.home = Some(rest.view.members.clone());
        self
    }

    /// The same at a node that may have promised before to follow nobody earlier than `number`, for any object.
    pub const fn promising(mut self, number: u64) -> Self {
        self.promised = Epoch { number, node: NodeId(u32::MAX) };
        self
    }

    /// An object of which what was kept cannot be read any more. Up to epochs of `number` the node may have promised and
    /// acknowledged anything, durable or not: it counts for nothing until it has taken over a state, and has an entry of
    /// a later epoch. To be durable before the replica says anything.
    pub fn damaged(members: Members, machine: M, number: u64) -> Self {
        let view = View { id: ViewId::default(), members };
        let nothing = Self::of(view, machine, Holding::Mixed(Epoch::default())).promising(number);
        Self { damaged_at: Some(number), ..nothing }
    }

    /// A node that has nothing of an object yet, or nothing any more.
    pub fn nothing(me: NodeId, machine: M) -> Self {
        let members = Members::new([me]).expect("one node is a list of members");
        Self::of(View { id: ViewId::default(), members }, machine, Holding::Nothing)
    }

    /// Takes it apart, to be kept.
    pub fn into_parts(self) -> (Head<M>, M) {
        let Self { promised, accepted, state, holding, base, entries, adopted, damaged_at, lacking } = self;
        let State { rest, machine } = state;
        let (lacking, is_mixed) = lacking.into_parts();
        let head =
            Head { promised, accepted, rest, holding, base, entries, adopted, damaged_at, lacking, is_mixed };
        (head, machine)
    }

    /// Puts it together again. A replica begins with it only if the head is [sound](Head::is_sound).
    pub fn from_parts(head: Head<M>, machine: M) -> Self {
        let Head { promised, accepted, rest, holding, base, entries, adopted, damaged_at, .. } = head;
        let state = State { rest, machine };
        let lacking = Lacking::from_parts(head.lacking, head.is_mixed);
        Self { promised, accepted, state, holding, base, entries, adopted, damaged_at, lacking }
    }

    fn of(view: View, machine: M, holding: Holding) -> Self {
        Self {
            promised: Epoch::default(),
            accepted: Epoch::default(),
            state: State { rest: Rest::of(view), machine },
            holding,
            base: Position::START,
            entries: Vec::new(),
            adopted: None,
            damaged_at: None,
            lacking: Lacking::default(),
        }
    }
}

impl<M: Machine> Head<M> {
    /// Whether a replica can have written it: its entries follow each other, and the last one that has taken effect is one of
    /// them, or what they stand behind.
    pub fn is_sound(&self) -> bool {
        let Self { rest, holding, base, entries, .. } = self;
        if *holding != Holding::Whole {
            return *base == Position::START && entries.is_empty();
        }
        let applied = std::iter::once(*base).chain(entries.iter().map(|entry| entry.at));
        follow_each_other(*base, entries) && applied.into_iter().any(|at| at == rest.at)
    }
}

impl<R> Rest<R> {
    /// Before the first entry.
    pub(crate) fn of(view: View) -> Self {
        Self {
            at: Position::START,
            generation: Epoch::default(),
            view,
            before: ViewId::default(),
            settled: ViewId::default(),
            former: BTreeSet::new(),
            home: None,
            sessions: Sessions::default(),
        }
    }

    /// Whether a node is where anybody looks for the object.
    pub(crate) fn is_home(&self, node: NodeId) -> bool {
        self.home.as_ref().is_some_and(|home| home.contains(node))
    }
}

/// Two replicas that keep the same go on in the same way.
impl<M> Hash for Checkpoint<M>
where
    M: Machine<Op: Hash, Outcome: Hash, Key: Hash> + Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.promised, self.accepted, self.holding, self.base).hash(state);
        (&self.state, &self.entries, &self.adopted, self.damaged_at, &self.lacking).hash(state);
    }
}

impl Holding {
    /// What may be counted on, of a replica that holds this, has entries of epochs up to `accepted`, may have lost
    /// what it acknowledged and did not sync in epochs up to `forgot_at`, and whatever it acknowledged in those up to `damaged_at`.
    pub(crate) fn memory(
        self,
        accepted: Epoch,
        (forgot_at, damaged_at): (Option<u64>, Option<u64>),
    ) -> Memory {
        let has_forgotten = |latest: Epoch| forgot_at.is_some_and(|at| latest.number <= at);
        let is_damaged = |latest: Epoch| damaged_at.is_some_and(|at| latest.number <= at);
        match self {
            Self::Mixed(epoch) if has_forgotten(epoch) || is_damaged(epoch) => Memory::Torn,
            Self::Mixed(epoch) => Memory::Mixed { source: epoch.node },
            // What it has taken over may end before what was acknowledged, until it has an entry behind that.
            Self::Whole | Self::Nothing if is_damaged(accepted) => Memory::Torn,
            Self::Whole | Self::Nothing if has_forgotten(accepted) => Memory::Forgot,
            Self::Whole | Self::Nothing => Memory::Clean,
        }
    }
}
