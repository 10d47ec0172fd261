//! What the primary of a volume's file does about size and times, which the volume's tree lends to it.
//!
//! Nothing is written that the tree does not know to be lent: the first change waits until the volume has lent, and until the file's
//! own log has it. Once nothing has changed for a while the lend is ended in that log, and when that would survive a power cut, the
//! volume is told what came of it. Whoever leads the file next finds in its state how far that came.

use base::{ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::{Attributes, Done as TreeDone, Generation, Given, Lent, LentTo};
use replication::Position;

use crate::errands::{ErrandBody, outcome_of};
use crate::file::{Change, Done, FileBody, FileError, FileOf, FileReplyBody, Lend, LendStage, Query};
use crate::files::{Asker, Hosted};
use crate::volumes::file_object;
use crate::{Bug, Shard, Unavailable};

/// Size and times go back to the volume when nothing has changed for so long.
const GIVEN_BACK_AFTER: Span = Span::from_secs(1);

/// How a file that is led here stands to its volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lending {
    /// Which file it is.
    pub(crate) of: Option<FileOf>,
    /// The last entry that begins or ends a lend, and which it begins.
    turning: Option<(Position, Option<Lent>)>,
    /// Whether the volume, or this file itself, was asked something that is not answered.
    is_busy: bool,
    /// The client's lend that the volume is asked about beside that.
    confirming: Option<Generation>,
    /// Whether the volume knows in this tenure that the last lend has ended.
    is_told: bool,
    /// When something was changed last.
    used: WallTime,
    /// Whether it is looked at when nothing may have changed for long.
    is_watched: bool,
}

impl Lending {
    /// A tenure begins.
    pub(crate) fn begin(&mut self, now: WallTime) {
        *self = Self { of: self.of, used: now, is_watched: self.is_watched, ..Self::default() };
    }

    /// What ends or begins a lend is the entry there.
    pub(crate) const fn turn(&mut self, at: Position, opens: Option<Lent>) {
        (self.turning, self.is_told) = (Some((at, opens)), false);
    }
}

impl Hosted {
    /// The lend under which what is proposed now comes to stand.
    fn lent(&self) -> Option<Lent> {
        match self.lending.turning {
            Some((at, opens)) if self.replica.committed() < at => opens,
            _ => {
                let lend = self.replica.machine().attributes().1.lend();
                lend.filter(Lend::is_open).map(|lend| lend.lent)
            }
        }
    }

    /// Whether it has size and times, and so is led until they are given back. What is lent to a client the volume takes back.
    pub(crate) fn lends_on(&self) -> bool {
        let lend = self.replica.machine().attributes().1.lend();
        lend.is_some_and(|lend| lend.is_open() && lend.lent.to == LentTo::Content)
    }

    /// Whether a change may be proposed now; if not, what the volume is to be asked; or why it never may.
    fn may_change(&self, under: Option<Generation>) -> Result<(), Option<ErrandBody>> {
        let lent = self.lent();
        match under {
            None if lent.is_some_and(|lent| lent.to == LentTo::Content) => Ok(()),
            None => Err(Some(ErrandBody::Lend)),
            Some(under) if lent.is_some_and(|lent| lent.generation == under) => Ok(()),
            Some(under) => {
                // What the log knows of is over, or never was a client's.
                let last = self.replica.machine().attributes().1.lend().map(|lend| lend.lent.generation);
                let last = last.max(lent.map(|lent| lent.generation));
                Err((last < Some(under)).then_some(ErrandBody::Confirm { generation: under }))
            }
        }
    }

    /// What the volume is to be asked for the first change that waits.
    fn wanted_errand(&self) -> ErrandBody {
        let under = self.waiting.iter().find_map(|(_, body)| match body {
            FileBody::Change { under, change, .. } if change.is_of_bytes() => Some(*under),
            _ => None,
        });
        under.flatten().map_or(ErrandBody::Lend, |generation| ErrandBody::Confirm { generation })
    }

    /// The last lend, if it has ended and the volume may not know that.
    fn untold_end(&self) -> Option<(FileOf, ErrandBody)> {
        let lend = self.replica.machine().attributes().1.lend()?;
        // That it has ended is said once more in the log: only what that comes to says that it would survive a power cut.
        let again = ErrandBody::Return { lent: lend.lent, modified: None };
        (!lend.is_open() && !self.lending.is_told).then_some((lend.of, again))
    }

    /// The end of the last lend, for the volume.
    fn ended_lend(&self) -> Option<(FileOf, ErrandBody)> {
        let machine = self.replica.machine();
        let lend = machine.attributes().1.lend()?;
        let given = match lend.stage {
            LendStage::Open => return None,
            LendStage::Ended => Some(given(&machine.stat())),
            LendStage::Unused => None,
        };
        Some((lend.of, ErrandBody::GiveBack { generation: lend.lent.generation, given }))
    }

    /// Whether the end of a lend is under way in this file's log.
    fn is_ending(&self) -> bool {
        self.lending.turning.is_some_and(|(at, opens)| opens.is_none() && self.replica.committed() < at)
    }
}

impl<A: Algorithm> Shard<A> {
    /// It is known of which file this is the content.
    pub(crate) fn note_file(&mut self, object: ObjectId, of: FileOf) {
        if object == file_object(of.volume, of.inode)
            && let Some(hosted) = self.files.hosted.get_mut(&object)
        {
            hosted.lending.of = Some(of);
        }
    }

    /// Keeps a change until size and times are lent. False if they are, or if that does not matter.
    pub(crate) fn waits_for_lend(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: &FileBody,
    ) -> bool {
        let &FileBody::Change { ref change, under, .. } = body else {
            self.tell_volume_again(object, body);
            return false;
        };
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let Some(of) = hosted.lending.of.filter(|_| change.is_of_bytes()) else { return false };
        if asker.request(body).is_some_and(|request| hosted.replica.knows(request)) {
            // It has taken effect.
            return false;
        }
        if hosted.replica.machine().attributes().1.is_removed() {
            return false;
        }
        hosted.lending.used = now;
        match hosted.may_change(under) {
            Err(_) if self.config.breaks(Bug::LendNotAsked) => {}
            Ok(()) => {}
            Err(None) if self.config.breaks(Bug::FlushNotFenced) => return false,
            Err(None) => {
                self.files.reply(asker, FileReplyBody::Refused(FileError::NotLent), None);
                return true;
            }
            Err(Some(ErrandBody::Confirm { generation })) if self.config.breaks(Bug::ConfirmNotAsked) => {
                let lent = Lent { generation, to: LentTo::Client(asker.client) };
                self.borrow(now, object, of, (lent, (now, now)));
                return false;
            }
            Err(Some(_)) => return self.asks_for_lend(object, of, (asker, body)),
        }
        self.watch_lend(now, object);
        false
    }

    /// Keeps a change until the volume has said what it is to be made under.
    fn asks_for_lend(&mut self, object: ObjectId, of: FileOf, (asker, body): (Asker, &FileBody)) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return true };
        if !hosted.wait(asker, body.clone()) {
            let busy = FileReplyBody::Unavailable(Unavailable::Overloaded);
            self.files.reply(asker, busy, None);
            return true;
        }
        if !std::mem::replace(&mut hosted.lending.is_busy, true) {
            self.ask_for_lend(object, of);
        } else if let FileBody::Change { under: Some(generation), .. } = *body
            && hosted.lending.confirming.replace(generation) != Some(generation)
        {
            // What the volume was asked for may wait for just this: that the client that has the file sends what it has.
            self.run_errand(object, of, ErrandBody::Confirm { generation });
        }
        true
    }

    /// Has the volume lend, once it knows what came of the lend before.
    fn ask_for_lend(&mut self, object: ObjectId, of: FileOf) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let wanted = hosted.wanted_errand();
        // Whoever has lent again knows what came of the lend before.
        let untold = hosted.untold_end().filter(|_| !matches!(wanted, ErrandBody::Confirm { .. }));
        let (of, body) = untold.unwrap_or((of, wanted));
        self.run_errand(object, of, body);
    }

    /// Who asks for size and times may do so because the volume still takes them for lent.
    fn tell_volume_again(&mut self, object: ObjectId, body: &FileBody) {
        if matches!(body, FileBody::Ask(Query::Stat)) {
            self.tells_volume(object);
        }
    }

    /// Tells the volume that the last lend has ended. False if it knows that.
    pub(crate) fn tells_volume(&mut self, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let Some((of, ended)) = hosted.untold_end() else { return false };
        if !std::mem::replace(&mut hosted.lending.is_busy, true) {
            self.run_errand(object, of, ended);
        }
        true
    }

    /// The volume has lent, or says how it has, or why not. Whoever asked for a client wants to hear of that lend.
    pub(crate) fn file_lent(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (of, under): (FileOf, Option<Generation>),
        reply: &FileReplyBody,
    ) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if under.is_some() {
            hosted.lending.confirming = None;
        }
        let again = under.map_or(ErrandBody::Lend, |generation| ErrandBody::Confirm { generation });
        let attributes = match lent_attributes(reply) {
            Ok(attributes) => attributes,
            Err(error) => {
                hosted.lending.is_busy = false;
                return self.send_waiting_away(object, &FileReplyBody::Refused(error));
            }
        };
        if hosted.is_ending() {
            // What would be borrowed may be over before that is so.
            return self.run_errand_later(now, object, of, again);
        }
        let known = hosted.replica.machine().attributes().1.lend();
        let lent = match (attributes.lent, under) {
            (Some(lent), Some(under)) if lent.generation == under && lent.to != LentTo::Content => lent,
            (_, Some(under)) => return self.refuse_flushes(now, object, of, under),
            (Some(lent), None) if lent.to == LentTo::Content => lent,
            // It was given back in between, or a client has it: that is taken back first.
            (_, None) => return self.run_errand_later(now, object, of, ErrandBody::Lend),
        };
        match known {
            Some(known) if known.lent == lent && known.is_open() => {
                hosted.lending.is_busy = false;
                return self.serve_waiting(now, object);
            }
            Some(known) if known.lent >= lent && under.is_none() => {
                hosted.lending.is_told = false;
                return self.ask_for_lend(object, of);
            }
            Some(known) if known.lent >= lent => {
                return self.refuse_flushes(now, object, of, lent.generation);
            }
            Some(_) | None => {}
        }
        hosted.lending.is_busy = false;
        if !self.borrow(now, object, of, (lent, (attributes.mtime, attributes.ctime))) {
            let busy = FileReplyBody::Unavailable(Unavailable::Overloaded);
            return self.send_waiting_away(object, &busy);
        }
        self.watch_lend(now, object);
        self.serve_waiting(now, object);
    }

    /// Size and times are this file's from now on, or its client's.
    fn borrow(
        &mut self,
        now: WallTime,
        object: ObjectId,
        of: FileOf,
        (lent, (modified, changed)): (Lent, (WallTime, WallTime)),
    ) -> bool {
        let Some(at) = self.propose_own(now, object, Change::Borrow { of, lent, modified, changed }) else {
            return false;
        };
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.lending.turn(at, Some(lent));
        }
        true
    }

    /// A client's lend is over, or never was. What else waits goes on.
    fn refuse_flushes(&mut self, now: WallTime, object: ObjectId, of: FileOf, ended: Generation) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.lending.is_busy = false;
        let is_under = |(_, body): &(Asker, FileBody)| matches!(body, FileBody::Change { under: Some(under), .. } if *under == ended);
        let waiting = std::mem::take(&mut hosted.waiting).into_iter();
        let (refused, others): (Vec<_>, Vec<_>) = waiting.partition(is_under);
        hosted.waiting.extend(others);
        for (asker, _) in refused {
            self.files.reply(asker, FileReplyBody::Refused(FileError::NotLent), None);
        }
        let is_wanted = self.files.hosted.get_mut(&object).is_some_and(|hosted| {
            hosted.lending.is_busy = !hosted.waiting.is_empty();
            hosted.lending.is_busy
        });
        if is_wanted {
            self.ask_for_lend(object, of);
        } else {
            self.serve_waiting(now, object);
        }
    }

    /// The volume knows that the lend has ended.
    pub(crate) fn file_given_back(&mut self, object: ObjectId, of: FileOf, generation: Generation) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let last = hosted.replica.machine().attributes().1.lend();
        let is_turning = hosted.lending.turning.is_some_and(|(at, _)| hosted.replica.committed() < at);
        if !is_turning && last.is_some_and(|last| last.lent.generation == generation) {
            hosted.lending.is_told = true;
        }
        hosted.lending.is_busy = !hosted.waiting.is_empty();
        if hosted.lending.is_busy {
            self.ask_for_lend(object, of);
        }
    }

    /// The lend has ended in the file's own log, or cannot.
    pub(crate) fn file_returned(&mut self, now: WallTime, object: ObjectId, reply: &FileReplyBody) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let has_ended = matches!(reply, FileReplyBody::Changed { outcome: Ok(_), .. });
        if let Some((of, ended)) = hosted.ended_lend().filter(|_| has_ended) {
            return self.run_errand(object, of, ended);
        }
        hosted.lending.is_busy = false;
        self.watch_lend(now, object);
        self.serve_waiting(now, object);
    }

    /// Looks at a file when it may not have been changed for long.
    pub(crate) fn watch_lend(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if !std::mem::replace(&mut hosted.lending.is_watched, true) {
            self.files.lends.insert((now + GIVEN_BACK_AFTER, object));
        }
    }

    /// Ends the lends of files that nobody has changed for a while.
    pub(crate) fn check_lends(&mut self, now: WallTime) {
        while let Some(&(at, object)) = self.files.lends.first().filter(|&&(at, _)| at <= now) {
            self.files.lends.remove(&(at, object));
            let Some(hosted) = self.files.hosted.get_mut(&object) else { continue };
            hosted.lending.is_watched = false;
            let lend = hosted.replica.machine().attributes().1.lend();
            // What is lent to a client the volume takes back.
            let is_its = |lend: &Lend| lend.is_open() && lend.lent.to == LentTo::Content;
            let Some(lend) = lend.filter(is_its).filter(|_| hosted.serves()) else { continue };
            let is_used = hosted.lending.used + GIVEN_BACK_AFTER > now || !hosted.changing.is_empty();
            if is_used || hosted.lending.is_busy {
                self.watch_lend(now, object);
                continue;
            }
            hosted.lending.is_busy = true;
            let (generation, given) = (lend.lent.generation, Some(given(&hosted.replica.machine().stat())));
            let end = if self.config.breaks(Bug::GivenBackFirst) {
                ErrandBody::GiveBack { generation, given }
            } else {
                ErrandBody::Return { lent: lend.lent, modified: None }
            };
            self.run_errand(object, lend.of, end);
        }
    }

    /// A tenure begins: what the one before has borrowed is this one's to give back.
    pub(crate) fn begin_lends(&mut self, now: WallTime, object: ObjectId) {
        self.errands.end(object);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.lending.begin(now);
        hosted.deleting.clear();
        hosted.preparing.clear();
        hosted.waiting.extend(std::mem::take(&mut hosted.recalls).take_waiting());
        hosted.waiting.extend(hosted.waits.take().into_iter().map(|wait| (wait.asker, wait.body())));
        if let Some(lend) = hosted.replica.machine().attributes().1.lend() {
            hosted.lending.of = Some(lend.of);
            if lend.is_open() {
                self.watch_lend(now, object);
            }
        }
    }
}

/// What the volume is to have.
pub(crate) const fn given(stat: &crate::file::Stat) -> Given {
    Given { size: stat.size, mtime: stat.modified, ctime: stat.changed }
}

/// The file as the volume has it, which has lent its size and times, by this or before.
fn lent_attributes(reply: &FileReplyBody) -> Result<Attributes, FileError> {
    match outcome_of(reply) {
        Some(Ok(Done::Tree(done))) => match &**done {
            TreeDone::Changed { attributes } => Ok(attributes.clone()),
            _ => Err(FileError::NotLent),
        },
        Some(Err(error)) => Err(error),
        // There is no such volume any more.
        _ => Err(FileError::Removed),
    }
}
