//! Orders that are said to be ones: a right one is never called wrong, and a wrong one never right.

use super::super::witness::misfit;
use super::*;

fn is_order(history: &[FileOperation], order: &[usize]) -> bool {
    let explains = misfit(&MODEL, history, order).is_none();
    // Whatever has been shown is so.
    assert!(!explains || check(&MODEL, history, STEPS_MAX) == Verdict::Linearizable);
    explains
}

#[test]
fn changes_take_effect_in_the_order_given() {
    let history = [
        known(1, 9, append(b"a"), FileOutcome::Appended(1)),
        known(1, 9, append(b"b"), FileOutcome::Appended(0)),
        known(10, 11, READ, data(b"ba")),
    ];
    assert!(is_order(&history, &[1, 0]) && !is_order(&history, &[0, 1]));
    assert_eq!(misfit(&MODEL, &history, &[1]), Some(0), "what has a result took effect");
    assert_eq!(misfit(&MODEL, &history, &[0, 1]), Some(0));
}

#[test]
fn what_came_later_takes_effect_later() {
    let history = [
        known(1, 2, write(0, b"a"), DONE),
        known(3, 4, write(0, b"b"), DONE),
        known(2, 5, write(0, b"c"), DONE),
    ];
    assert!(
        is_order(&history, &[0, 1, 2]) && is_order(&history, &[0, 2, 1]) && is_order(&history, &[2, 0, 1])
    );
    assert!(!is_order(&history, &[1, 0, 2]) && !is_order(&history, &[1, 2, 0]));
}

#[test]
fn what_is_unknown_takes_effect_if_it_is_said_to() {
    let history =
        [unknown(1, append(b"a")), known(2, 3, READ, data(b"a")), unknown(1, append(b"b")), unknown(4, READ)];
    assert!(is_order(&history, &[0]) && is_order(&history, &[0, 2]));
    assert!(!is_order(&history, &[]) && !is_order(&history, &[2]));
    let early = [known(2, 3, READ, data(b"a")), unknown(4, append(b"a"))];
    assert!(!is_order(&early, &[1]));
}

#[test]
fn queries_see_what_returned_before_and_nothing_that_came_after() {
    for (called, returned, seen, is_right) in [
        (3, 4, &b"a"[..], true),
        (3, 4, b"", false),
        (3, 4, b"b", false),
        (3, 5, b"b", true),
        (2, 6, b"", true),
        (3, 6, b"b", true),
        (7, 8, b"b", true),
        (7, 8, b"a", false),
        (0, 8, b"", true),
    ] {
        let history = [
            known(1, 2, write(0, b"a"), DONE),
            known(5, 6, write(0, b"b"), DONE),
            known(called, returned, READ, data(seen)),
        ];
        assert_eq!(is_order(&history, &[0, 1]), is_right, "{called} {returned} {seen:?}");
    }
}

#[test]
fn what_was_seen_once_is_seen_from_then_on() {
    let mut history =
        vec![known(1, 9, write(0, b"a"), DONE), known(2, 3, READ, data(b"a")), known(4, 5, READ, data(b""))];
    assert_eq!(misfit(&MODEL, &history, &[0]), Some(2));
    history[2] = known(3, 5, READ, data(b""));
    assert!(is_order(&history, &[0]));
}
