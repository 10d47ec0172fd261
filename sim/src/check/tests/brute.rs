//! Against a checker that tries every order, on tiny histories; and the hints, each by itself.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// Files of three bytes, so that operations meet.
const TINY: FileModel = FileModel { size_max: 3 };

/// Whether there is an order of what is left, by trying all.
fn has_order(state: &Content, left: &[FileOperation]) -> bool {
    if left.iter().all(|operation| operation.returned.is_none()) {
        return true;
    }
    let comes_first = |n: usize| {
        let is_before =
            |other: &FileOperation| other.returned.as_ref().is_some_and(|(at, _)| *at < left[n].called);
        !left.iter().any(is_before)
    };
    (0..left.len()).filter(|&n| comes_first(n)).any(|n| {
        let mut rest = left.to_vec();
        let next = rest.remove(n);
        let outcome = next.returned.as_ref().map(|(_, outcome)| outcome);
        TINY.step(state, &next.op, outcome).is_some_and(|state| has_order(&state, &rest))
    })
}

fn tiny_data() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..3_u8, 0..3)
}

fn tiny_content() -> impl Strategy<Value = Content> {
    prop_oneof![
        4 => tiny_data().prop_map(|data| data.as_slice().into()),
        1 => Just(Content { bytes: Vec::new(), is_removed: true }),
    ]
}

fn tiny_op() -> impl Strategy<Value = FileOp> {
    prop_oneof![
        4 => (0..3_usize, tiny_data()).prop_map(|(offset, data)| FileOp::Write { offset, data }),
        3 => tiny_data().prop_map(|data| FileOp::Append { data }),
        2 => (0..5_usize).prop_map(|size| FileOp::Truncate { size }),
        2 => (0..3_usize, 0..3_usize).prop_map(|(offset, length)| FileOp::Punch { offset, length }),
        4 => (0..3_usize, 0..4_usize).prop_map(|(offset, length)| FileOp::Read { offset, length }),
        1 => Just(FileOp::Stat),
        1 => Just(FileOp::Remove),
        2 => Just(FileOp::Begin),
        1 => Just(FileOp::Nothing),
    ]
}

/// An operation, its call, how long it took, whether its outcome is known, and a rank in the order in which operations really
/// took effect: near its time, or not. Ranks behind the last mean that an unknown one never did.
type Drawn = (FileOp, u64, u64, bool, u64);

fn history(drawn: Vec<Drawn>) -> Vec<FileOperation> {
    let mut order: Vec<usize> = (0..drawn.len()).collect();
    order.sort_by_key(|&n| drawn[n].1 + drawn[n].4);
    let mut outcomes = vec![DONE; drawn.len()];
    let mut state = TINY.start();
    for n in order {
        let (op, _, _, is_known, late) = &drawn[n];
        if !is_known && *late > 8 {
            continue;
        }
        let outcome = tiny_outcomes().find(|outcome| TINY.step(&state, op, Some(outcome)).is_some());
        outcomes[n] = outcome.expect("something comes of it");
        state = TINY.step(&state, op, Some(&outcomes[n])).expect("it was found so");
    }
    let operation = |((op, called, took, is_known, _), outcome)| match is_known {
        true => known(called, called + took, op, outcome),
        false => unknown(called, op),
    };
    drawn.into_iter().zip(outcomes).map(operation).collect()
}

/// Everything that can come of an operation on a tiny file.
fn tiny_outcomes() -> impl Iterator<Item = FileOutcome> {
    let sizes = (0..=3).flat_map(|size| [FileOutcome::Size(size), FileOutcome::Appended(size)]);
    let data = (0..=3_u32).flat_map(|length| {
        (0..3_u32.pow(length)).map(move |word| {
            let digit = |place| u8::try_from(word / 3_u32.pow(place) % 3).expect("a digit");
            FileOutcome::Data((0..length).map(digit).collect())
        })
    });
    [FileOutcome::Done, FileOutcome::Refused, FileOutcome::Removed].into_iter().chain(sizes).chain(data)
}

#[test]
fn the_verdict_is_that_of_trying_every_order() {
    let drawn = (tiny_op(), 0..20_u64, 0..5_u64, proptest::bool::weighted(0.7), 0..12_u64);
    let (fine, wrong) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new_with_rng(
        Config { failure_persistence: None, ..Config::with_cases(20_000) },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let cases = proptest::collection::vec(drawn, 1..8).prop_map(history);
    let ran = runner.run(&cases, |history| {
        let expected = has_order(&TINY.start(), &history);
        let hinted = check(&TINY, &history, STEPS_MAX);
        let plain = check(&Plain(TINY), &history, STEPS_MAX);
        prop_assert_eq!(hinted == Verdict::Linearizable, expected);
        prop_assert_eq!(plain == Verdict::Linearizable, expected);
        let Verdict::Violation(violation) = hinted else {
            fine.set(fine.get() + 1);
            return Ok(());
        };
        wrong.set(wrong.get() + 1);
        let shown: Vec<FileOperation> = violation.operations.iter().map(|&n| history[n].clone()).collect();
        prop_assert!(violation.operations.contains(&violation.culprit));
        prop_assert!(!has_order(&TINY.start(), &shown), "what is shown has an order: {}", violation);
        Ok(())
    });
    ran.unwrap();
    assert!(fine.get() > 1_000 && wrong.get() > 1_000, "both kinds: {} and {}", fine.get(), wrong.get());
}

proptest! {
    #![proptest_config(Config { failure_persistence: None, ..Config::with_cases(20_000) })]

    #[test]
    fn an_order_that_does_not_matter_does_not(state in tiny_content(), one in tiny_op(), other in tiny_op()) {
        prop_assert_eq!(TINY.may_matter(&one, &other), TINY.may_matter(&other, &one));
        let run = |first: &FileOp, second: &FileOp| {
            let done = |state: &Content, op: &FileOp| {
                let outcome = tiny_outcomes().find(|outcome| TINY.step(state, op, Some(outcome)).is_some());
                (TINY.step(state, op, None).expect("it can always happen"), outcome)
            };
            let (middle, first) = done(&state, first);
            let (end, second) = done(&middle, second);
            (end, first, second)
        };
        let (there, back) = (run(&one, &other), run(&other, &one));
        let is_same = there.0 == back.0 && there.1 == back.2 && there.2 == back.1;
        prop_assert!(is_same || TINY.may_matter(&one, &other));
    }

    #[test]
    fn what_is_hopeless_never_comes(
        state in tiny_content(),
        op in tiny_op(),
        others in proptest::collection::vec(tiny_op(), 0..4),
    ) {
        let others: Vec<&FileOp> = others.iter().collect();
        let mut states = Vec::new();
        all_after(&state, &others, &mut states);
        for outcome in tiny_outcomes() {
            if TINY.is_hopeless(&state, (&op, &outcome), &others) {
                let comes = states.iter().any(|state| TINY.step(state, &op, Some(&outcome)).is_some());
                prop_assert!(!comes, "{outcome:?} comes of {op:?}");
            }
        }
    }
}

/// All states after some of `others` in some order.
fn all_after(state: &Content, others: &[&FileOp], found: &mut Vec<Content>) {
    found.push(state.clone());
    for n in 0..others.len() {
        let mut rest = others.to_vec();
        let op = rest.remove(n);
        all_after(&TINY.step(state, op, None).expect("it can always happen"), &rest, found);
    }
}
