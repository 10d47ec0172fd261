//! What there are histories of: files, and volumes. How the entries of each are the operations that users wanted.

use std::fmt::Debug;

use base::ObjectId;
use namespace::{Ask, InodeId};
use node::Named;
use node::file::{Change, FileError};

use super::entries::Effect;
use crate::check::Specification;
use crate::check::file::{Content, FileModel, FileOp, FileOutcome};
use crate::check::volume::{Placed, Told, Volume, VolumeModel, VolumeOp};

/// A kind of thing that users do something to.
pub trait Kind:
    Specification<State: Debug, Op: Clone + Debug, Outcome: Clone + PartialEq + Debug> + Debug
{
    /// Who says what is wrong.
    const CHECKER: &'static str;
    /// Whether another order of the changes than that of the replicas may explain a history.
    const HAS_OTHER_ORDERS: bool;

    /// What can always be done, and what comes of it.
    fn nothing() -> (Self::Op, Self::Outcome);

    /// Whether an outcome says that nothing has changed, and nothing else.
    fn says_nothing(outcome: &Self::Outcome) -> bool;

    /// Whether an outcome says that nothing was done, for whatever reason.
    fn is_refused(outcome: &Self::Outcome) -> bool;

    /// Whether a question is about how much there is in all.
    fn is_of_all(op: &Self::Op) -> bool;

    /// Whether a change touches a directory or what is in it.
    fn touches(op: &Self::Op, dir: InodeId) -> bool;

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

    fn is_refused(outcome: &FileOutcome) -> bool {
        *outcome == FileOutcome::Refused
    }

    fn is_of_all(_: &FileOp) -> bool {
        false
    }

    fn touches(_: &FileOp, _: InodeId) -> bool {
        false
    }

    fn bind(&self, wish: &FileOp, _: ObjectId, effect: &Effect<'_>) -> Result<Option<FileOp>, String> {
        Ok((effect.op.change != Change::NoSpace).then(|| wish.clone()))
    }

    /// Of a volume's file daemons note whose size and times are, and remove it.
    fn unasked(&self, effect: &Effect<'_>) -> Result<Option<FileOp>, String> {
        Ok((effect.op.change == Change::Remove).then_some(FileOp::Remove))
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

    fn is_refused(outcome: &Result<Told, FileError>) -> bool {
        outcome.is_err()
    }

    /// Nobody waits with that for what a client has created by itself.
    fn is_of_all(op: &Placed) -> bool {
        matches!(&op.op, VolumeOp::Ask(query) if query.ask == Ask::Statfs)
    }

    fn touches(op: &Placed, dir: InodeId) -> bool {
        matches!(&op.op, VolumeOp::Change(op) if Named::by(&op.change).inodes.contains(&dir))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{ClientId, ClusterId, Epoch, NodeId, ObjectId, Seq, WallTime};
    use namespace::{
        Answer, Ask, Change as TreeChange, Generation, InodeId, Make, Memory, Name, Op as TreeOp, Query,
        Root, Site, Tree, VolumeName, Who,
    };
    use node::file::{Op, Position};
    use node::{ClusterMap, Osd, Settings};
    use replication::{Body, Entry, Request};

    use super::super::Violation;
    use super::super::entries::Entries;
    use super::super::histories::{Histories, OperationId};
    use super::*;
    use crate::TrueTime;

    const VOLUME: ObjectId = ObjectId::new(3, 4);
    const CLIENT: ClientId = ClientId { certificate: 7, program: 1 };
    const LATER: Epoch = Epoch { number: 9, node: NodeId(1) };

    const fn at(seq: u64) -> Position {
        Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn make(text: &str) -> TreeChange {
        let (dir, name, make) = (InodeId::ROOT, name(text), Make::Directory);
        TreeChange::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false }
    }

    fn remove(text: &str) -> TreeChange {
        TreeChange::RemoveDirectory { site: Site::new(InodeId::ROOT, name(text)), holders: Vec::new() }
    }

    fn wanted(change: TreeChange) -> TreeOp {
        TreeOp::wanted(Who::root(), change)
    }

    /// Users of a volume, a log, and a copy that says what comes of what is in it.
    struct Story {
        map: Arc<ClusterMap>,
        histories: Histories<VolumeModel>,
        log: Vec<Entry<Op>>,
        tree: Tree<Memory>,
        calls: u64,
    }

    impl Story {
        /// The volume has a tree in which nothing is.
        fn new() -> Self {
            let osd = Osd { id: NodeId(1), address: "10.0.0.1:7000".into() };
            let map = ClusterMap::new(ClusterId([7; 16]), 1, 1, Settings::default(), vec![osd]).unwrap();
            let map = Arc::new(map);
            let barrier = Entry { at: at(1), lease: 0, body: Body::Barrier { generation: Epoch::default() } };
            let mut story = Self {
                histories: Histories::new(VolumeModel { map: Arc::clone(&map) }),
                map,
                log: vec![barrier],
                tree: Tree::bare(Memory::default()),
                calls: 0,
            };
            let name = VolumeName::parse("volume").unwrap();
            let root = Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name };
            let id = story.call(VolumeOp::Plant(root.clone()));
            story.append(CLIENT, 1, Change::Plant(root.clone()));
            story.tree.plant(born(2), &root);
            story.told(id, Ok(Told::Done));
            story
        }

        fn members(&self, inode: InodeId) -> base::Members {
            self.map.view(node::file_object(VOLUME, inode)).members.clone()
        }

        fn call(&mut self, op: VolumeOp) -> OperationId {
            let is_change = !matches!(op, VolumeOp::Ask(_));
            let id = self.histories.called(TrueTime::ZERO, VOLUME, 1, op.into());
            if is_change {
                self.calls += 1;
                self.histories.goes_by(id, (CLIENT, self.calls));
            }
            id
        }

        fn told(&mut self, id: OperationId, told: Result<Told, FileError>) {
            self.histories.returned(TrueTime::ZERO, id, told);
        }

        fn append(&mut self, client: ClientId, number: u64, change: Change) {
            let request = Request { client, number, settled: 1 };
            let body = Body::Op { request, op: Op { time: WallTime::ZERO, under: None, change } };
            self.log.push(Entry { at: at(1 + self.log.len() as u64), lease: 0, body });
        }

        /// The entry of a change, and what the tree says to it.
        fn enter(&mut self, client: ClientId, number: u64, change: TreeChange) -> Result<Told, FileError> {
            let op = TreeOp { client, ..wanted(change) };
            self.append(client, number, Change::Tree(Arc::new(op.clone())));
            let done = self.tree.apply(born(self.log.len() as u64), &op)?;
            Ok(Told::Changed(Box::new(done)))
        }

        /// Somebody changes something, and is told.
        fn does(&mut self, change: TreeChange) {
            let id = self.call(VolumeOp::Change(Arc::new(wanted(change.clone()))));
            let told = self.enter(CLIENT, self.calls, change);
            self.told(id, told);
        }

        fn asks(&mut self) -> OperationId {
            let ask = Ask::List { dir: InodeId::ROOT, after: None, entries_max: 9, with_attributes: false };
            self.call(VolumeOp::Ask(Arc::new(Query { who: Who::root(), ask })))
        }

        /// What is in the root now.
        fn list(&self) -> Result<Told, FileError> {
            let ask = Ask::List { dir: InodeId::ROOT, after: None, entries_max: 9, with_attributes: false };
            let answer: Answer = self.tree.answer(&Query { who: Who::root(), ask })?;
            Ok(Told::Answer(Box::new(answer)))
        }

        fn judge(&self) -> Result<(), Violation> {
            let mut entries = Entries::default();
            let whose = (NodeId(1), VOLUME);
            entries.append(TrueTime::ZERO, whose, (Seq(0), &self.log)).unwrap();
            entries.commit(TrueTime::ZERO, whose, self.log.last().unwrap().at).unwrap();
            self.histories.judge(TrueTime::ZERO, &entries).map(drop)
        }

        /// It is wrong, and this is said of it.
        fn assert_wrong(&self, expected: &str) {
            let violation = self.judge().unwrap_err();
            assert!(violation.checker == "trees" && violation.what.contains(expected), "{violation}");
        }
    }

    const fn born(seq: u64) -> namespace::Born {
        namespace::Born { epoch: at(seq).epoch, seq: Seq(seq) }
    }

    #[test]
    fn what_is_done_and_answered_in_order_is_right() {
        let mut story = Story::new();
        let question = story.asks();
        story.does(make("a"));
        let seen = story.list();
        story.does(remove("a"));
        story.does(remove("a"));
        story.told(question, seen);
        assert_eq!(story.judge(), Ok(()), "it was asked before, and told after");
    }

    #[test]
    fn a_stale_answer_is_found() {
        let mut story = Story::new();
        story.does(make("a"));
        let seen = story.list();
        story.does(remove("a"));
        let question = story.asks();
        story.told(question, seen);
        story.assert_wrong("it was so, but not then");
    }

    #[test]
    fn an_answer_of_what_never_was_is_found() {
        let mut story = Story::new();
        story.does(make("a"));
        let seen = story.list();
        let mut other = Story::new();
        let question = other.asks();
        other.told(question, seen);
        other.assert_wrong("it was never so");
    }

    #[test]
    fn later_answers_are_not_older_than_earlier_ones() {
        let mut story = Story::new();
        let empty = story.list();
        let open = story.call(VolumeOp::Change(Arc::new(wanted(make("a")))));
        let _ = story.enter(CLIENT, 2, make("a"));
        let seen = story.list();
        for (told, is_right) in [(seen, true), (empty, false)] {
            let question = story.asks();
            story.told(question, told);
            assert_eq!(story.judge().is_ok(), is_right, "the change has no result, and somebody has seen it");
        }
        story.told(open, Ok(Told::Done));
        story.assert_wrong("in the order of the replicas it comes to");
    }

    #[test]
    fn what_was_told_and_no_replica_has_is_found() {
        let mut story = Story::new();
        story.does(make("a"));
        story.log.pop();
        story.assert_wrong("no replica has that committed");
    }

    #[test]
    fn an_order_that_is_against_time_is_found() {
        let mut story = Story::new();
        story.does(make("a"));
        story.does(make("b"));
        let [one, other] = [2, 3].map(|place: usize| story.log[place].body.clone());
        (story.log[2].body, story.log[3].body) = (other, one);
        assert!(story.judge().is_err());
    }

    #[test]
    fn an_entry_is_what_was_wanted_and_nothing_else() {
        for change in [make("b"), remove("a")] {
            let mut story = Story::new();
            let id = story.call(VolumeOp::Change(Arc::new(wanted(make("a")))));
            let told = story.enter(CLIENT, 2, change);
            story.told(id, told);
            story.assert_wrong("was wanted");
        }
        let mut story = Story::new();
        story.call(VolumeOp::Change(Arc::new(wanted(make("a")))));
        let late = TreeOp { time: WallTime::from_micros(1), client: CLIENT, ..wanted(make("a")) };
        story.append(CLIENT, 2, Change::Tree(Arc::new(late)));
        story.assert_wrong("was wanted");
    }

    #[test]
    fn what_nobody_asked_for_is_found_unless_a_daemon_deletes() {
        let daemon = ClientId { certificate: 0, program: 1 };
        let deleted = TreeChange::Deleted { inode: InodeId::ROOT };
        for (client, change, is_right) in [
            (daemon, deleted.clone(), true),
            (daemon, make("a"), false),
            (CLIENT, deleted, false),
            (CLIENT, make("a"), false),
        ] {
            let mut story = Story::new();
            let _ = story.enter(client, 99, change.clone());
            assert_eq!(story.judge().is_ok(), is_right, "{client:?} {change:?}");
        }
    }

    #[test]
    fn what_is_told_twice_happened_once() {
        let mut story = Story::new();
        story.does(make("a"));
        let again = story.log[2].body.clone();
        story.log.push(Entry { at: at(4), lease: 0, body: again });
        let question = story.asks();
        let seen = story.list();
        story.told(question, seen);
        assert_eq!(story.judge(), Ok(()), "an entry that comes again does nothing");
        let mut story = Story::new();
        let id = story.call(VolumeOp::Change(Arc::new(wanted(make("a")))));
        let _ = story.enter(CLIENT, 2, make("a"));
        // The second time the name is taken.
        let told = story.tree.apply(born(4), &wanted(make("a"))).map(|done| Told::Changed(Box::new(done)));
        story.told(id, told.map_err(FileError::Tree));
        story.assert_wrong("in the order of the replicas it comes to");
    }

    #[test]
    fn a_volume_that_is_gone_says_so_until_it_is_planted_again() {
        let mut story = Story::new();
        for (op, change, told) in [
            (VolumeOp::Remove, Change::Remove, Ok(Told::Done)),
            (VolumeOp::Remove, Change::Remove, Err(FileError::Removed)),
            (VolumeOp::Begin, Change::Begin, Ok(Told::Done)),
        ] {
            let id = story.call(op);
            story.append(CLIENT, story.calls, change);
            story.told(id, told);
        }
        let question = story.asks();
        story.told(question, Err(FileError::NoTree));
        assert_eq!(story.judge(), Ok(()));
        let question = story.asks();
        story.told(question, Err(FileError::Removed));
        story.assert_wrong("it was so, but not then");
    }

    #[test]
    fn what_was_lost_is_not_expected_in_what_was_recovered() {
        judge_what_was_lost(true);
    }

    /// Clients give a change its number when it is its turn, which may be after a loss.
    #[test]
    fn what_gets_its_number_after_a_loss_is_known_in_what_was_recovered() {
        judge_what_was_lost(false);
    }

    fn judge_what_was_lost(is_numbered_before: bool) {
        let mut story = Story::new();
        let mut recovered = story.tree.clone();
        let (rest, whose) = (story.log.clone(), |node| (NodeId(node), VOLUME));
        story.does(make("a"));
        let lost = story.list();
        let wants = VolumeOp::Change(Arc::new(wanted(make("b"))));
        let open = story.histories.called(TrueTime::ZERO, VOLUME, 1, wants.into());
        if is_numbered_before {
            story.histories.goes_by(open, (CLIENT, 3));
        }
        let mut entries = Entries::default();
        entries.may_lose = true;
        entries.append(TrueTime::ZERO, whose(1), (Seq(0), &story.log)).unwrap();
        entries.commit(TrueTime::ZERO, whose(1), at(3)).unwrap();
        story.histories.begin_anew(TrueTime::ZERO, VOLUME, LATER, Volume::Tree(recovered.clone()));
        if !is_numbered_before {
            story.histories.goes_by(open, (CLIENT, 3));
        }
        let later = |seq| Position { epoch: LATER, seq: Seq(seq) };
        let op = TreeOp { client: CLIENT, ..wanted(make("b")) };
        let done = recovered.apply(namespace::Born { epoch: LATER, seq: Seq(4) }, &op).unwrap();
        let request = Request { client: CLIENT, number: 3, settled: 1 };
        let change = Change::Tree(Arc::new(op));
        let bodies = [
            Body::Barrier { generation: LATER },
            Body::Op { request, op: Op { time: WallTime::ZERO, under: None, change } },
        ];
        let behind = (3..).zip(bodies).map(|(seq, body)| Entry { at: later(seq), lease: 0, body });
        let log: Vec<_> = rest.into_iter().chain(behind).collect();
        entries.append(TrueTime::ZERO, whose(2), (Seq(0), &log)).unwrap();
        entries.commit(TrueTime::ZERO, whose(2), later(4)).unwrap();
        story.told(open, Ok(Told::Changed(Box::new(done))));
        (story.tree, story.log) = (recovered, log);
        let question = story.asks();
        let seen = story.list();
        story.told(question, seen);
        assert_eq!(story.histories.judge(TrueTime::ZERO, &entries).map(drop), Ok(()));
        let question = story.asks();
        story.told(question, lost);
        assert!(story.histories.judge(TrueTime::ZERO, &entries).is_err());
    }

    const OWN: u64 = 9;

    /// A client has made a directory, which is lent to it, and creates a file there by itself.
    struct Creation {
        story: Story,
        dir: InodeId,
        id: OperationId,
        change: TreeChange,
    }

    impl Creation {
        fn new() -> Self {
            Self::after(|_, _| ()).0
        }

        /// Something happens in the directory before that.
        fn after<T>(happens: impl FnOnce(&mut Story, InodeId) -> T) -> (Self, T) {
            let mut story = Story::new();
            let mut making = make("d");
            if let TreeChange::Create { lends, .. } = &mut making {
                *lends = true;
            }
            story.does(making);
            let (dir, under) = (InodeId::of(born(3)), Generation(born(3)));
            let inode = InodeId::under(under, OWN).unwrap();
            let replicas = story.members(inode);
            let happened = happens(&mut story, dir);
            let (number, mode, created) = (OWN, 0o644, WallTime::ZERO);
            let change = TreeChange::Enter { dir, under, number, name: name("n"), replicas, mode, created };
            let id = story.call(VolumeOp::Change(Arc::new(wanted(change.clone()))));
            let op = TreeOp { client: CLIENT, ..wanted(change.clone()) };
            let done = story.tree.clone().apply(born(4), &op).unwrap();
            let told = Ok(Told::Changed(Box::new(done)));
            story.histories.told_ahead(TrueTime::ZERO, id, (dir, Some(told)));
            (Self { story, dir, id, change }, happened)
        }

        fn enters(&mut self) {
            let told = self.story.enter(CLIENT, self.story.calls, self.change.clone());
            self.story.told(self.id, told);
        }

        fn looks(&mut self) -> OperationId {
            let ask = Ask::Lookup { dir: self.dir, name: name("n") };
            self.story.call(VolumeOp::Ask(Arc::new(Query { who: Who::root(), ask })))
        }

        /// What is told of the file by a tree that has it, or does not.
        fn sees(&self, has_it: bool) -> Result<Told, FileError> {
            let mut tree = self.story.tree.clone();
            let op = TreeOp { client: CLIENT, ..wanted(self.change.clone()) };
            let _ = has_it.then(|| tree.apply(born(4), &op));
            let ask = Ask::Lookup { dir: self.dir, name: name("n") };
            Ok(Told::Answer(Box::new(tree.answer(&Query { who: Who::root(), ask })?)))
        }
    }

    #[test]
    fn what_was_created_ahead_is_there_for_all_before_it_is_entered() {
        for has_it in [true, false] {
            let mut creation = Creation::new();
            let (question, seen) = (creation.looks(), creation.sees(has_it));
            creation.story.told(question, seen);
            creation.enters();
            assert_eq!(creation.story.judge().is_ok(), has_it);
        }
    }

    #[test]
    fn who_asked_before_may_see_what_was_begun_before_and_is_known_to_be_there_later() {
        let list = |dir| {
            let ask = Ask::List { dir, after: None, entries_max: 9, with_attributes: false };
            Query { who: Who::root(), ask }
        };
        for has_begun in [true, false] {
            let change = |dir| match make("m") {
                TreeChange::Create { name, make, mode, umask, is_exclusive, lends, .. } => {
                    TreeChange::Create { dir, name, make, mode, umask, is_exclusive, lends }
                }
                change => change,
            };
            let begin = |story: &mut Story, dir| {
                let id = story.call(VolumeOp::Change(Arc::new(wanted(change(dir)))));
                (id, story.calls)
            };
            let (mut creation, (question, begun)) = Creation::after(|story, dir| {
                let begun = has_begun.then(|| begin(story, dir));
                (story.call(VolumeOp::Ask(Arc::new(list(dir)))), begun)
            });
            let (dir, own) = (creation.dir, creation.story.calls);
            let (id, number) = begun.unwrap_or_else(|| begin(&mut creation.story, dir));
            let told = creation.story.enter(CLIENT, number, change(dir));
            let seen = creation.story.tree.answer(&list(dir)).unwrap();
            creation.story.told(question, Ok(Told::Answer(Box::new(seen))));
            creation.story.told(id, told);
            let told = creation.story.enter(CLIENT, own, creation.change.clone());
            creation.story.told(creation.id, told);
            assert_eq!(creation.story.judge().is_ok(), has_begun);
        }
    }

    #[test]
    fn what_is_lost_its_client_alone_has_seen() {
        for is_its in [true, false] {
            let mut creation = Creation::new();
            let (question, seen) = (creation.looks(), creation.sees(true));
            creation.story.told(question, seen);
            if is_its {
                creation.story.histories.seen_ahead(creation.id, question);
            }
            assert_eq!(creation.story.judge().is_ok(), is_its);
        }
    }

    #[test]
    fn what_was_given_back_is_not_lost() {
        let mut creation = Creation::new();
        assert_eq!(creation.story.judge(), Ok(()));
        creation.story.histories.must_keep(VOLUME, creation.dir, "it was given back");
        creation.story.assert_wrong("it was given back");
        creation.enters();
        assert_eq!(creation.story.judge(), Ok(()));
    }
}
