//! What users of files of volumes were told that clients have lent to them: whether a single copy could have told them the same, though
//! much of it was answered where nobody else could see it.
//!
//! - What users did to a file and were told has an order, over all clients, whoever answered. Each change that a client did by itself took
//!   effect when it was told; one that the content did when that was committed. That order is tried first, and else another one
//!   is looked for.
//! - Nobody answers by a lend or a grant that is over in the volume.
//! - Where a client has ended that had a file, or was told that something is lost, the history ends when its lend does, and another begins with
//!   what is there. That is [what must be](super::kept). What the client that was told so reads until then has no place in the order, but
//!   was there once. Of what it has said to have given back nothing may be lost.
//! - Where nobody sets times, the time of the last change is [not shown too early](super::times).
//! - Where the power of several daemons takes away what was written, nothing more is said of the order.

use std::collections::BTreeMap;

use base::{ClientId, Epoch, ObjectId, Span, WallTime};
use namespace::Generation;
use node::file::Position;

use super::Violation;
use super::entries::{Effect, Entries};
use super::evidence::{Fact, Machines};
use super::kept::Kept;
use super::moments::Moments;
use super::order::{Part, Wrong};
use super::times::{Dated, misdated};
use crate::TrueTime;
use crate::check::file::{Content, FileModel, FileOp, FileOutcome};
use crate::check::{Moment, Operation, Specification};

/// Clocks may be so much further apart than when they were looked at last.
const CHANGED_SINCE: Span = Span::from_millis(100);
/// So much is told of lends when something is wrong.
const LENDS_TOLD: usize = 24;

/// All files.
#[derive(Debug, Default)]
pub struct Contents {
    files: BTreeMap<ObjectId, Lives>,
    moments: Moments,
    /// So far apart clocks have been, and who changes a file next may have the one that is behind.
    apart: Span,
    /// Up to where volumes were looked at.
    newest: BTreeMap<ObjectId, Position>,
}

/// What the histories were found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// How many histories have an order, and of how many it had to be looked for.
    pub orders: u64,
    /// See there.
    pub searched: u64,
    /// How often a time was shown of which something was known before.
    pub dated: u64,
    /// How many lends ended in which something may have been lost.
    pub lossy: u64,
}

/// Names an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UseId {
    object: ObjectId,
    place: usize,
}

/// By what name a change goes at the daemons.
type Name = (ClientId, u64);

#[derive(Debug, Default)]
struct Lives {
    operations: Vec<Use>,
    names: BTreeMap<Name, usize>,
    lends: BTreeMap<Generation, Life>,
    /// The lend that is going on, as far as anybody knows it to be committed.
    present: Option<Generation>,
    /// Whether its client has made it by itself, and no volume is known to have it.
    is_ahead: bool,
    /// From here on nothing is said.
    stopped: Option<Moment>,
    /// Nor of the times from here on.
    redated: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Use {
    operation: Operation<FileOp, FileOutcome>,
    who: ClientId,
    /// The file was changed at this time or later, as far as this shows it.
    time: Option<WallTime>,
    /// Whether it was done where it was wanted, and by which lend.
    is_here: bool,
    under: Option<Generation>,
}

/// A lend, to whomever.
#[derive(Clone, Debug)]
struct Life {
    begun: TrueTime,
    /// Up to where the content was known to be committed by then.
    base: Position,
    /// When it was over, and up to where then.
    ended: Option<(Moment, Position)>,
    /// Why something may be lost, and from when on.
    losses: Option<String>,
    lost: Vec<Moment>,
    /// Whether its client has said that it has given everything back: then nothing may be lost.
    is_given_back: bool,
    /// What was done since the one moment and before the other is known to be safe.
    safe: Vec<(Moment, Moment)>,
}

impl Contents {
    /// Somebody wants this done, between these two by all clocks.
    pub fn called(
        &mut self,
        (now, (earliest, latest)): (TrueTime, (WallTime, WallTime)),
        object: ObjectId,
        who: ClientId,
        op: FileOp,
    ) -> UseId {
        let called = self.moments.tick(now);
        self.apart = self.apart.max(latest.since(earliest));
        let time = match &op {
            FileOp::Write { data, .. } | FileOp::Append { data } if !data.is_empty() => Some(earliest),
            _ => None,
        };
        let uses = &mut self.files.entry(object).or_default().operations;
        let client = who.certificate * 1_000 + who.program % 1_000;
        uses.push(Use {
            operation: Operation { client, called, op, returned: None },
            who,
            time,
            is_here: false,
            under: None,
        });
        UseId { object, place: uses.len() - 1 }
    }

    /// It goes by this name at the daemons.
    pub fn goes_by(&mut self, id: UseId, name: Name) {
        self.files.entry(id.object).or_default().names.insert(name, id.place);
    }

    /// It is done, and this came of it.
    pub fn returned(&mut self, now: TrueTime, id: UseId, outcome: FileOutcome) {
        let at = self.moments.tick(now);
        if let Some(found) = self.files.get_mut(&id.object).and_then(|file| file.operations.get_mut(id.place))
        {
            found.operation.returned = Some((at, outcome));
        }
    }

    /// A client has done it by a lend, or knew the answer under a grant that says that the file is lent to nobody.
    pub fn done_here(
        &mut self,
        now: TrueTime,
        id: UseId,
        (under, outcome): (Option<Generation>, FileOutcome),
    ) -> Result<(), Violation> {
        self.returned(now, id, outcome);
        let Some(file) = self.files.get_mut(&id.object).filter(|file| file.stopped.is_none()) else {
            return Ok(());
        };
        let present = file.present;
        let Some(done) = file.operations.get_mut(id.place) else { return Ok(()) };
        (done.is_here, done.under) = (true, under);
        if present == under {
            return Ok(());
        }
        let (who, op) = (done.who, FileModel::default().describe(&done.operation.op, None));
        let what =
            format!("{who:?} does or answers by itself under {under:?}: {op}; it is lent by {present:?}");
        let acts = Fact::new(now, who, what.clone());
        let file = &self.files[&id.object];
        let lends = [under, present].into_iter().flatten();
        let lives = lends.filter_map(|lend| Some((lend, file.lends.get(&lend)?)));
        let facts = lives.flat_map(|(lend, life)| self.tell_life(lend, life)).chain([acts]);
        Err(Violation::new(now, "lends", what).about(id.object).shown_by(facts))
    }

    /// Who looked was shown this time of the last change.
    pub fn dated(&mut self, id: UseId, time: WallTime) {
        let found = self.files.get_mut(&id.object).and_then(|file| file.operations.get_mut(id.place));
        if let Some(found) = found {
            found.time = Some(time);
        }
    }

    /// Somebody sets times: of those that are shown from here on nothing is said.
    pub fn redated(&mut self, now: TrueTime, object: ObjectId) {
        let at = self.moments.tick(now);
        self.files.entry(object).or_default().redated.get_or_insert(at);
    }

    /// It was never sent, or changes nothing whatever comes of it.
    pub fn void(&mut self, now: TrueTime, id: UseId) {
        self.returned(now, id, FileOutcome::Done);
        if let Some(found) = self.files.get_mut(&id.object).and_then(|file| file.operations.get_mut(id.place))
        {
            found.operation.op = FileOp::Nothing;
        }
    }

    /// Whether a volume is not older than it was when it was looked at last.
    pub fn is_news(&mut self, volume: ObjectId, at: Position) -> bool {
        let newest = self.newest.entry(volume).or_default();
        let is_news = at >= *newest;
        *newest = at.max(*newest);
        is_news
    }

    /// Whether it was ever told how a file is lent.
    pub fn knows(&self, object: ObjectId) -> bool {
        let is_known =
            |file: &Lives| file.present.is_some() || !file.lends.is_empty() || file.stopped.is_some();
        self.files.get(&object).is_some_and(is_known)
    }

    /// A volume is known to lend a file by this, or to nobody; and so much of its content to be committed.
    pub fn lent(
        &mut self,
        now: TrueTime,
        object: ObjectId,
        (present, content): (Option<Generation>, Position),
    ) {
        let file = self.files.entry(object).or_default();
        file.is_ahead = false;
        if file.present == present {
            return;
        }
        let before = std::mem::replace(&mut file.present, present);
        let at = self.moments.tick(now);
        let file = self.files.entry(object).or_default();
        if let Some(life) = before.and_then(|before| file.lends.get_mut(&before)) {
            life.ended = Some((at, content));
        }
        if let Some(present) = present {
            let life = Life {
                begun: now,
                base: content,
                ended: None,
                losses: None,
                lost: Vec::new(),
                is_given_back: false,
                safe: Vec::new(),
            };
            file.lends.insert(present, life);
        }
    }

    /// What is lent by this may be lost in part, and why.
    pub fn may_lose(&mut self, now: TrueTime, object: ObjectId, generation: Generation, why: String) {
        let at = self.moments.tick(now);
        let life = self.files.get_mut(&object).and_then(|file| file.lends.get_mut(&generation));
        if let Some(life) = life.filter(|life| !life.is_given_back) {
            life.lost.push(at);
            life.losses.get_or_insert(why);
        }
    }

    /// Who has it lent by this says that it has sent all that it had.
    pub fn given_back(&mut self, object: ObjectId, generation: Generation) {
        let life = self.files.get_mut(&object).and_then(|file| file.lends.get_mut(&generation));
        if let Some(life) = life {
            life.is_given_back = true;
        }
    }

    /// What is lent by this was to be made durable at `called`, and is.
    pub fn synced(&mut self, object: ObjectId, generation: Generation, called: Moment) {
        let life = self.files.get_mut(&object).and_then(|file| file.lends.get_mut(&generation));
        if let Some(life) = life {
            // What was lost before does not come back by that.
            let lost = life.lost.iter().rev().find(|at| **at < called);
            life.safe.push((lost.copied().unwrap_or_default(), called));
        }
    }

    /// Names the present.
    pub fn moment(&mut self, now: TrueTime) -> Moment {
        self.moments.tick(now)
    }

    /// A client has made a file by itself, which is lent to it by this.
    pub fn made_ahead(&mut self, now: TrueTime, object: ObjectId, lend: Generation) {
        self.lent(now, object, (Some(lend), Position::START));
        self.files.entry(object).or_default().is_ahead = true;
    }

    /// A volume is known to have no such file any more.
    pub fn gone(&mut self, now: TrueTime, object: ObjectId) {
        if self.files.get(&object).is_none_or(|file| !file.is_ahead) {
            self.stop(now, object);
        }
    }

    /// Of what comes from here on nothing is said.
    pub fn stop(&mut self, now: TrueTime, object: ObjectId) {
        let at = self.moments.tick(now);
        self.files.entry(object).or_default().stopped.get_or_insert(at);
    }

    /// Whether everything is right. What a file is up to some entry `content` knows.
    pub fn judge(
        &self,
        now: TrueTime,
        entries: &Entries,
        content: &dyn Fn(ObjectId, Position) -> Content,
    ) -> Result<Counts, Violation> {
        let mut counts = Counts::default();
        for (&object, file) in &self.files {
            let wrong = |(what, places): Wrong| {
                let facts = places.into_iter().flat_map(|place| self.tell(&file.operations[place]));
                let lends = file.lends.iter().flat_map(|(&lend, life)| self.tell_life(lend, life));
                Violation::new(now, "lends", what).about(object).shown_by(facts.chain(lends.take(LENDS_TOLD)))
            };
            let bounds = file.bounds(&|at| content(object, at)).map_err(wrong)?;
            counts.lossy += bounds.len() as u64 - 1;
            let effects = self.effects(object, entries);
            for (place, (from, start)) in bounds.iter().enumerate() {
                let upto = bounds.get(place + 1).map_or(file.last(), |(upto, _)| *upto);
                let is_searched = file.part((*from, upto), &effects).judge(start).map_err(wrong)?;
                counts.dated += file.judge_times((*from, upto), self.apart + CHANGED_SINCE).map_err(wrong)?;
                counts.orders += 1;
                counts.searched += u64::from(is_searched);
            }
        }
        Ok(counts)
    }

    /// The changes that the content took in, and when that was known.
    fn effects(&self, object: ObjectId, entries: &Entries) -> Vec<(Moment, Name)> {
        let effects = entries.effects(object, Epoch::default()).into_iter();
        let since = |effect: Effect<'_>| {
            let since = entries.since(object, effect.at)?;
            Some((self.moments.at(since), (effect.request.client, effect.request.number)))
        };
        effects.filter_map(since).collect()
    }

    /// That something was wanted, and what came of it.
    fn tell(&self, done: &Use) -> [Fact; 2] {
        let Operation { called, op, returned, .. } = &done.operation;
        let model = FileModel::default();
        let who = done.who;
        let (end, outcome) = match returned {
            Some((at, outcome)) => (*at, Some(outcome)),
            None => (self.moments.last(), None),
        };
        let told = match (outcome, done.under) {
            (None, _) => format!("{who:?} was never told of it: {}", model.describe(op, None)),
            (outcome, None) => format!("{who:?} is told of it: {}", model.describe(op, outcome)),
            (outcome, Some(lend)) => {
                format!("{who:?} does it under {lend:?}: {}", model.describe(op, outcome))
            }
        };
        let calls = format!("{who:?} wants {}", model.describe(op, None));
        [
            Fact::new(self.moments.time_of(*called), who, calls),
            Fact::new(self.moments.time_of(end), who, told),
        ]
    }

    fn tell_life(&self, lend: Generation, life: &Life) -> Vec<Fact> {
        let begins = format!("{lend:?} begins, with the content up to {:?}", life.base);
        let begins = Fact::new(life.begun, Machines::default(), begins);
        let over = life.ended.as_ref().map(|(at, content)| {
            let why = life
                .losses
                .as_ref()
                .map_or(String::new(), |why| format!(", and something may be lost: {why}"));
            let over = format!("{lend:?} is over, with the content up to {content:?}{why}");
            Fact::new(self.moments.time_of(*at), Machines::default(), over)
        });
        [begins].into_iter().chain(over).collect()
    }
}

impl Use {
    /// When it changed the content, and how. What was put at the end stays where it was put, whatever else is lost.
    fn change(&self) -> Option<(Moment, FileOp)> {
        let Operation { op, returned, .. } = &self.operation;
        let (at, outcome) = returned.as_ref()?;
        let change = match (op, outcome) {
            (FileOp::Append { data }, FileOutcome::Appended(offset)) => {
                FileOp::Write { offset: *offset, data: data.clone() }
            }
            (op, FileOutcome::Done) if !FileModel::default().is_query(op) => op.clone(),
            _ => return None,
        };
        Some((*at, change))
    }
}

impl Lives {
    /// From here on nothing is said.
    fn last(&self) -> Moment {
        self.stopped.unwrap_or(Moment(u64::MAX))
    }

    /// Where histories begin, and with what: what must be there is.
    fn bounds(&self, content: &dyn Fn(Position) -> Content) -> Result<Vec<(Moment, Content)>, Wrong> {
        let mut bounds = vec![(Moment::default(), Content::default())];
        for (&lend, life) in &self.lends {
            let (Some((at, after)), Some(why)) = (&life.ended, &life.losses) else { continue };
            if *at >= self.last() {
                continue;
            }
            let after = content(*after);
            bounds.push((*at, after.clone()));
            let places = self.operations.iter().enumerate().filter(|(_, done)| done.under == Some(lend));
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            let base = content(life.base);
            let wrong = |what| format!("{lend:?} is over, and something may be lost, because {why}: {what}");
            if let Some(what) = self.kept((life, &base), &places).misfit(&after.bytes) {
                // What was read has no part in it.
                let changes = |place: &usize| self.operations[*place].change().is_some();
                return Err((wrong(what), places.into_iter().filter(changes).collect()));
            }
            if let Some(what) = self.misread((lend, life), &base, &places) {
                return Err((wrong(what), places));
            }
        }
        bounds.sort_by_key(|(at, _)| *at);
        Ok(bounds)
    }

    /// What must be there when a lend is over, by which these were done. Each took effect when it was told.
    fn kept(&self, (life, base): (&Life, &Content), places: &[usize]) -> Kept {
        let is_safe = |at: Moment| life.safe.iter().any(|&(from, upto)| (from..upto).contains(&at));
        let mut changes: Vec<_> =
            places.iter().filter_map(|&place| self.operations[place].change()).collect();
        changes.sort_by_key(|(at, _)| *at);
        let mut kept = Kept::of(base);
        for (at, change) in changes {
            if is_safe(at) { kept.keep(&change) } else { kept.change(&change) }
        }
        kept
    }

    /// Whether whoever has a file by a lend reads it when some of what it wrote is lost, though the lend goes on.
    fn reads_lost(&self, (lend, life): (Generation, &Life), done: &Use) -> bool {
        let Operation { called, op, returned, .. } = &done.operation;
        let (Some(lost), Some((at, _)), FileOp::Read { .. }) = (life.lost.first(), returned, op) else {
            return false;
        };
        let is_holder = |other: &Use| other.under == Some(lend) && other.who == done.who;
        let is_before_the_end = life.ended.as_ref().is_none_or(|(end, _)| called < end);
        at >= lost && is_before_the_end && self.operations.iter().any(is_holder)
    }

    /// What of that was never there.
    fn misread(&self, (lend, life): (Generation, &Life), base: &Content, places: &[usize]) -> Option<String> {
        let mut ever = Kept::of(base);
        let changes = places.iter().filter_map(|&place| self.operations[place].change());
        changes.for_each(|(_, change)| ever.change(&change));
        let is_within = |at: &Moment| life.ended.as_ref().is_none_or(|(end, _)| at < end);
        let of_lost = self.operations.iter().filter(|done| self.reads_lost((lend, life), done));
        of_lost.map(|done| &done.operation).find_map(|read| match (&read.op, &read.returned) {
            (FileOp::Read { offset, .. }, Some((at, FileOutcome::Data(data)))) if is_within(at) => {
                ever.misread(*offset, data)
            }
            _ => None,
        })
    }

    /// Whether the times that were shown between two moments are right, and how many there are.
    fn judge_times(&self, (from, upto): (Moment, Moment), apart: Span) -> Result<u64, Wrong> {
        let upto = self.redated.map_or(upto, |redated| redated.min(upto));
        let dated = self.operations.iter().enumerate().filter_map(|(place, done)| {
            let Operation { called, op, returned, .. } = &done.operation;
            let (returned, outcome) = returned.as_ref()?;
            let is_done = *outcome != FileOutcome::Refused && *op != FileOp::Nothing;
            let is_within = *called >= from && *returned < upto && is_done;
            let time = done.time.filter(|_| is_within)?;
            let is_of_lost = self.lends.values().any(|life| {
                let is_before_the_end = life.ended.as_ref().is_none_or(|(end, _)| called < end);
                life.lost.first().is_some_and(|lost| returned >= lost) && is_before_the_end
            });
            let is_look = *op == FileOp::Stat;
            let dated = Dated { called: *called, returned: *returned, time, is_look };
            (!is_of_lost).then_some((place, dated))
        });
        let (places, dated): (Vec<usize>, Vec<Dated>) = dated.unzip();
        let first = dated.iter().map(|dated| dated.returned).min();
        let looks = dated.iter().filter(|dated| dated.is_look && Some(dated.called) > first).count() as u64;
        let Some((look, known)) = misdated(&dated, apart) else { return Ok(looks) };
        let what = format!(
            "the last change is shown to be of {:?}, and was of {:?} or later before, with clocks {apart:?} apart",
            dated[look].time, dated[known].time
        );
        Err((what, vec![places[known], places[look]]))
    }

    /// What was done between two moments.
    fn part(&self, (from, upto): (Moment, Moment), effects: &[(Moment, Name)]) -> Part {
        let (mut places, mut operations) = (Vec::new(), Vec::new());
        let model = FileModel::default();
        for (place, done) in self.operations.iter().enumerate() {
            let Operation { client, called, op, returned } = &done.operation;
            let is_over = returned.as_ref().is_some_and(|(at, _)| *at < from);
            let straddles = *called < from || returned.as_ref().is_some_and(|(at, _)| *at >= upto);
            // In which of the histories a question was answered nobody can say.
            let is_of_lost = || self.lends.iter().any(|(&lend, life)| self.reads_lost((lend, life), done));
            if is_over || *called >= upto || straddles && model.is_query(op) || is_of_lost() {
                continue;
            }
            let returned = returned.clone().filter(|_| !straddles);
            operations.push(Operation {
                client: *client,
                called: (*called).max(from),
                op: op.clone(),
                returned,
            });
            places.push(place);
        }
        let index = |place: usize| places.binary_search(&place).ok();
        let by_entry = effects.iter().filter(|(at, _)| (from..upto).contains(at));
        let by_entry = by_entry.filter_map(|(at, name)| Some((*at, 0, index(*self.names.get(name)?)?)));
        let by_lend = places.iter().enumerate().filter_map(|(index, &place)| {
            let Use { operation, is_here, .. } = &self.operations[place];
            let (at, _) =
                operation.returned.as_ref().filter(|_| *is_here && !model.is_query(&operation.op))?;
            Some((*at, 1, index))
        });
        let mut order: Vec<(Moment, u8, usize)> = by_entry.chain(by_lend).collect();
        // What was committed in one moment stays in the order of its log.
        order.sort_by_key(|&(at, how, _)| (at, how));
        Part { operations, places, order: order.into_iter().map(|(_, _, index)| index).collect() }
    }
}

#[cfg(test)]
mod tests {
    use base::{NodeId, Seq};
    use namespace::Born;

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const NOW: TrueTime = TrueTime::ZERO;
    const CLOCKS: (WallTime, WallTime) = (WallTime::ZERO, WallTime::ZERO);
    const READ: FileOp = FileOp::Read { offset: 0, length: 9 };

    fn client(program: u64) -> ClientId {
        ClientId { certificate: program, program }
    }

    fn lend(seq: u64) -> Option<Generation> {
        Some(Generation(Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }))
    }

    fn write(byte: u8) -> FileOp {
        FileOp::Write { offset: 0, data: vec![byte] }
    }

    /// A volume that lends one file, and clients who use it.
    #[derive(Default)]
    struct Story {
        contents: Contents,
        /// What the content was, and when.
        states: Vec<Vec<u8>>,
    }

    impl Story {
        fn lent(&mut self, present: Option<Generation>, content: &[u8]) {
            self.states.push(content.to_vec());
            let seq = Seq(self.states.len() as u64 - 1);
            self.contents.lent(NOW, FILE, (present, Position { seq, ..Position::START }));
        }

        fn does(
            &mut self,
            who: u64,
            op: FileOp,
            (under, outcome): (Option<Generation>, FileOutcome),
        ) -> Result<(), Violation> {
            let id = self.contents.called((NOW, CLOCKS), FILE, client(who), op);
            self.contents.done_here(NOW, id, (under, outcome))
        }

        fn writes(&mut self, who: u64, byte: u8, under: Option<Generation>) {
            assert_eq!(self.does(who, write(byte), (under, FileOutcome::Done)), Ok(()));
        }

        fn reads(&mut self, who: u64, data: &[u8]) {
            let id = self.contents.called((NOW, CLOCKS), FILE, client(who), READ);
            self.contents.returned(NOW, id, FileOutcome::Data(data.to_vec()));
        }

        fn says(&self) -> Option<String> {
            let content = |_, at: Position| self.states[usize::try_from(at.seq.0).unwrap()].as_slice().into();
            self.contents.judge(NOW, &Entries::default(), &content).err().map(|violation| violation.what)
        }
    }

    #[test]
    fn what_was_written_under_a_lend_others_read() {
        for (found, is_right) in [(1, false), (2, true), (3, false)] {
            let mut story = Story::default();
            story.lent(lend(1), &[]);
            story.writes(1, 1, lend(1));
            story.writes(1, 2, lend(1));
            story.lent(None, &[2]);
            story.reads(2, &[found]);
            assert_eq!(story.says().is_none(), is_right, "{found}");
        }
    }

    #[test]
    fn nothing_is_done_by_a_lend_that_is_over() {
        let mut story = Story::default();
        story.lent(lend(1), &[]);
        story.writes(1, 1, lend(1));
        story.lent(None, &[1]);
        let broken = story.does(1, write(2), (lend(1), FileOutcome::Done)).unwrap_err();
        assert!(broken.checker == "lends" && broken.shown.len() >= 2, "{broken}");
    }

    #[test]
    fn nothing_is_answered_by_a_grant_of_a_file_that_is_lent() {
        let mut story = Story::default();
        story.lent(lend(1), &[]);
        let read = FileOutcome::Data(Vec::new());
        assert!(story.does(2, READ, (None, read)).is_err());
    }

    #[test]
    fn what_is_lost_with_its_client_is_not_expected_and_nothing_else_is_found() {
        for (found, is_lossy, is_right) in
            [(1, true, true), (2, true, true), (0, true, false), (7, true, false), (1, false, false)]
        {
            let mut story = Story::default();
            story.lent(lend(1), &[]);
            story.writes(1, 1, lend(1));
            let called = story.contents.moment(NOW);
            story.contents.synced(FILE, lend(1).unwrap(), called);
            story.writes(1, 2, lend(1));
            if is_lossy {
                story.contents.may_lose(NOW, FILE, lend(1).unwrap(), "its client has ended".into());
            }
            story.lent(None, &[found]);
            story.reads(2, &[found]);
            assert_eq!(story.says().is_none(), is_right, "{found} {is_lossy}: {:?}", story.says());
        }
    }

    #[test]
    fn what_was_refused_its_own_client_may_read_no_more() {
        for (who, found, is_lossy, is_right) in [
            (1, &[][..], true, true),
            (1, &[0], true, true),
            (1, &[1], true, true),
            (1, &[7], true, false),
            (1, &[], false, false),
            (2, &[], true, false),
        ] {
            let mut story = Story::default();
            story.lent(lend(1), &[]);
            story.writes(1, 1, lend(1));
            if is_lossy {
                story.contents.may_lose(NOW, FILE, lend(1).unwrap(), "it was refused".into());
            }
            story.reads(who, found);
            story.lent(None, &[1]);
            assert_eq!(story.says().is_none(), is_right, "{who} {found:?} {is_lossy}: {:?}", story.says());
        }
    }

    /// And what was put at the end later stays where it was put.
    #[test]
    fn what_was_lost_no_later_sync_makes_safe() {
        let put = (FileOp::Write { offset: 1, data: vec![2] }, FileOutcome::Done);
        let appended = (FileOp::Append { data: vec![2] }, FileOutcome::Appended(1));
        for (later, outcome) in [put, appended] {
            for (found, is_right) in [(&[0, 2][..], true), (&[1, 2], true), (&[0], false), (&[2], false)] {
                let mut story = Story::default();
                story.lent(lend(1), &[]);
                story.writes(1, 1, lend(1));
                story.contents.may_lose(NOW, FILE, lend(1).unwrap(), "it was refused".into());
                assert_eq!(story.does(1, later.clone(), (lend(1), outcome.clone())), Ok(()));
                let called = story.contents.moment(NOW);
                story.contents.synced(FILE, lend(1).unwrap(), called);
                story.lent(None, found);
                assert_eq!(story.says().is_none(), is_right, "{later:?} {found:?}: {:?}", story.says());
            }
        }
    }

    /// As many that an unstable order would not keep them.
    #[test]
    fn what_was_committed_in_one_moment_has_the_order_of_its_log() {
        const COUNT: u8 = 64;
        let mut story = Story::default();
        story.lent(lend(1), &[]);
        story.writes(1, 1, lend(1));
        story.lent(None, &[1]);
        let name = |number: u8| (client(2), u64::from(number));
        let ids: Vec<UseId> = (0..COUNT)
            .map(|number| {
                let append = FileOp::Append { data: vec![number] };
                let id = story.contents.called((NOW, CLOCKS), FILE, client(2), append);
                story.contents.goes_by(id, name(number));
                id
            })
            .collect();
        let at = story.contents.moment(NOW);
        for (place, id) in ids.into_iter().enumerate() {
            story.contents.returned(NOW, id, FileOutcome::Appended(1 + place));
        }
        let effects: Vec<(Moment, Name)> = (0..COUNT).map(|number| (at, name(number))).collect();
        let part = story.contents.files[&FILE].part((Moment::default(), Moment(u64::MAX)), &effects);
        assert_eq!(part.judge(&Content::default()), Ok(false), "it is there, and none is looked for");
    }

    #[test]
    fn of_what_was_given_back_nothing_is_lost() {
        for is_given_back in [false, true] {
            let mut story = Story::default();
            story.lent(lend(1), &[]);
            story.writes(1, 1, lend(1));
            if is_given_back {
                story.contents.given_back(FILE, lend(1).unwrap());
            }
            story.contents.may_lose(NOW, FILE, lend(1).unwrap(), "it was told so".into());
            story.lent(None, &[]);
            story.reads(2, &[]);
            assert_eq!(story.says().is_some(), is_given_back);
        }
    }

    #[test]
    fn what_was_synced_is_there_though_its_client_has_ended() {
        let mut story = Story::default();
        story.lent(lend(1), &[]);
        story.writes(1, 1, lend(1));
        let called = story.contents.moment(NOW);
        story.contents.synced(FILE, lend(1).unwrap(), called);
        story.contents.may_lose(NOW, FILE, lend(1).unwrap(), "its client has ended".into());
        story.lent(None, &[]);
        assert!(story.says().is_some_and(|what| what.contains("0 bytes")), "{:?}", story.says());
    }

    #[test]
    fn of_what_comes_after_a_loss_of_power_nothing_is_said() {
        let mut story = Story::default();
        story.lent(lend(1), &[]);
        story.writes(1, 1, lend(1));
        story.contents.stop(NOW, FILE);
        story.reads(2, &[9]);
        assert_eq!(story.says(), None);
        story.contents.files.get_mut(&FILE).unwrap().stopped = None;
        assert!(story.says().is_some());
    }
}
