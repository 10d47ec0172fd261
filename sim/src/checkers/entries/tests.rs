use namespace::{Born, Generation, InodeId, Lent, LentTo};
use node::file::FileOf;

use super::*;

const FILE: ObjectId = ObjectId::new(1, 2);

const fn epoch(number: u64) -> Epoch {
    Epoch { number, node: NodeId(1) }
}

const fn at(number: u64, seq: u64) -> Position {
    Position { epoch: epoch(number), seq: Seq(seq) }
}

fn barrier(number: u64, seq: u64, generation: u64) -> Entry<Op> {
    let generation = if generation == 0 { Epoch::default() } else { epoch(generation) };
    Entry { at: at(number, seq), lease: 0, body: Body::Barrier { generation } }
}

struct Watch(Entries);

impl Watch {
    fn new() -> Self {
        Self(Entries { may_lose: true, ..Entries::default() })
    }

    fn append(&mut self, node: u32, after: u64, entries: &[Entry<Op>]) -> Result<(), Violation> {
        self.0.append(TrueTime::ZERO, (NodeId(node), FILE), (Seq(after), entries))
    }

    fn commit(&mut self, node: u32, at: Position) -> Result<Option<Epoch>, Violation> {
        let begun = self.0.commit(TrueTime::ZERO, (NodeId(node), FILE), at)?;
        Ok(begun.map(|beginning| beginning.generation))
    }
}

#[test]
fn a_position_names_one_entry() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0)]).unwrap();
    watch.append(2, 0, &[barrier(1, 1, 0)]).unwrap();
    let broken = watch.append(3, 0, &[barrier(1, 1, 7)]).unwrap_err();
    let shown: Vec<&str> = broken.shown.iter().map(|fact| &*fact.what).collect();
    assert!(shown[0].contains("n1 has") && shown[0].contains("had by n1, n2"), "{shown:?}");
    assert!(shown.len() == 2 && shown[1].contains("n3 has"), "{shown:?}");
}

#[test]
fn a_position_has_one_predecessor() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), barrier(3, 2, 0)]).unwrap();
    watch.append(2, 0, &[barrier(2, 1, 0)]).unwrap();
    assert!(watch.append(2, 1, &[barrier(3, 2, 0)]).is_err());
}

#[test]
fn in_a_generation_there_is_one_history() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), barrier(1, 2, 0)]).unwrap();
    watch.append(2, 0, &[barrier(1, 1, 0), barrier(2, 2, 0)]).unwrap();
    watch.commit(1, at(1, 2)).unwrap();
    assert!(watch.commit(2, at(2, 2)).is_err());
}

#[test]
fn what_was_durable_is_in_every_later_generation() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), barrier(1, 2, 0)]).unwrap();
    watch.commit(1, at(1, 2)).unwrap();
    let mark = |seq| Mark { at: at(1, seq), generation: Epoch::default() };
    watch.0.told_durable(TrueTime::ZERO, FILE, (mark(1), mark(1))).unwrap();
    watch.append(2, 0, &[barrier(1, 1, 0), barrier(2, 2, 2)]).unwrap();
    assert_eq!(watch.commit(2, at(2, 2)), Ok(Some(epoch(2))), "what was only written may be lost");
    assert!(watch.0.told_durable(TrueTime::ZERO, FILE, (mark(1), mark(2))).is_err(), "it is gone");
    watch.append(3, 0, &[barrier(3, 1, 3)]).unwrap();
    let broken = watch.commit(3, at(3, 1)).unwrap_err();
    let shown: Vec<&str> = broken.shown.iter().map(|fact| &*fact.what).collect();
    for (fact, expected) in shown.iter().zip(["n1 has", "n1 knows", "told that", "n3 has", "n3 knows"]) {
        assert!(fact.contains(expected), "{expected} in {shown:#?}");
    }
}

fn op(number: u64, seq: u64, request: u64) -> Entry<Op> {
    let client = ClientId { certificate: 1, program: 1 };
    let request = Request { client, number: request, settled: 1 };
    let change = Change::Truncate { size: request.number };
    let op = Op { time: WallTime::ZERO, under: None, change };
    Entry { at: at(number, seq), lease: 0, body: Body::Op { request, op } }
}

#[test]
fn what_took_effect_is_known_in_order_and_once() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), op(1, 2, 7), op(1, 3, 8), op(1, 4, 7), op(1, 5, 9)]).unwrap();
    watch.commit(1, at(1, 4)).unwrap();
    let took_effect = |watch: &Watch, generation| -> Vec<u64> {
        let all = watch.0.effects(FILE, generation);
        all.into_iter().map(|effect| effect.request.number).collect()
    };
    assert_eq!(took_effect(&watch, Epoch::default()), [7, 8]);
    watch.append(2, 0, &[barrier(1, 1, 0), op(1, 2, 7), barrier(2, 3, 2), op(2, 4, 9), op(2, 5, 7)]).unwrap();
    watch.commit(2, at(2, 5)).unwrap();
    assert_eq!(took_effect(&watch, epoch(2)), [9], "7 had taken effect before, and 8 is lost");
    assert_eq!(watch.0.latest(FILE).map(|seen| seen.at), Some(at(2, 5)));
    assert!(watch.0.is_before(FILE, at(1, 2), at(2, 5)) && !watch.0.is_before(FILE, at(1, 3), at(2, 5)));
}

#[test]
fn nothing_of_a_client_that_is_over_takes_effect() {
    let mut watch = Watch::new();
    let client = ClientId { certificate: 1, program: 1 };
    let time = WallTime::from_micros;
    let over = |seq, since, forget| Entry {
        at: at(1, seq),
        lease: 0,
        body: Body::Expire { client, since: time(since), forget: time(forget) },
    };
    let entries = [barrier(1, 1, 0), op(1, 2, 7), over(3, 5, 0), op(1, 4, 8), over(5, 9, 6), op(1, 6, 9)];
    watch.append(1, 0, &entries).unwrap();
    watch.commit(1, at(1, 6)).unwrap();
    let effects = watch.0.effects(FILE, Epoch::default());
    let [Effect { at: first, request, .. }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((first, request.client, request.number), (at(1, 2), client, 7));
}

/// Node 1 leads in epoch 2, with entries that it has from epoch 1, and takes the first `upto` for committed.
fn commits(own: &[Entry<Op>], others: &[&[Entry<Op>]], upto: u64) -> Result<(), Violation> {
    let mut watch = Watch::new();
    watch.0.may_lose = false;
    for (node, entries) in (1..).zip([own].into_iter().chain(others.iter().copied())) {
        watch.append(node, 0, entries).unwrap();
    }
    let members = Members::new([1, 2, 3].map(NodeId)).unwrap();
    let checkpoint = replication::Checkpoint::first(members, File::default());
    let records = [
        replication::Record::Appended { after: Seq(0), entries: own.to_vec(), committed: Seq(upto) },
        replication::Record::Promised(epoch(1)),
    ];
    let config = Arc::default();
    let mut replica = Replica::new(NodeId(1), config, checkpoint, records, None).unwrap();
    let tenure = replication::Tenure {
        epoch: epoch(2),
        lease: 1,
        until: WallTime::from_micros(9),
        creates: false,
        begun_after: 0,
    };
    replica.lead(WallTime::ZERO, tenure).unwrap();
    watch.0.may_commit(TrueTime::ZERO, (NodeId(1), FILE), &replica)
}

#[test]
fn what_is_committed_first_a_majority_has() {
    let [old, new] = [barrier(1, 1, 0), barrier(2, 2, 0)];
    let both = [old.clone(), new];
    let (old, both) = (std::slice::from_ref(&old), &both[..]);
    assert_eq!(commits(both, &[both, &[]], 2), Ok(()));
    assert!(commits(both, &[old, &[]], 2).is_err(), "one of three");
    assert!(commits(both, &[old, &[]], 1).is_err(), "an entry of an earlier tenure that a majority has");
    assert_eq!(commits(both, &[old, old], 1), Ok(()), "all have it");
}

#[test]
fn nothing_is_lost_while_there_is_power() {
    let mut watch = Watch::new();
    watch.0.may_lose = false;
    watch.append(1, 0, &[barrier(1, 1, 0), barrier(2, 2, 2)]).unwrap();
    watch.commit(1, at(1, 1)).unwrap();
    assert!(watch.commit(1, at(2, 2)).is_err());
}

#[test]
fn what_was_removed_may_begin_again_and_nobody_does_anything_to_it() {
    let begun_again = |is_removed: bool, also: &[Entry<Op>]| {
        let mut watch = Watch::new();
        watch.append(1, 0, &[barrier(1, 1, 0), op(1, 2, 7)]).unwrap();
        watch.commit(1, at(1, 2)).unwrap();
        watch.0.bury((NodeId(1), FILE));
        watch.0.end(FILE, is_removed);
        let entries = [&[barrier(2, 1, 0)], also].concat();
        watch.append(1, 0, &entries).unwrap();
        watch.commit(1, entries.last().unwrap().at)
    };
    assert_eq!(begun_again(true, &[]), Ok(None));
    assert!(begun_again(true, &[op(2, 2, 8)]).is_err(), "somebody changes what is gone");
    assert!(begun_again(false, &[]).is_err(), "it is not to be gone");
}

#[test]
fn the_mark_of_what_was_removed_stays_whatever_comes_behind_it() {
    let remove = |epoch, seq| {
        let mut entry = op(epoch, seq, 7);
        let Body::Op { op, .. } = &mut entry.body else { unreachable!() };
        op.change = Change::Remove;
        entry
    };
    let gone_on = |from: u64| {
        let mut watch = Watch::new();
        (1..=2).for_each(|node| {
            watch.append(node, 0, &[barrier(1, 1, 0), remove(1, 2), op(1, 3, 8)]).unwrap();
        });
        watch.commit(1, at(1, 3)).unwrap();
        watch.0.bury((NodeId(1), FILE));
        watch.0.end(FILE, true);
        watch.append(2, from, &[barrier(2, from + 1, 0)]).unwrap();
        watch.commit(2, at(2, from + 1))
    };
    assert_eq!(gone_on(2), Ok(None));
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), op(1, 2, 7), remove(1, 3)]).unwrap();
    watch.commit(1, at(1, 3)).unwrap();
    watch.0.end(FILE, true);
    watch.append(1, 2, &[barrier(2, 3, 0)]).unwrap();
    assert!(watch.commit(1, at(2, 3)).is_err(), "it is there again");
}

#[test]
fn who_did_not_hear_that_what_nobody_had_touched_is_over_has_it_still() {
    let mut watch = Watch::new();
    (1..=3).for_each(|node| watch.append(node, 0, &[barrier(1, 1, 0)]).unwrap());
    watch.commit(1, at(1, 1)).unwrap();
    (1..=2).for_each(|node| watch.0.bury((NodeId(node), FILE)));
    watch.0.end(FILE, false);
    (1..=2).for_each(|node| watch.append(node, 0, &[barrier(2, 1, 0)]).unwrap());
    assert_eq!(watch.commit(1, at(2, 1)), Ok(None));
    assert_eq!(watch.commit(3, at(1, 1)), Ok(None));
    watch.append(3, 1, &[op(1, 2, 7)]).unwrap();
    assert!(watch.commit(3, at(1, 2)).is_err(), "it is over");
}

#[test]
fn what_was_only_asked_back_may_begin_again() {
    let lent = Lent { generation: Generation(Born { epoch: epoch(1), seq: Seq(1) }), to: LentTo::Content };
    let of = FileOf { volume: FILE, inode: InodeId::ROOT };
    let begins_again = |entries: &[Entry<Op>]| {
        let mut watch = Watch::new();
        watch.append(1, 0, entries).unwrap();
        watch.commit(1, entries.last().unwrap().at).unwrap();
        watch.0.end(FILE, false);
        watch.append(1, 0, &[barrier(2, 1, 0)]).unwrap();
        watch.commit(1, at(2, 1)).is_ok()
    };
    let mut asked_back = op(1, 2, 7);
    if let Body::Op { op, .. } = &mut asked_back.body {
        op.change = Change::Return { of, lent, modified: None };
    }
    assert!(begins_again(&[barrier(1, 1, 0), asked_back.clone()]));
    assert!(!begins_again(&[barrier(1, 1, 0), asked_back, op(1, 3, 8)]));
}

#[test]
fn a_file_of_which_nothing_is_durable_may_be_gone_when_power_was() {
    let mut watch = Watch::new();
    watch.append(1, 0, &[barrier(1, 1, 0), op(1, 2, 7)]).unwrap();
    watch.commit(1, at(1, 2)).unwrap();
    watch.0.may_lose = false;
    assert!(!watch.0.may_be_gone(FILE));
    watch.0.may_lose = true;
    assert!(watch.0.may_be_gone(FILE));
    let mark = Mark { at: at(1, 1), generation: Epoch::default() };
    watch.0.told_durable(TrueTime::ZERO, FILE, (mark, mark)).unwrap();
    assert!(!watch.0.may_be_gone(FILE));
}
