//! What a restarted voter forgot must be over before it votes again.

use std::sync::Arc;

use base::{Members, NodeId, ObjectId, Process, Span, View, ViewId, WallTime};
use lease::{Config, Flease, Start};

const CELL: ObjectId = ObjectId::new(1, 1);

fn at(ms: u64) -> WallTime {
    WallTime::from_micros(1_000_000_000_000 + ms * 1000)
}

/// Lets `from` speak to `to` at their own readings of the time, and back.
fn converse(from: (&mut Flease, WallTime), to: (&mut Flease, WallTime), view: &View) {
    let ((proposer, proposer_now), (voter, voter_now)) = (from, to);
    for _round in 0..2 {
        while let Some((peer, batch)) = proposer.poll_transmit(proposer_now) {
            if peer == voter.me().node {
                voter.handle_batch(voter_now, &batch, view);
            }
        }
        while let Some((_, batch)) = voter.poll_transmit(voter_now) {
            proposer.handle_batch(proposer_now, &batch, view);
        }
    }
}

/// A voter that is ε behind the owner restarts, and is ε ahead of it when its silence ends: on its own clock the
/// lease was to last `t_max + ε`, and the owner's clock took another ε to get there. Found by a model.
#[test]
fn a_voter_that_was_slow_and_is_fast_does_not_forget_a_valid_lease() {
    let config = Arc::new(Config::default());
    let epsilon = config.epsilon.as_micros() / 1000;
    let view = View { id: ViewId::default(), members: Members::new((0..3).map(NodeId)).unwrap() };
    let start = |node, incarnation, start, now| {
        Flease::new(Arc::clone(&config), Process::new(node, incarnation), start, now, 1).unwrap()
    };
    let mut owner = start(0, 1, Start::Fresh, at(0));
    let mut voter = start(1, 1, Start::Fresh, at(0));
    let mut rival = start(2, 1, Start::Fresh, at(0));

    // The owner's clock shows 1000 ms, the voter's ε less.
    owner.acquire(at(1000), CELL, &view).unwrap();
    converse((&mut owner, at(1000)), (&mut voter, at(1000 - epsilon)), &view);
    let until = owner.valid_until(at(1000), CELL).unwrap();
    voter = start(1, 2, Start::Again, at(1000 - epsilon));

    // The voter's silence is over on its clock; the owner's shows ε less by now.
    let voter_now = voter.silent_until();
    let owner_now = voter_now - Span::from_millis(epsilon);
    rival.acquire(owner_now, CELL, &view).unwrap();
    converse((&mut rival, owner_now), (&mut voter, voter_now), &view);

    assert!(owner_now >= until, "a voter speaks at {voter_now:?}, but its vote binds until {until:?}");
    assert!(!(owner.holds(owner_now, CELL) && rival.holds(owner_now, CELL)), "two owners");
}
