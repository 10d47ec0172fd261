//! Whatever is done: replicas agree, what is refused changes nothing, and questions wait for what matters to them.

use proptest::prelude::*;

use super::random::{FIRST, aim, any_op, any_query, beginning};
use super::*;

/// A tree in which there is something.
fn begin() -> Tree<Memory> {
    let mut tree = Tree::default();
    for (seq, op) in (1..).zip(&beginning()) {
        tree.apply(at(seq), op).unwrap();
    }
    tree
}

/// Does all of it, one entry after the other.
fn run(ops: &[Op]) -> Tree<Memory> {
    let mut tree = begin();
    for (seq, op) in (FIRST..).zip(ops) {
        let _refused = tree.apply(at(seq), op);
    }
    tree
}

/// The same with most operations aimed at something that is there when they come.
fn aimed(ops: Vec<Op>) -> Vec<Op> {
    let mut tree = begin();
    let aimed = (FIRST..).zip(ops).map(|(seq, op)| {
        let op = aim(&tree, op);
        let _refused = tree.apply(at(seq), &op);
        op
    });
    aimed.collect()
}

/// Makes `tree` what `other` is, by parts whose versions differ.
fn take_over(tree: &mut Tree<Memory>, other: &Tree<Memory>) {
    let mut after = None;
    loop {
        let page = tree.versions(after.as_ref(), 3);
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        page.into_iter()
            .filter(|(key, _)| other.version(key).is_none())
            .for_each(|(key, _)| tree.place(key, None));
    }
    after = None;
    loop {
        let page = other.versions(after.as_ref(), 3);
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (key, version) in page {
            if tree.version(&key) == Some(version) {
                continue;
            }
            let part = other.part(&key).map(|part| (version, part));
            tree.place(key, part);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_step_leaves_a_sound_tree_and_what_is_refused_changes_nothing(
        ops in prop::collection::vec(any_op(), 1..70),
    ) {
        let ops = aimed(ops);
        let mut tree = begin();
        for (seq, op) in (FIRST..).zip(&ops) {
            let before = tree.clone();
            match tree.apply(at(seq), op) {
                Ok(_) => sound::check(&tree),
                Err(_) => prop_assert_eq!(&tree, &before),
            }
            prop_assert!(cost::op_bytes(op) <= cost::OP_BYTES_MAX);
        }
        let kept = tree.clone();
        prop_assert_eq!(run(&ops), tree, "replicas agree");
        prop_assert_eq!(kept.versions(None, usize::MAX), run(&ops).versions(None, usize::MAX));
    }

    #[test]
    fn a_tree_is_rebuilt_from_parts_whatever_was_there(
        ops in prop::collection::vec(any_op(), 1..70),
        common in 0..70_usize,
        more in prop::collection::vec(any_op(), 0..20),
    ) {
        let ops = aimed(ops);
        let tree = run(&ops);
        let mut other = Tree::default();
        take_over(&mut other, &tree);
        prop_assert_eq!(&other, &tree, "from nothing");

        // An older primary has put other entries behind those that both have.
        let common = common.min(ops.len());
        let mut other = run(&ops[..common]);
        for (seq, op) in (FIRST + common as u64..).zip(&more) {
            let at = Born { epoch: Epoch { number: 6, ..EPOCH }, seq: Seq(seq) };
            let _refused = other.apply(at, op);
        }
        take_over(&mut other, &tree);
        prop_assert_eq!(&other, &tree, "from another history");
    }

    #[test]
    fn what_does_not_overlap_a_question_does_not_change_its_answer(
        ops in prop::collection::vec(any_op(), 1..50),
        pending in prop::collection::vec(any_op(), 1..30),
        queries in prop::collection::vec(any_query(), 1..10),
    ) {
        let ops = aimed(ops);
        let tree = run(&ops);
        for op in pending {
            let op = aim(&tree, op);
            let mut then = tree.clone();
            if then.apply(at(FIRST + 100), &op).is_err() {
                continue;
            }
            for query in queries.iter().filter(|query| !tree.overlaps(&op, query)) {
                prop_assert_eq!(tree.answer(query), then.answer(query), "{:?}: {:?}", op, query);
            }
        }
    }
}

#[test]
fn random_histories_do_something() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let ops: Vec<Vec<Op>> = (0..400)
        .map(|_| prop::collection::vec(any_op(), 60).new_tree(&mut runner).unwrap().current())
        .map(aimed)
        .collect();
    let mut tried = std::collections::BTreeMap::<String, (u32, u32)>::new();
    for ops in &ops {
        let mut tree = begin();
        for (seq, op) in (FIRST..).zip(ops) {
            let kind = format!("{:?}", op.change).split([' ', '{']).next().unwrap().to_owned();
            let (done, all) = tried.entry(kind).or_default();
            *all += 1;
            *done += u32::from(tree.apply(at(seq), op).is_ok());
        }
    }
    assert!(tried.len() >= 20 && tried.values().all(|&(done, _)| done >= 10), "{tried:?}");
}
