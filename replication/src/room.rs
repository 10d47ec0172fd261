//! What a primary has room for: requests, and the clients whose they are.

use base::WallTime;

use crate::config::HOUSE_CLIENTS_MAX;
use crate::replica::Role;
use crate::weight::ENTRY_BYTES;
use crate::{Limit, Machine, ProposeError, Replica, Request};

impl<M: Machine> Replica<M> {
    /// Orders an operation. Its outcome comes as [`Output::Done`](crate::Output::Done), for a request that has taken effect before, too.
    pub fn propose(&mut self, now: WallTime, request: Request, op: M::Op) -> Result<(), ProposeError> {
        self.propose_within(now, request, op, self.config.clients_max)
    }

    /// The same for one of those who look after the object. For [so many](HOUSE_CLIENTS_MAX) of them there is room when there is none for
    /// others: what they do may be what makes room.
    pub fn propose_for_house(
        &mut self,
        now: WallTime,
        request: Request,
        op: M::Op,
    ) -> Result<(), ProposeError> {
        self.propose_within(now, request, op, self.config.clients_max + HOUSE_CLIENTS_MAX)
    }

    /// Whether the outcome of a request can be remembered, and whose it was.
    pub(crate) fn check_client(&mut self, request: Request, clients_max: usize) -> Result<(), ProposeError> {
        let Role::Primary(primary) = &self.role else { return Err(ProposeError::NotPrimary) };
        let (sessions, config) = (&self.state.rest.sessions, &self.config);
        let settled = sessions.settled(request.client).max(request.settled.min(request.number));
        let ahead = request.number.saturating_sub(settled);
        let (shared, share) = (config.outcomes_max / 2, config.outcomes_max / 2 / config.clients_max.max(1));
        let is_full = sessions.kept() + primary.requests.len() >= shared;
        if ahead >= config.unsettled_max || is_full && ahead >= share as u64 {
            let is_far = ahead >= config.unsettled_max;
            self.reached.note(if is_far { Limit::Unsettled } else { Limit::Outcomes });
            return Err(ProposeError::Unsettled);
        }
        let is_known = sessions.knows(request.client) || primary.clients.contains(&request.client);
        let is_crowded = sessions.clients() + primary.clients.len() >= clients_max;
        if !is_known && is_crowded {
            self.reached.note(Limit::Clients);
            return Err(ProposeError::Full);
        }
        Ok(())
    }

    /// Whether an operation may be proposed beside what is not committed yet.
    pub(crate) fn check_room(&mut self, op: &M::Op) -> Result<(), ProposeError> {
        let (bytes, bytes_max) = (M::op_bytes(op), M::OP_BYTES_MAX);
        if bytes > bytes_max {
            return Err(ProposeError::TooLarge { bytes, bytes_max });
        }
        let committed = self.log.committed();
        let count = self.log.tail().seq.0 - committed.0;
        let weight = self.log.bytes_behind(committed) + ENTRY_BYTES + bytes;
        let are_few = count < self.config.uncommitted_max as u64;
        if are_few && weight <= self.config.uncommitted_bytes_max {
            return Ok(());
        }
        self.reached.note(if are_few { Limit::UncommittedBytes } else { Limit::Uncommitted });
        Err(ProposeError::Busy)
    }
}
