//! Which clients could have come to this node.
//!
//! A client that lives keeps a session with each daemon that it can reach. That it has none here says something about the client only if it has
//! had one, or could: after this node has begun, was frozen, or was cut off from most of its peers, everybody has to come first.

use std::collections::BTreeSet;

use base::{ClientId, Span, WallTime};

/// Since when this node has been there without a break, as far as it can tell by itself, and who has come since.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    since: WallTime,
    /// When time passed here last.
    turned: WallTime,
    /// It does so at least this often, if nothing freezes the node.
    turns: Span,
    /// Everybody has so long to come.
    within: Span,
    /// Who has, within that time.
    came: BTreeSet<ClientId>,
}

impl Reach {
    pub(crate) const fn begin(now: WallTime, turns: Span, within: Span) -> Self {
        Self { since: now, turned: now, turns, within, came: BTreeSet::new() }
    }

    /// Until when a client may be about to come that could not before.
    pub(crate) fn comes_until(&self, now: WallTime, client: ClientId) -> Option<WallTime> {
        let until = if self.was_frozen(now) {
            Some(now + self.within)
        } else {
            (!self.came.contains(&client)).then_some(self.since + self.within)
        };
        until.filter(|until| *until > now)
    }

    /// Time passes.
    pub(crate) fn turn(&mut self, now: WallTime) {
        if self.was_frozen(now) {
            return self.begin_again(now, &BTreeSet::new());
        }
        self.turned = now;
        if now >= self.since + self.within {
            self.came.clear();
        }
    }

    /// A client has come.
    pub(crate) fn hear(&mut self, now: WallTime, client: ClientId) {
        self.turn(now);
        if now < self.since + self.within {
            self.came.insert(client);
        }
    }

    /// Most of the peers are there again that were not. Who has come has not gone meanwhile, if it has a session still, unless all of that was before
    /// this node was frozen.
    pub(crate) fn begin_again(&mut self, now: WallTime, here: &BTreeSet<ClientId>) {
        if self.was_frozen(now) {
            self.came.clear();
        }
        self.came.retain(|client| here.contains(client));
        (self.since, self.turned) = (now, now);
    }

    fn was_frozen(&self, now: WallTime) -> bool {
        now.since(self.turned) > self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Span = Span::from_millis(1_000);

    fn at(ms: u64) -> WallTime {
        WallTime::from_micros(ms * 1_000)
    }

    #[test]
    fn who_has_not_come_may_until_that_takes_too_long() {
        let mut reach = Reach::begin(at(0), Span::from_millis(400), WITHIN);
        let [here, there] = [1, 2].map(|program| ClientId { certificate: 1, program });
        reach.hear(at(300), here);
        reach.turn(at(600));
        assert_eq!(
            (reach.comes_until(at(700), here), reach.comes_until(at(700), there)),
            (None, Some(at(1_000)))
        );
        reach.turn(at(1_000));
        assert_eq!(reach.comes_until(at(1_000), there), None);
    }

    #[test]
    fn who_was_frozen_begins_again_whatever_it_looks_at_first() {
        let mut reach = Reach::begin(at(0), Span::from_millis(400), WITHIN);
        let client = ClientId { certificate: 1, program: 1 };
        reach.hear(at(100), client);
        (1..=5).for_each(|turn| reach.turn(at(turn * 400)));
        assert_eq!(reach.comes_until(at(2_400), client), None);
        assert_eq!(reach.comes_until(at(2_401), client), Some(at(3_401)));
        reach.turn(at(2_500));
        assert_eq!(reach.comes_until(at(2_600), client), Some(at(3_500)));
        reach.begin_again(at(2_700), &BTreeSet::from([client]));
        assert_eq!(reach.comes_until(at(2_800), client), Some(at(3_700)), "its session is from before");
    }

    #[test]
    fn who_came_before_the_peers_need_not_come_again() {
        let mut reach = Reach::begin(at(0), Span::from_millis(400), WITHIN);
        let [here, gone, new] = [1, 2, 3].map(|program| ClientId { certificate: 1, program });
        reach.hear(at(100), here);
        reach.hear(at(100), gone);
        reach.begin_again(at(200), &BTreeSet::from([here, new]));
        let waits =
            |reach: &Reach| [here, gone, new].map(|client| reach.comes_until(at(300), client).is_some());
        assert_eq!(waits(&reach), [false, true, true]);
        reach.begin_again(at(700), &BTreeSet::from([here]));
        assert_eq!(reach.comes_until(at(800), here), Some(at(1_700)), "frozen, and not noticed yet");
    }
}
