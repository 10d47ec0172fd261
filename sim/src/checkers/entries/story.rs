//! What is told of entries that should be somewhere and are not, or should not and are.

use base::{Epoch, NodeId};
use replication::{Body, Position};

use super::{Files, Seen, has};
use crate::TrueTime;
use crate::checkers::evidence::{Fact, Machines};

impl Files {
    /// Who had an entry first, what it is, and who ever had it.
    pub(super) fn appearance(&self, at: Position) -> Option<Fact> {
        let known = self.known.get(&at)?;
        let (node, since) = known.first;
        let holders: Vec<String> = known.holders.iter().map(|node| format!("n{node}")).collect();
        let (before, body) = (known.before, &known.entry.body);
        let what = format!("{node:?} has {at:?} behind {before:?}, had by {}: {body:?}", holders.join(", "));
        Some(Fact::new(since, known.holders, what))
    }

    /// What became of an entry: who asked for it, who had it, who knew it to be committed, and what was told of it.
    pub(super) fn story_of(&self, at: Position) -> Vec<Fact> {
        let request = self.known.get(&at).and_then(|known| match known.entry.body {
            Body::Op { request, .. } => Some((request.client, request.number)),
            _ => None,
        });
        let call = |(client, number)| {
            let &since = self.called.get(&(client, number))?;
            Some(Fact::new(since, client, format!("{client:?} asks for its change {number}")))
        };
        // A request that stands there more than once takes effect once.
        let again = self.known.values().filter(|known| match known.entry.body {
            Body::Op { request: other, .. } => {
                known.entry.at != at && Some((other.client, other.number)) == request
            }
            _ => false,
        });
        let seen =
            self.histories.values().filter_map(|history| history.get(&at.seq)).find(|seen| seen.at == at);
        let covering =
            self.durable.iter().filter(|(upto, _)| upto.seq >= at.seq).min_by_key(|(_, since)| **since);
        let mut story = Vec::new();
        story.extend(request.and_then(call));
        story.extend(self.appearance(at));
        story.extend(again.filter_map(|known| self.appearance(known.entry.at)));
        story.extend(seen.map(Seen::tell));
        story.extend(self.written.get(&at).map(|&since| {
            Fact::new(since, Machines::default(), format!("a client is told that {at:?} is written"))
        }));
        story.extend(covering.map(|(&upto, &since)| told_durable(since, upto)));
        story
    }

    /// The same of an entry that is gone, and what stands there instead.
    pub(super) fn loss_of(&self, now: TrueTime, gone: Position) -> Vec<Fact> {
        let mut story = self.story_of(gone);
        let latest = self.histories.last_key_value().map(|(_, history)| history);
        match latest.and_then(|history| history.get(&gone.seq)).filter(|seen| seen.at != gone) {
            Some(instead) => {
                story.extend(self.appearance(instead.at));
                story.push(instead.tell());
            }
            None => {
                let last = latest.and_then(|history| history.last_key_value()).map(|(_, seen)| seen);
                story.extend(last.filter(|last| last.at.seq < gone.seq).map(Seen::tell));
                story.push(Fact::new(
                    now,
                    Machines::default(),
                    format!("nothing is committed where {gone:?} should be"),
                ));
            }
        }
        story
    }

    /// The barrier of the generation that an entry is in.
    pub(super) fn beginning_of(&self, at: Position) -> Option<Fact> {
        let generation = self.known.get(&at)?.generation;
        let of_it = self.way_to(at).take_while(|known| known.generation == generation);
        self.appearance(of_it.last()?.entry.at)
    }

    /// The last entry that was committed in a generation.
    pub(super) fn last_of(&self, generation: Epoch) -> Option<Fact> {
        let (_, seen) = self.histories.get(&generation)?.last_key_value()?;
        Some(seen.tell())
    }

    /// The end of a node's log, and when that came.
    pub(super) fn log_of(&self, node: NodeId) -> Option<Fact> {
        let (_, tail) = self.logs.get(&node)?.last_key_value()?;
        let (_, since) = self.known.get(tail)?.first;
        Some(Fact::new(
            since,
            node,
            format!("{tail:?}, with which the log of {node:?} ends, is somewhere first"),
        ))
    }

    /// What a node has where an entry should be.
    pub(super) fn log_at(&self, now: TrueTime, node: NodeId, at: Position) -> Option<Fact> {
        let log = self.logs.get(&node)?;
        let what = match log.get(&at.seq) {
            _ if has(log, at) => format!("{node:?} has it"),
            Some(other) => format!("{node:?} has {other:?} instead"),
            None => format!("{node:?} has nothing there"),
        };
        Some(Fact::new(now, node, what))
    }
}

impl Seen {
    /// That it is known to be committed.
    pub(super) fn tell(&self) -> Fact {
        let Self { at, by, since } = *self;
        Fact::new(since, by, format!("{by:?} knows {at:?} to be committed"))
    }
}

pub(super) fn told_durable(since: TrueTime, upto: Position) -> Fact {
    Fact::new(
        since,
        Machines::default(),
        format!("a client is told that everything up to {upto:?} is durable"),
    )
}
