//! Small histories of which everybody sees whether they have an order.

use super::*;

fn assert_fine(history: &[FileOperation]) {
    assert_eq!(check(&MODEL, history, STEPS_MAX), Verdict::Linearizable);
    assert_eq!(check(&Plain(MODEL), history, STEPS_MAX), Verdict::Linearizable);
}

/// Fails if there is an order, and gives what is shown.
#[track_caller]
fn violation(history: &[FileOperation]) -> Violation {
    assert!(matches!(check(&Plain(MODEL), history, STEPS_MAX), Verdict::Violation(_)));
    match check(&MODEL, history, STEPS_MAX) {
        Verdict::Violation(violation) => violation,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_happened() {
    assert_fine(&[]);
    assert_fine(&[unknown(1, READ), unknown(1, write(0, b"a"))]);
}

#[test]
fn one_after_the_other() {
    assert_fine(&[
        known(1, 2, write(0, b"ab"), DONE),
        known(3, 4, append(b"cd"), FileOutcome::Appended(2)),
        known(5, 6, FileOp::Truncate { size: 3 }, DONE),
        known(7, 8, FileOp::Punch { offset: 1, length: 1 }, DONE),
        known(9, 10, READ, data(b"a\0c")),
        known(11, 12, FileOp::Stat, FileOutcome::Size(3)),
        known(13, 14, write(60, b"abcde"), FileOutcome::Refused),
        known(15, 16, READ, data(b"a\0c")),
    ]);
}

#[test]
fn a_read_that_overlaps_a_write_may_see_it_or_not() {
    for seen in [&b""[..], b"a"] {
        assert_fine(&[known(1, 4, write(0, b"a"), DONE), known(2, 3, READ, data(seen))]);
        // A return and a call in the same moment leave the order open.
        assert_fine(&[known(1, 2, write(0, b"a"), DONE), known(2, 3, READ, data(seen))]);
    }
}

#[test]
fn a_stale_read() {
    let history = [
        known(0, 0, write(9, b"z"), DONE),
        known(1, 2, write(0, b"a"), DONE),
        known(3, 4, write(0, b"b"), DONE),
        known(3, 9, write(5, b"c"), DONE),
        known(4, 5, FileOp::Stat, FileOutcome::Size(10)),
        known(5, 6, FileOp::Read { offset: 0, length: 1 }, data(b"a")),
    ];
    let violation = violation(&history);
    assert_eq!((&violation.operations[..], violation.culprit), (&[1, 2, 5][..], 5));
    let shown = "no order explains these 3 of 6 operations:\n  client 1          1 .. 2        write 0..1 61\n  \
                 client 1          3 .. 4        write 0..1 62\n> client 1          5 .. 6        read 0..1 = 61\n";
    assert_eq!(violation.to_string(), shown);
}

#[test]
fn two_reads_that_saw_time_go_back() {
    let history =
        [known(1, 9, write(0, b"a"), DONE), known(2, 3, READ, data(b"a")), known(4, 5, READ, data(b""))];
    assert_eq!(violation(&history).operations, [0, 1, 2]);
    assert_fine(&[history[0].clone(), history[2].clone(), known(6, 7, READ, data(b"a"))]);
}

#[test]
fn a_lost_update() {
    let history = [
        known(1, 2, append(b"a"), FileOutcome::Appended(0)),
        known(1, 3, append(b"b"), FileOutcome::Appended(1)),
        known(4, 5, READ, data(b"a")),
    ];
    assert_eq!(violation(&history).culprit, 2);
}

#[test]
fn a_read_from_the_future() {
    let history = [known(1, 2, READ, data(b"a")), known(3, 4, write(0, b"a"), DONE)];
    assert_eq!(violation(&history).operations, [0]);
    let history = [known(1, 2, READ, data(b"a")), unknown(3, write(0, b"a"))];
    assert_eq!(violation(&history).operations, [0]);
    assert_fine(&[known(1, 2, READ, data(b"a")), unknown(2, write(0, b"a"))]);
}

#[test]
fn appended_twice() {
    let history = [known(1, 2, append(b"a"), FileOutcome::Appended(0)), known(3, 4, READ, data(b"aa"))];
    violation(&history);
    let same = [
        known(1, 5, append(b"a"), FileOutcome::Appended(0)),
        known(1, 6, append(b"b"), FileOutcome::Appended(0)),
    ];
    assert_eq!(violation(&same).operations, [0, 1]);
}

#[test]
fn what_is_unknown_must_have_happened() {
    let history = [unknown(1, write(0, b"a")), known(2, 3, READ, data(b"a")), known(4, 5, READ, data(b"a"))];
    assert_fine(&history);
    let back = [history[0].clone(), history[1].clone(), known(4, 5, READ, data(b""))];
    assert_eq!(violation(&back).operations, [0, 1, 2]);
}

#[test]
fn what_is_unknown_must_not_have_happened() {
    let history = [unknown(1, append(b"a")), known(2, 3, append(b"b"), FileOutcome::Appended(0))];
    assert_fine(&history);
    let mut seen = history.to_vec();
    seen.push(known(4, 5, READ, data(b"ab")));
    violation(&seen);
    *seen.last_mut().unwrap() = known(4, 5, READ, data(b"ba"));
    assert_fine(&seen);
    seen.push(known(6, 7, READ, data(b"baa")));
    violation(&seen);
}

#[test]
fn what_is_unknown_may_happen_much_later_and_under_another_write() {
    let mut history = vec![unknown(1, write(0, b"aaaa"))];
    for n in 1..50 {
        history.push(known(4 * n, 4 * n + 1, write(4, &[7]), DONE));
        history.push(known(4 * n + 2, 4 * n + 3, READ, data(b"\0\0\0\0\x07")));
    }
    history.push(known(300, 301, write(1, b"b"), DONE));
    history.push(known(302, 303, READ, data(b"abaa\x07")));
    assert_fine(&history);
    let hole = FileOp::Punch { offset: 0, length: 4 };
    history.push(known(304, 305, hole, DONE));
    history.push(known(306, 307, READ, data(b"aaaa\x07")));
    violation(&history);
}

#[test]
fn of_two_unknown_that_did_the_same_the_right_one_is_left_over() {
    assert_fine(&[
        unknown(1, append(b"a")),
        unknown(1, write(0, b"a")),
        known(2, 3, READ, data(b"a")),
        known(4, 5, READ, data(b"aa")),
    ]);
}

#[test]
fn an_unknown_write_moves_an_unknown_append() {
    let read = FileOp::Read { offset: 8, length: 1 };
    assert_fine(&[unknown(1, append(b"b")), unknown(1, write(4, b"aaaa")), known(2, 3, read, data(b"b"))]);
}

#[test]
fn the_outcome_of_a_later_return_counts() {
    let history = [
        known(1, 9, append(b"a"), FileOutcome::Appended(1)),
        known(2, 3, append(b"b"), FileOutcome::Appended(1)),
        unknown(1, append(b"c")),
    ];
    let violation = violation(&history);
    assert_eq!((&violation.operations[..], violation.culprit), (&[0, 2, 1][..], 0));
}

#[test]
fn an_outcome_that_plays_no_role_is_left_open() {
    let history = [
        known(1, 2, write(0, b"a"), DONE),
        known(3, 99, append(b"b"), FileOutcome::Appended(1)),
        known(3, 5, READ, data(b"ab")),
        known(6, 8, READ, data(b"a")),
    ];
    let violation = violation(&history);
    assert_eq!((&violation.operations[..], violation.culprit), (&[0, 1, 2, 3][..], 3));
    assert!(violation.to_string().contains("3 .. 99       append 62 (whatever came of it)"), "{violation}");
}

#[test]
fn too_many_steps_are_no_verdict() {
    let mut history: Vec<_> = (0..9).map(|n| unknown(1, append(&[n]))).collect();
    history.push(known(2, 3, READ, data(b"z")));
    assert_eq!(check(&Plain(MODEL), &history, 1_000), Verdict::Undecided);
    assert!(matches!(check(&MODEL, &history, 1_000), Verdict::Violation(_)));
}

#[test]
#[should_panic = "operation 0 returned too early"]
fn time_goes_on() {
    check(&MODEL, &[known(2, 1, READ, data(b""))], STEPS_MAX);
}
