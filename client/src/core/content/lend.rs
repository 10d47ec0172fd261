//! What is lent to this client: size, times and permissions of a file, what was written to it, and what of that is being sent.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use base::{MonoTime, Span, WallTime};
use bytes::Bytes;
use namespace::{Generation, Who};
use node::file::Level;

use super::extents::Extents;
use super::{Fault, FlushId, OwnerSet, Recall, Shown, Step, Work};

/// What was written waits so long for more, or up to `TOGETHER` less.
const GATHERED_FOR: Span = Span::from_millis(500);
/// What is written to one file is sent when it is more.
const GATHERED_BYTES: usize = 4 << 20;
/// A file in which nothing was changed for so long is given back, or up to `TOGETHER` earlier.
const REST: Span = Span::from_secs(1);
/// What the owner has set as permissions is known here alone for so long, though the file may be changed all the time.
const MODE_REST: Span = Span::from_secs(2);
/// Files that are due within this span are sent and given back together: one message tells a daemon of many.
const TOGETHER: Span = Span::from_millis(100);
/// What could not be sent is sent again after so long.
const RETRY: Span = Span::from_millis(100);
/// So many pieces of one file are under way.
const FLIGHTS_MAX: usize = 4;
/// So many changes of the content are remembered.
const BEGUN_MAX: usize = 64;
/// So many sizes are told apart for whoever wants one of them.
const LENGTHS_MAX: usize = 64;
/// No piece is longer, or has one of its multiples within.
const UNIT: u64 = node::file::WRITE_BYTES_MAX;

#[derive(Clone, Debug)]
enum Flight {
    /// Data of this range; the first write of which it has something.
    Write(Range<u64>, u64),
    /// The content gets this size; by which change, 0 if it is cut.
    Resize(u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Held,
    /// Somebody else wants it: nothing is answered from here any more.
    Recalled,
    /// All is sent, and the volume is told.
    Returning,
}

/// When more has to be sent than its own rules say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// All files together have too much that is not sent.
    pub(super) is_full: bool,
    /// By then it should be sent: the session is nearly over.
    pub(super) by: Option<MonoTime>,
}

/// One lend to this client.
#[derive(Debug)]
pub(super) struct Lend {
    pub(super) generation: Generation,
    pub(super) size: u64,
    pub(super) modified: WallTime,
    /// When it was read last, as a user has said under this lend.
    pub(super) accessed: Option<WallTime>,
    /// The permissions that a user has given it under this lend, and that user.
    pub(super) mode: Option<(u16, Who)>,
    /// When anything was changed last, the time itself included.
    pub(super) changed: WallTime,
    /// Under which lend the content became what it was before this one.
    pub(super) before: Option<Generation>,
    /// Where the content ends with all that it has taken in.
    remote: u64,
    /// Where it may end, if everything was taken in of which nobody said so.
    reach: u64,
    /// The content is to be cut here before anything else.
    cut: Option<u64>,
    /// Sizes that it was given without data, and by which change each, in the order of both.
    lengths: VecDeque<(u64, u64)>,
    pub(super) extents: Extents,
    flights: BTreeMap<FlushId, Flight>,
    is_touched: bool,
    is_modified: bool,
    /// When its owner has set permissions first.
    mode_since: Option<MonoTime>,
    /// Whether its owner has set a time, or permissions.
    has_own_set: bool,
    stage: Stage,
    recalls: Vec<Recall>,
    /// When the first was written of what is not being sent.
    since: Option<MonoTime>,
    /// When something was changed last.
    changed_at: MonoTime,
    /// Everything up to this write is to be sent.
    wanted: u64,
    wanted_as: Level,
    retry_at: MonoTime,
    /// Changes are counted.
    pub(super) order: u64,
    /// How often the content may have changed: what was read before is not kept.
    pub(super) changes: u64,
    /// How often something was begun that changes it, and where that was, the last ones.
    pub(super) begins: u64,
    begun: VecDeque<Range<u64>>,
}

impl Lend {
    pub(super) fn new(
        now: MonoTime,
        (generation, before): (Generation, Option<Generation>),
        Shown { size, modified, accessed, changed, .. }: Shown,
    ) -> Self {
        Self {
            generation,
            size,
            modified,
            accessed,
            mode: None,
            changed,
            before,
            remote: size,
            reach: size,
            cut: None,
            lengths: VecDeque::new(),
            extents: Extents::default(),
            flights: BTreeMap::new(),
            is_touched: false,
            is_modified: false,
            mode_since: None,
            has_own_set: false,
            stage: Stage::Held,
            recalls: Vec::new(),
            since: None,
            changed_at: now,
            wanted: 0,
            wanted_as: Level::Written,
            retry_at: MonoTime::default(),
            order: 0,
            changes: 0,
            begins: 0,
            begun: VecDeque::new(),
        }
    }

    /// Whether it answers and takes changes, as long as the session lasts.
    pub(super) fn serves(&self) -> bool {
        self.stage == Stage::Held
    }

    /// Until when it is not given back, unless somebody wants it back, or a call about the file has it returned.
    pub(super) fn rests_until(&self) -> Option<MonoTime> {
        self.serves().then(|| self.rested_at())
    }

    fn rested_at(&self) -> MonoTime {
        let rested = (self.changed_at + REST).rounded_down(TOGETHER);
        self.mode_until().map_or(rested, |until| rested.min(until))
    }

    /// Until when permissions that its owner has set are known here alone.
    fn mode_until(&self) -> Option<MonoTime> {
        self.mode_since.map(|since| since + MODE_REST)
    }

    pub(super) const fn is_touched(&self) -> bool {
        self.is_touched
    }

    /// Behind this the content has nothing, or nothing that counts.
    pub(super) fn upto(&self) -> u64 {
        let resized = self.flights.values().filter_map(|flight| match flight {
            Flight::Resize(size, _) => Some(*size),
            Flight::Write(..) => None,
        });
        resized.chain(self.cut).fold(self.remote, u64::min)
    }

    pub(super) fn has_flights(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether all has been sent and taken in.
    pub(super) fn is_clean(&self) -> bool {
        self.extents.is_empty() && self.flights.is_empty() && self.cut.is_none() && self.remote == self.size
    }

    /// Whether everything up to a change has been taken in.
    pub(super) fn has_sent(&self, order: u64) -> bool {
        let flown = self.flights.values().map(|flight| match flight {
            Flight::Write(_, order) | Flight::Resize(_, order) => *order,
        });
        let oldest = flown.chain(self.extents.oldest()).min();
        let is_later = self.lengths.back().is_some_and(|&(by, length)| by > order && length == self.size);
        let resizes = self.cut.is_some() || oldest.is_none() && self.remote != self.size && !is_later;
        !resizes && self.owed_length(order).is_none() && oldest.is_none_or(|oldest| oldest > order)
    }

    /// By which change up to this one the content has to become longer, and how long.
    fn owed_length(&self, order: u64) -> Option<(u64, u64)> {
        self.lengths.iter().rfind(|(by, _)| *by <= order).filter(|(_, length)| *length > self.remote).copied()
    }

    /// A change gave it this size, and took away what was behind that, of which data was written first by the change `written`. Whoever wanted some
    /// of that has this size to wait for. Sizes that nobody wants by now nobody ever will.
    fn note_length(&mut self, size: u64, written: Option<u64>) {
        let (upto, wanted) = (self.upto(), self.wanted);
        let given = self.lengths.iter().find(|(_, length)| *length >= size).map(|&(by, _)| by);
        let since = written.into_iter().chain(given).fold(self.order, u64::min);
        self.lengths.retain(|&(by, length)| by <= wanted && by < since && length > upto && length < size);
        self.lengths.push_back((since, size));
        if self.lengths.len() > LENGTHS_MAX
            && let Some((first, _)) = self.lengths.pop_front()
            && let Some((by, _)) = self.lengths.front_mut()
        {
            *by = first;
        }
    }

    /// Everything until now is to be sent, and to be durable at once if that is so much that a daemon syncs its disk once for it. Returns up to
    /// which change that is.
    pub(super) fn want(&mut self, level: Level) -> u64 {
        self.wanted = self.order;
        self.wanted_as = if self.extents.bytes() as u64 <= UNIT { level } else { Level::Written };
        self.order
    }

    pub(super) fn recall(&mut self, recall: Option<Recall>) {
        self.recalls.extend(recall);
        if self.stage == Stage::Held {
            self.stage = Stage::Recalled;
        }
    }

    /// Nobody waits any more that a daemon asked over a connection that is gone.
    pub(super) fn forget_recalls(&mut self, node: base::NodeId) {
        self.recalls.retain(|recall| recall.from != node);
    }

    pub(super) fn take_recalls(&mut self) -> Vec<Recall> {
        std::mem::take(&mut self.recalls)
    }

    pub(super) fn write(&mut self, (now, time): (MonoTime, WallTime), offset: u64, data: &Bytes) {
        if data.is_empty() {
            return;
        }
        self.change(now, time);
        self.extents.put(offset, data, self.order);
        self.size = self.size.max(offset + data.len() as u64);
    }

    pub(super) fn truncate(&mut self, (now, time): (MonoTime, WallTime), size: u64) {
        self.change(now, time);
        let mut written = None;
        if size < self.size {
            written = self.extents.remove(size..u64::MAX);
            // What is on its way to be cut as short need not be once more.
            let is_cut = |flight: &Flight| matches!(flight, Flight::Resize(to, _) if *to <= size);
            if self.reach > size && !self.flights.values().any(is_cut) {
                self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
            }
        }
        self.size = size;
        self.note_length(size, written);
    }

    pub(super) fn set_by_owner(&mut self, (now, at): (MonoTime, WallTime), set: OwnerSet) {
        if let Some(modified) = set.modified {
            (self.modified, self.is_modified) = (modified, true);
        }
        self.accessed = set.accessed.or(self.accessed);
        self.mode = set.mode.or(self.mode.take());
        self.mode_since = self.mode_since.or(self.mode.is_some().then_some(now));
        (self.has_own_set, self.changed_at) = (true, now);
        self.changed = self.changed.max(at);
    }

    /// Whether its owner has set something, which is known here alone: whoever wants that durable has the lend returned.
    pub(super) const fn has_own_set(&self) -> bool {
        self.has_own_set
    }

    /// Whether whoever looks after it has to know of what was written at `now`.
    pub(super) fn urges(&self, now: MonoTime) -> bool {
        self.since == Some(now) || self.extents.bytes() > GATHERED_BYTES
    }

    fn note_begun(&mut self, range: Range<u64>) {
        self.begins += 1;
        self.begun.push_back(range);
        if self.begun.len() > BEGUN_MAX {
            self.begun.pop_front();
        }
    }

    /// Whether the content may have been changed within a range since so much was begun.
    pub(super) fn may_differ(&self, begins: u64, range: &Range<u64>) -> bool {
        let since = usize::try_from(self.begins - begins).unwrap_or(usize::MAX);
        let meets = |begun: &Range<u64>| begun.start < range.end && range.start < begun.end;
        since > self.begun.len() || self.begun.iter().rev().take(since).any(meets)
    }

    fn change(&mut self, now: MonoTime, time: WallTime) {
        self.order += 1;
        self.changed_at = now;
        self.since.get_or_insert(now);
        // What was changed later has the later time, if only by a microsecond, whatever the clock says. A user may have set one that is
        // later still, and then it is not that of the last change any more.
        let later = WallTime::from_micros(self.changed.as_micros().saturating_add(1));
        self.changed = time.max(later);
        (self.modified, self.is_modified) = (self.changed, true);
    }

    /// What is to be done about it at `now`.
    pub(super) fn next(&mut self, now: MonoTime, pressure: Pressure, flush: FlushId) -> Step {
        if self.stage == Stage::Returning {
            return Step::Wait(None);
        }
        if self.mode_until().is_some_and(|until| now >= until) {
            self.recall(None);
        }
        if self.is_clean() {
            self.since = None;
            let rested = self.rested_at();
            if self.stage == Stage::Held && now < rested {
                return Step::Wait(Some(rested));
            }
            self.stage = Stage::Returning;
            let modified = self.is_modified.then_some(self.modified);
            let set = OwnerSet { modified, accessed: self.accessed, mode: self.mode.clone() };
            return Step::Work(Work::Return { set, changed: self.changed, is_untouched: !self.is_touched });
        }
        if now < self.retry_at {
            return Step::Wait(Some(self.retry_at));
        }
        let is_wanted = self.wanted > 0 && !self.has_sent(self.wanted);
        let due = if is_wanted { None } else { self.due(pressure) };
        if due.is_some_and(|due| now < due) {
            return Step::Wait(due);
        }
        let level = if is_wanted { self.wanted_as } else { Level::Written };
        match self.send(flush, (is_wanted, level)) {
            Some(work) => Step::Work(work),
            None => Step::Wait(None),
        }
    }

    /// When what is here is to be sent; none if at once.
    fn due(&self, pressure: Pressure) -> Option<MonoTime> {
        let is_much = self.extents.bytes() > GATHERED_BYTES || pressure.is_full;
        if is_much || self.stage != Stage::Held {
            return None;
        }
        let gathered = self.since.map(|since| (since + GATHERED_FOR).rounded_down(TOGETHER));
        gathered.into_iter().chain(pressure.by).chain(self.mode_until()).min()
    }

    fn send(&mut self, flush: FlushId, (is_wanted, level): (bool, Level)) -> Option<Work> {
        if let Some(size) = self.cut {
            if self.has_flights() {
                return None;
            }
            self.cut = None;
            return Some(self.resize(flush, (size, 0), level));
        }
        let resizes = |flight: &Flight| matches!(flight, Flight::Resize(..));
        if self.flights.len() >= FLIGHTS_MAX || self.flights.values().any(resizes) {
            return None;
        }
        // What was written later waits for it, or it might never have its turn.
        let is_behind = |oldest: u64| oldest > self.wanted;
        if let Some((by, length)) = self.owed_length(self.wanted)
            && self.extents.oldest().is_none_or(is_behind)
        {
            return (!self.has_flights()).then(|| self.resize(flush, (length, by), level));
        }
        let under_way: Vec<Range<u64>> = self.flights.values().filter_map(Flight::range).collect();
        let wanted = is_wanted.then_some(self.wanted);
        if let Some((offset, data, order)) = self.extents.send(flush, UNIT, (&under_way, wanted)) {
            let length: usize = data.iter().map(Bytes::len).sum();
            let range = offset..offset + length as u64;
            self.begun(range.clone());
            self.flights.insert(flush, Flight::Write(range, order));
            return Some(Work::Write { flush, offset, data, level });
        }
        let by = self.lengths.back().filter(|(_, length)| *length == self.size).map_or(0, |&(by, _)| by);
        (self.extents.is_empty() && !self.has_flights()).then(|| self.resize(flush, (self.size, by), level))
    }

    fn resize(&mut self, flush: FlushId, (size, by): (u64, u64), level: Level) -> Work {
        self.flights.insert(flush, Flight::Resize(size, by));
        self.begun(size..u64::MAX);
        Work::Resize { flush, size, level }
    }

    /// Something is sent that changes the content there, or behind there.
    fn begun(&mut self, range: Range<u64>) {
        self.reach = self.reach.max(if range.end == u64::MAX { range.start } else { range.end });
        self.note_begun(range);
        (self.is_touched, self.changes) = (true, self.changes + 1);
        if !self.extents.has_waiting() && self.cut.is_none() {
            self.since = None;
        }
    }

    /// Something was taken in. Returns what of it was not changed here meanwhile.
    pub(super) fn sent(&mut self, flush: FlushId) -> Vec<(u64, Bytes)> {
        self.changes += 1;
        match self.flights.remove(&flush) {
            Some(Flight::Write(range, _)) => {
                self.remote = self.remote.max(range.end);
                return self.extents.sent(flush, &range);
            }
            Some(Flight::Resize(size, _)) => (self.remote, self.reach) = (size, size),
            None => {}
        }
        Vec::new()
    }

    /// Something was not taken in, or nobody knows: it is tried again.
    pub(super) fn unsent(&mut self, now: MonoTime, flush: FlushId) {
        (self.changes, self.retry_at) = (self.changes + 1, now + RETRY);
        self.since.get_or_insert(now);
        match self.flights.remove(&flush) {
            Some(Flight::Resize(size, _)) if size < self.reach => {
                self.cut = Some(self.cut.map_or(size, |cut| cut.min(size)));
            }
            Some(Flight::Write(range, order)) => self.extents.unsent(flush, (&range, order)),
            Some(Flight::Resize(..)) | None => {}
        }
    }

    /// Something will not be taken in. Returns what range is lost, if it is data.
    pub(super) fn refused(&mut self, flush: FlushId) -> Option<Range<u64>> {
        self.changes += 1;
        match self.flights.remove(&flush)? {
            Flight::Write(range, _) => {
                self.extents.sent(flush, &range);
                if range.end == self.size {
                    self.size = self.size_without_it();
                }
                Some(range)
            }
            Flight::Resize(size, _) => {
                // To ask for the same again is of no use.
                (self.remote, self.reach) = (size, self.reach.max(size));
                None
            }
        }
    }

    /// How long the file is if what made it longest is not taken in.
    fn size_without_it(&self) -> u64 {
        let under_way = self.flights.values().map(|flight| match flight {
            Flight::Write(range, _) => range.end,
            Flight::Resize(size, _) => *size,
        });
        let given = self.lengths.back().map(|&(_, length)| length);
        under_way.chain(given).chain(self.extents.end()).fold(self.upto(), u64::max)
    }

    /// The volume did not answer: it is told again.
    pub(super) fn not_returned(&mut self) {
        self.stage = Stage::Recalled;
    }

    /// All that is lost with it.
    pub(super) fn lost(&self) -> Vec<Range<u64>> {
        let ranges = self.extents.within(&(0..u64::MAX)).into_iter();
        ranges.map(|(offset, data)| offset..offset + data.len() as u64).collect()
    }
}

impl Flight {
    fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Write(range, _) => Some(range.clone()),
            Self::Resize(..) => None,
        }
    }
}

impl Fault {
    /// Whether nothing more can be sent under a lend.
    pub(super) const fn ends_lend(&self) -> bool {
        matches!(self, Self::NotLent | Self::Removed | Self::Ended)
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, Seq};
    use namespace::Born;

    use super::*;

    const NOW: (MonoTime, WallTime) = (MonoTime::from_micros(1), WallTime::from_micros(1));

    /// A file of four bytes, all of them with the daemons.
    fn lent() -> Lend {
        let born = Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(1) };
        let (modified, changed) = (WallTime::ZERO, WallTime::ZERO);
        Lend::new(
            NOW.0,
            (Generation(born), None),
            Shown { size: 4, modified, accessed: None, mode: None, changed },
        )
    }

    /// Writes something, and has it sent.
    fn write(lend: &mut Lend, offset: u64, number: u64) {
        lend.write(NOW, offset, &Bytes::from_static(b"ab"));
        send(lend, number);
    }

    fn send(lend: &mut Lend, number: u64) {
        lend.want(Level::Written);
        let pressure = Pressure { is_full: false, by: None };
        assert!(matches!(lend.next(NOW.0, pressure, FlushId(number)), Step::Work(Work::Write { .. })));
    }

    #[test]
    fn what_no_daemon_takes_in_does_not_make_a_file_longer() {
        let mut lend = lent();
        write(&mut lend, 4, 1);
        assert_eq!((lend.refused(FlushId(1)), lend.size), (Some(4..6), 4));
        assert!(lend.is_clean(), "there is nothing to be sent for it");
        // Behind it there is something that may be taken in.
        write(&mut lend, 6, 2);
        write(&mut lend, 10, 3);
        assert_eq!((lend.refused(FlushId(2)), lend.size), (Some(6..8), 12));
        assert_eq!((lend.refused(FlushId(3)), lend.size), (Some(10..12), 4));
        // What was written there meanwhile is still to be sent.
        write(&mut lend, 4, 4);
        lend.write(NOW, 5, &Bytes::from_static(b"c"));
        assert_eq!((lend.refused(FlushId(4)), lend.size), (Some(4..6), 6));
        send(&mut lend, 5);
        lend.sent(FlushId(5));
        assert!(lend.is_clean() && lend.size == 6);
        // A size that somebody has given it stays.
        lend.truncate(NOW, 9);
        write(&mut lend, 7, 6);
        assert_eq!((lend.refused(FlushId(6)), lend.size), (Some(7..9), 9));
    }
}
