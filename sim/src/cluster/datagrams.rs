//! What daemons send by itself: it may be lost, repeated and overtaken.

use lease::{Algorithm, Exchange};

use super::directory::Birth;
use super::world::{Datagram, Input, Task, World};
use crate::Violation;

/// Times are exchanged this often while an exchange is fresh.
const EXCHANGES_PER_FRESH: u64 = 3;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn send_datagram(&mut self, from: usize, to: usize, datagram: Datagram) {
        let [first, second] = self.network.route(self.now, (from, to), &mut self.summary.faults);
        for at in [first, second].into_iter().flatten() {
            // Whoever runs there by then may get it.
            let life = self.running(to).life;
            self.queue.push(at, Task::To(to, life, Box::new(Input::Datagram(datagram.clone()))));
        }
    }

    pub(super) fn take_datagram(&mut self, daemon: usize, datagram: Datagram) -> Result<(), Violation> {
        let (Datagram::Lease(from, _) | Datagram::Ask { from, .. } | Datagram::Answer { from, .. }) =
            &datagram;
        if !self.may_talk(from, &self.birth_of(daemon)) {
            return Ok(());
        }
        match datagram {
            Datagram::Lease(Birth { process: from, .. }, batch) => {
                if self.trace.is_on() {
                    for message in &batch.messages {
                        let what = (message.ballot, &message.body);
                        self.note(Some(message.cell), format_args!("{from:?} -> n{daemon}: {what:?}"));
                    }
                }
                self.call(daemon, |shard, now| shard.handle_lease_batch(now, from, &batch))
            }
            Datagram::Ask { from, asked } => {
                let at = self.daemons[daemon].clock.reading(self.now);
                let answer = Datagram::Answer { from: self.birth_of(daemon), asked, at };
                self.send_datagram(daemon, from.process.node.0 as usize, answer);
                Ok(())
            }
            Datagram::Answer { from, asked, at } => {
                let peer = from.process.node;
                self.call(daemon, |shard, done| {
                    let exchange = Exchange { asked, received: at, answered: at, done };
                    shard.handle_exchange(done, peer, exchange);
                })
            }
        }
    }

    pub(super) fn send_heartbeats(&mut self, daemon: usize) {
        let asked = self.daemons[daemon].clock.reading(self.now);
        for other in (0..self.daemons.len()).filter(|&other| other != daemon) {
            self.send_datagram(daemon, other, Datagram::Ask { from: self.birth_of(daemon), asked });
        }
        let next = self.now + self.plan.shard.clock_fresh / EXCHANGES_PER_FRESH;
        self.push_input(next, daemon, Input::Heartbeat);
    }
}
