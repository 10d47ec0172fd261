//! Since when clients could come to this node.
//!
//! A client that lives keeps a session with each daemon that it can reach. That it has none here says something about the client only if this node
//! could be reached: after it has begun, was frozen, or was cut off from most of its peers, everybody has to come first.

use base::{Span, WallTime};

/// Since when this node has been there without a break, as far as it can tell by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    since: WallTime,
    /// When time passed here last.
    turned: WallTime,
    /// It does so at least this often, if nothing freezes the node.
    turns: Span,
}

impl Reach {
    pub(crate) const fn begin(now: WallTime, turns: Span) -> Self {
        Self { since: now, turned: now, turns }
    }

    /// Since when that is.
    pub(crate) fn since(&self, now: WallTime) -> WallTime {
        if now.since(self.turned) > self.turns { now } else { self.since }
    }

    /// Time passes.
    pub(crate) fn turn(&mut self, now: WallTime) {
        (self.since, self.turned) = (self.since(now), now);
    }

    /// Most of the peers are there again that were not.
    pub(crate) fn begin_again(&mut self, now: WallTime) {
        (self.since, self.turned) = (now, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> WallTime {
        WallTime::from_micros(ms * 1_000)
    }

    #[test]
    fn who_was_frozen_begins_again_whatever_it_looks_at_first() {
        let mut reach = Reach::begin(at(0), Span::from_millis(400));
        (1..=5).for_each(|turn| reach.turn(at(turn * 400)));
        assert_eq!(reach.since(at(2_400)), at(0));
        assert_eq!(reach.since(at(2_401)), at(2_401));
        reach.turn(at(2_500));
        assert_eq!(reach.since(at(2_600)), at(2_500));
        reach.begin_again(at(2_700));
        assert_eq!(reach.since(at(2_800)), at(2_700));
    }
}
