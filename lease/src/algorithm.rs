//! What Flease and PaxosLease do differently: how they count time and order ballots.
//!
//! Registers, rounds, votes, giving up, views, quarantine and floors are the engine's and the same for both.

use std::fmt::Debug;

use base::{Span, WallTime};

use crate::{Config, Expiry, Reject, Stamp};

/// Whether a lease may still be valid for its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Valid until this time of the local clock, unless renewed.
    Valid(WallTime),
    /// Expired here, but perhaps not yet at its owner; over everywhere at this time of the local clock.
    Grace(WallTime),
    /// Over for everybody.
    Over,
}

/// The time rules of a lease algorithm. Plain numbers, no state.
pub trait Algorithm: Clone + Debug {
    /// The name on the command line and in the settings' digest: nodes that name it differently refuse each other.
    const NAME: &'static str;

    /// Whether a vote counts only if its acceptor itself sees the cell open. Otherwise the value with the highest
    /// ballot among a majority decides.
    const EVERY_VOTE_IS_OPEN: bool;

    /// Whether points in time travel between nodes, so that their clocks must agree.
    const CLOCKS_AGREE: bool;

    /// The rules under this configuration.
    fn new(config: &Config) -> Self;

    /// How long a restarted node is silent.
    fn quarantine(&self) -> Span;

    /// How long a newcomer to a view is silent.
    fn newcomer_silence(&self) -> Span;

    /// What an acceptor that started at `start` must take for promised.
    fn floor_after(&self, start: WallTime) -> Stamp;

    /// The lowest stamp for a new ballot.
    fn opening(&self, now: WallTime) -> Stamp;

    /// The highest stamp that an honest proposer can use now.
    fn horizon(&self, now: WallTime) -> Stamp;

    /// Whether a message sent at `sent` is too old to be honest.
    fn is_too_old(&self, now: WallTime, sent: WallTime) -> bool;

    /// The expiry to ask for, not before `until` if a lease is to be renewed.
    fn term(&self, now: WallTime, until: Option<WallTime>) -> Expiry;

    /// The acceptor's side: until when, by its own clock, it must respect a lease with this expiry.
    fn respect_until(&self, now: WallTime, expiry: Expiry) -> Result<WallTime, Reject>;

    /// The acceptor's side: how it reports a lease that it respects until `expires`.
    fn report(&self, now: WallTime, expires: WallTime) -> Expiry;

    /// The acceptor's side: whether nobody can hold a lease that it respected until `expires`.
    fn is_over(&self, now: WallTime, expires: WallTime) -> bool;

    /// The proposer's side: whether the reported lease may still be valid for its owner.
    fn standing(&self, now: WallTime, expiry: Expiry) -> Standing;

    /// The proposer's side: until when it owns what it asked for at `asked`.
    fn owned_until(&self, asked: WallTime, expiry: Expiry) -> WallTime;
}
