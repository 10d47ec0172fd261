//! Rules that seeds of the simulator do not come to break: each story goes well with its rule, and goes wrong without it.

use std::sync::Arc;

use base::{ClusterId, Epoch, MonoTime, NodeId, ObjectId, Seq, WallTime};
use bytes::Bytes;
use namespace::{Ask, Born, Change as TreeChange, Generation, InodeId, Name, NameError, Op, Who};
use node::file::{Change, FileBody, Level, Query};
use node::{CacheGrant, ClusterMap, GrantKind, Osd, Revoked, Settings};

use super::{Bug, Rules};
use crate::core::content::{Contents, FileId, OwnerSet, Recall, Shown, View};
use crate::core::creations::{Creations, Turn};
use crate::core::files::{FileOutput, Files};
use crate::core::grants::{Cache, Connection, Told};

const VOLUME: ObjectId = ObjectId::new(1, 2);
const NODE: NodeId = NodeId(1);
const EPOCH: Epoch = Epoch { number: 1, node: NODE };
const FILE: FileId = FileId { volume: VOLUME, inode: InodeId { number: 3, epoch: EPOCH } };
const NOW: MonoTime = MonoTime::from_micros(1);
const LATER: MonoTime = MonoTime::from_micros(1_000);

const fn lend(seq: u64) -> Generation {
    Generation(Born { epoch: EPOCH, seq: Seq(seq) })
}

fn tell_twice(bug: Bug, goes_well: fn(Rules) -> bool) {
    assert!(goes_well(Rules::ALL), "{bug:?}: it goes wrong with the rule");
    assert!(!goes_well(Rules::without(Some(bug))), "{bug:?}: it goes well without the rule");
}

#[test]
fn a_reply_that_is_older_than_a_revocation_is_not_kept() {
    tell_twice(Bug::LateReplyKept, |rules| {
        let by = Connection { node: NODE, number: 1 };
        let mut cache = Cache::new().with_rules(rules);
        cache.handle_up(by);
        cache.confirm(NODE, LATER);
        cache.revoke(NODE, 1, (VOLUME, Revoked::inode(InodeId::ROOT)));
        let (who, ask) = (Who::root(), Ask::Lookup { dir: InodeId::ROOT, name: Name::new(b"a").unwrap() });
        let grant = CacheGrant {
            kind: GrantKind::Shared,
            tenure: EPOCH,
            at: Seq(5),
            revoked: 0,
            inodes: vec![InodeId::ROOT],
            changed: Vec::new(),
        };
        let told = Told { by, grant: Some(Box::new(grant)), at: Some(Seq(5)) };
        cache.tell(VOLUME, (&who, &ask), (&told, &Err(NameError::NoEntry { dir: InodeId::ROOT })));
        cache.answer(NOW, VOLUME, (&who, &ask)).is_none()
    });
}

#[test]
fn what_is_wanted_back_before_it_is_known_is_never_used() {
    tell_twice(Bug::RevokedLendUsed, |rules| {
        let mut contents = Contents::new(1).with_rules(rules);
        contents.recall((FILE, lend(2)), Some(Recall { from: NODE, number: 1 }));
        let (time, size) = (WallTime::ZERO, 0);
        let empty = Shown { size, modified: time, accessed: None, mode: None, changed: time };
        !contents.adopt(NOW, FILE, (lend(2), None), empty)
    });
}

#[test]
fn blocks_of_an_earlier_lend_are_not_read() {
    tell_twice(Bug::OldBlocksRead, |rules| {
        let mut contents = Contents::new(1).with_rules(rules);
        let plan = contents.plan(FILE, View::Still(Some(lend(1)), 5), 0..5).unwrap();
        contents.keep(FILE, plan.mark, (0, &Bytes::from("hello")));
        let again = contents.plan(FILE, View::Still(Some(lend(2)), 5), 0..5).unwrap();
        again.missing == [0]
    });
}

#[test]
fn what_was_read_while_it_changed_is_not_kept() {
    tell_twice(Bug::ChangedBlockKept, |rules| {
        let mut contents = Contents::new(1).with_rules(rules);
        let plan = contents.plan(FILE, View::Still(Some(lend(1)), 5), 0..5).unwrap();
        contents.plan(FILE, View::Still(Some(lend(2)), 5), 0..5);
        contents.keep(FILE, plan.mark, (0, &Bytes::from("hello")));
        !contents.has(FILE, 0)
    });
}

/// What comes back with the lend would undo what the volume was told later.
#[test]
fn while_the_volume_sets_what_an_owner_may_set_he_sets_it_there_too() {
    tell_twice(Bug::SetWhileJudged, |rules| {
        let mut contents = Contents::new(1).with_rules(rules);
        let (time, size) = (WallTime::ZERO, 0);
        let empty = Shown { size, modified: time, accessed: None, mode: None, changed: time };
        contents.adopt(NOW, FILE, (lend(2), None), empty);
        let sets = |contents: &mut Contents| {
            let set = OwnerSet { mode: Some((0o644, Who::root())), ..OwnerSet::default() };
            contents.set_by_owner((NOW, time), (FILE, lend(2)), set).is_some()
        };
        (0..2).for_each(|_| contents.begin_judging(FILE));
        let is_set = sets(&mut contents);
        contents.end_judging(FILE);
        let is_set = is_set || sets(&mut contents);
        contents.end_judging(FILE);
        assert!(sets(&mut contents) && contents.has_own_mode(FILE));
        !is_set
    });
}

#[test]
fn a_directory_goes_back_when_all_is_entered_that_was_created_there() {
    tell_twice(Bug::AnsweredBeforeEntered, |rules| {
        let mut creations = Creations::default().with_rules(rules);
        creations.lend(NOW, FILE, (lend(3), WallTime::ZERO));
        creations.number(NOW, FILE, lend(3));
        creations.recall((FILE, lend(3)), Recall { from: NODE, number: 1 })
    });
}

/// Two clients that want something of each other would wait until one is given up: what each asks for waits for what the other enters.
#[test]
fn what_was_created_is_entered_whatever_else_waits() {
    tell_twice(Bug::EntriesWait, |rules| {
        let osds = vec![Osd { id: NODE, address: "10.0.0.1:7000".to_owned() }];
        let map = ClusterMap::new(ClusterId([7; 16]), 1, 1, Settings::default(), osds);
        let mut files = Files::new(Arc::new(map.expect("a sound map"))).with_rules(rules);
        files.handle_up(NOW, NODE);
        assert!(files.promise(NOW, VOLUME));
        (0..100).for_each(|_| _ = files.ask(NOW, VOLUME, Query::Stat));
        let entry = Change::Tree(Arc::new(Op::wanted(Who::root(), TreeChange::Settle)));
        files.enter_to_hold(NOW, VOLUME, entry, Level::Written);
        let mut outputs = std::iter::from_fn(|| files.poll_output());
        let is_sent = |output: FileOutput| match output {
            FileOutput::Send { request, .. } => matches!(request.body, FileBody::Change { .. }),
            _ => false,
        };
        outputs.any(is_sent)
    });
}

#[test]
fn nothing_is_created_in_what_may_be_removed() {
    tell_twice(Bug::CreatedInRemoved, |rules| {
        let mut creations = Creations::default().with_rules(rules);
        creations.lend(NOW, FILE, (lend(3), WallTime::ZERO));
        creations.begin_removal(VOLUME);
        creations.number(NOW, FILE, lend(3)).is_none()
    });
}

#[test]
fn what_others_may_know_is_not_used_here() {
    tell_twice(Bug::UsedOfOthers, |rules| {
        let mut creations = Creations::default().with_rules(rules);
        creations.lend(NOW, FILE, (lend(3), WallTime::ZERO));
        let numbered = creations.number(NOW, FILE, lend(3)).expect("it is lent");
        let inode = numbered.inode;
        let file = FileId { inode, ..FILE };
        creations.ended(numbered.pending);
        let name = Name::new(b"b").expect("a sound name");
        creations.share(VOLUME, &TreeChange::Link { inode, dir: InodeId::ROOT, name });
        creations.use_own(NOW, file).is_none()
    });
}

#[test]
fn what_was_done_to_a_file_is_told_in_that_order() {
    tell_twice(Bug::ToldOutOfOrder, |rules| {
        let mut creations = Creations::default().with_rules(rules);
        creations.lend(NOW, FILE, (lend(3), WallTime::ZERO));
        let inode = creations.number(NOW, FILE, lend(3)).expect("it is lent").inode;
        let (removed, _) = creations.use_own(NOW, FileId { inode, ..FILE }).expect("nobody else knows it");
        creations.turn(removed) == Turn::Later
    });
}
