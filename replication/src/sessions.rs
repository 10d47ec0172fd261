//! Which requests have taken effect: a retried request is answered, never executed again.
//!
//! The table is part of the object's state. It changes with committed entries only, so it is the same at each replica
//! after the same entry, and it goes wherever the state goes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::ClientId;

use crate::Request;

/// How many clients that are over are remembered. A daemon refuses the sessions of such a client long before as many
/// others have come and gone.
const EXPIRED_MAX: usize = 1 << 16;

/// What is remembered of each client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Sessions<R> {
    clients: BTreeMap<ClientId, Session<R>>,
    expired: BTreeSet<ClientId>,
    /// The same, the oldest first.
    expired_order: VecDeque<ClientId>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Session<R> {
    /// Answers below this one have arrived.
    settled: u64,
    outcomes: BTreeMap<u64, R>,
}

/// What a request is, to the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known<'a, R> {
    /// It has not taken effect.
    New,
    /// It has, with this outcome.
    Done(&'a R),
    /// It has, and its client said that it has the answer.
    Settled,
    /// Its client is over.
    Expired,
}

impl<R: Clone> Sessions<R> {
    pub(crate) fn find(&self, request: Request) -> Known<'_, R> {
        if self.expired.contains(&request.client) {
            return Known::Expired;
        }
        let Some(session) = self.clients.get(&request.client) else { return Known::New };
        match session.outcomes.get(&request.number) {
            Some(outcome) => Known::Done(outcome),
            None if request.number < session.settled => Known::Settled,
            None => Known::New,
        }
    }

    /// Keeps the outcome of a request that has taken effect, until the client has it.
    pub(crate) fn keep(&mut self, request: Request, outcome: R) {
        let fresh = || Session { settled: 0, outcomes: BTreeMap::new() };
        let session = self.clients.entry(request.client).or_insert_with(fresh);
        session.outcomes.insert(request.number, outcome);
        // A client that claims to have the answer to this very request does not have it.
        let settled = request.settled.min(request.number);
        if settled > session.settled {
            session.settled = settled;
            session.outcomes = session.outcomes.split_off(&settled);
        }
    }

    /// The client is over.
    pub(crate) fn expire(&mut self, client: ClientId) {
        self.clients.remove(&client);
        if self.expired.insert(client) {
            self.expired_order.push_back(client);
        }
        if self.expired_order.len() > EXPIRED_MAX
            && let Some(oldest) = self.expired_order.pop_front()
        {
            self.expired.remove(&oldest);
        }
    }

    /// How many outcomes are kept.
    pub(crate) fn kept(&self) -> usize {
        self.clients.values().map(|session| session.outcomes.len()).sum()
    }
}

impl<R> Default for Sessions<R> {
    fn default() -> Self {
        Self { clients: BTreeMap::new(), expired: BTreeSet::new(), expired_order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId { certificate: 1, program: 2 };

    const fn request(number: u64, settled: u64) -> Request {
        Request { client: CLIENT, number, settled }
    }

    #[test]
    fn an_outcome_is_kept_until_the_client_has_it() {
        let mut sessions = Sessions::default();
        assert_eq!(sessions.find(request(1, 1)), Known::New);
        sessions.keep(request(1, 1), "a");
        sessions.keep(request(3, 1), "c");
        assert_eq!(sessions.find(request(1, 1)), Known::Done(&"a"));
        assert_eq!(sessions.find(request(2, 1)), Known::New, "requests may overtake each other");
        sessions.keep(request(2, 2), "b");
        assert_eq!(sessions.find(request(1, 1)), Known::Settled);
        assert_eq!((sessions.find(request(3, 1)), sessions.kept()), (Known::Done(&"c"), 2));
    }

    #[test]
    fn nobody_settles_what_has_not_been_answered() {
        let mut sessions = Sessions::default();
        sessions.keep(request(5, u64::MAX), "e");
        assert_eq!(sessions.find(request(5, 1)), Known::Done(&"e"));
    }

    #[test]
    fn a_client_that_is_over_stays_over() {
        let mut sessions = Sessions::default();
        sessions.keep(request(1, 1), "a");
        sessions.expire(CLIENT);
        sessions.expire(CLIENT);
        assert_eq!((sessions.find(request(1, 1)), sessions.kept()), (Known::Expired, 0));
        for program in 0..EXPIRED_MAX as u64 {
            sessions.expire(ClientId { certificate: 9, program });
        }
        assert_eq!(sessions.find(request(1, 1)), Known::New, "the memory is bounded");
    }
}
