//! Which requests have taken effect: a retried request is answered, never executed again.
//!
//! The table is part of the object's state. It changes with committed entries only, so it is the same at each replica
//! after the same entry, and it goes wherever the state goes. It is bounded by what the primary proposes: so many clients,
//! so many outcomes, and clients that are over only when there is room to remember that they are. For how long they
//! are remembered stands in the entries, too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{ClientId, WallTime};

use crate::Request;

/// Room for so many outcomes of a client is kept although there are fewer.
const ROOM_KEPT: usize = 4;

/// What is remembered of each client.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sessions<R> {
    clients: BTreeMap<ClientId, Session<R>>,
    /// How many outcomes they have.
    kept: usize,
    expired: BTreeSet<ClientId>,
    /// The same, the oldest first, and since when, by the clocks of their primaries.
    expired_order: VecDeque<(WallTime, ClientId)>,
}

/// What is remembered of a client that is not over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Session<R> {
    /// Answers below this one have arrived.
    settled: u64,
    /// By the numbers of their requests, in order. Not a map: most objects rest, and have one outcome.
    outcomes: VecDeque<(u64, R)>,
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

impl<R> Session<R> {
    /// A client that has the answers below `settled`, and these outcomes. None if one of them is settled, or is there twice.
    pub fn new(settled: u64, outcomes: Vec<(u64, R)>) -> Option<Self> {
        let mut session = Self { settled, outcomes: VecDeque::with_capacity(outcomes.len()) };
        for (number, outcome) in outcomes {
            if number < settled || session.put(number, outcome).is_some() {
                return None;
            }
        }
        Some(session)
    }

    /// Answers below this one have arrived.
    pub const fn settled(&self) -> u64 {
        self.settled
    }

    /// What came of the other requests, by their numbers.
    pub fn outcomes(&self) -> impl Iterator<Item = (u64, &R)> {
        self.outcomes.iter().map(|(number, outcome)| (*number, outcome))
    }

    fn get(&self, number: u64) -> Option<&R> {
        let place = self.outcomes.binary_search_by_key(&number, |&(number, _)| number).ok()?;
        self.outcomes.get(place).map(|(_, outcome)| outcome)
    }

    /// Keeps an outcome. Returns the one that it had.
    fn put(&mut self, number: u64, outcome: R) -> Option<R> {
        match self.outcomes.binary_search_by_key(&number, |&(number, _)| number) {
            Ok(place) => self.outcomes.get_mut(place).map(|(_, kept)| std::mem::replace(kept, outcome)),
            Err(place) => {
                if self.outcomes.is_empty() {
                    self.outcomes.reserve_exact(1);
                }
                self.outcomes.insert(place, (number, outcome));
                None
            }
        }
    }

    /// Forgets the outcomes of which the client has the answers.
    fn settle(&mut self, settled: u64) {
        self.settled = self.settled.max(settled);
        while self.outcomes.front().is_some_and(|&(number, _)| number < settled) {
            self.outcomes.pop_front();
        }
        if self.outcomes.capacity() > ROOM_KEPT.max(4 * self.outcomes.len()) {
            self.outcomes.shrink_to(ROOM_KEPT);
        }
    }
}

impl<R> Sessions<R> {
    /// The table with these clients, and those that are over, in the order in which they were declared so. None if a client is
    /// there twice.
    pub fn new(clients: Vec<(ClientId, Session<R>)>, over: Vec<(WallTime, ClientId)>) -> Option<Self> {
        let count = clients.len();
        let clients: BTreeMap<ClientId, Session<R>> = clients.into_iter().collect();
        let kept = clients.values().map(|session| session.outcomes.len()).sum();
        let expired: BTreeSet<ClientId> = over.iter().map(|&(_, client)| client).collect();
        let is_sound = clients.len() == count
            && expired.len() == over.len()
            && clients.keys().all(|client| !expired.contains(client));
        is_sound.then(|| Self { clients, kept, expired, expired_order: over.into() })
    }

    /// The clients that are not over, by their ids.
    pub fn known(&self) -> impl Iterator<Item = (ClientId, &Session<R>)> {
        self.clients.iter().map(|(&client, session)| (client, session))
    }

    /// The clients that are over and since when, in the order in which they were declared so.
    pub fn over(&self) -> impl Iterator<Item = (WallTime, ClientId)> {
        self.expired_order.iter().copied()
    }
}

impl<R: Clone> Sessions<R> {
    pub(crate) fn find(&self, request: Request) -> Known<'_, R> {
        if self.expired.contains(&request.client) {
            return Known::Expired;
        }
        let Some(session) = self.clients.get(&request.client) else { return Known::New };
        match session.get(request.number) {
            Some(outcome) => Known::Done(outcome),
            None if request.number < session.settled => Known::Settled,
            None => Known::New,
        }
    }

    /// Keeps the outcome of a request that has taken effect, until the client has it.
    pub(crate) fn keep(&mut self, request: Request, outcome: R) {
        let fresh = || Session { settled: 0, outcomes: VecDeque::new() };
        let session = self.clients.entry(request.client).or_insert_with(fresh);
        let before = session.outcomes.len();
        // A client that claims to have the answer to this very request does not have it.
        session.settle(request.settled.min(request.number));
        session.put(request.number, outcome);
        self.kept = self.kept + session.outcomes.len() - before;
    }

    /// The client is over. Who was over before `forget` is not remembered any more.
    pub(crate) fn expire(&mut self, client: ClientId, since: WallTime, forget: WallTime) {
        while let Some(&(_, oldest)) = self.expired_order.front().filter(|&&(since, _)| since < forget) {
            self.expired_order.pop_front();
            self.expired.remove(&oldest);
        }
        self.drop_client(client);
        if self.expired.insert(client) {
            self.expired_order.push_back((since, client));
        }
    }

    /// Only as a planted bug, or as a part of the end of a client.
    pub(crate) fn drop_client(&mut self, client: ClientId) {
        self.kept -= self.clients.remove(&client).map_or(0, |session| session.outcomes.len());
    }

    /// Up to which request the client has the answers.
    pub(crate) fn settled(&self, client: ClientId) -> u64 {
        self.clients.get(&client).map_or(0, |session| session.settled)
    }

    /// Whether anything of the client has taken effect, and it is not over.
    pub(crate) fn knows(&self, client: ClientId) -> bool {
        self.clients.contains_key(&client)
    }

    /// Whether the client is over.
    pub(crate) fn is_over(&self, client: ClientId) -> bool {
        self.expired.contains(&client)
    }

    /// The clients that are known.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ClientId> {
        self.clients.keys().copied()
    }

    /// How many clients are known.
    pub(crate) fn clients(&self) -> usize {
        self.clients.len()
    }

    /// How many outcomes are kept.
    pub(crate) const fn kept(&self) -> usize {
        self.kept
    }

    /// How many clients are remembered to be over.
    pub(crate) fn expired(&self) -> usize {
        self.expired.len()
    }

    /// How many of them will be if those are forgotten who were over before a time.
    pub(crate) fn expired_since(&self, forget: WallTime) -> usize {
        self.expired.len() - self.expired_order.iter().take_while(|&&(since, _)| since < forget).count()
    }
}

impl<R> Default for Sessions<R> {
    fn default() -> Self {
        let (expired, expired_order) = (BTreeSet::new(), VecDeque::new());
        Self { clients: BTreeMap::new(), kept: 0, expired, expired_order }
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
        sessions.keep(request(4, 4), "d");
        assert_eq!((sessions.kept(), sessions.settled(CLIENT)), (1, 4));
    }

    #[test]
    fn a_table_is_put_together_as_it_was() {
        let at = WallTime::from_micros;
        let (other, third) =
            (ClientId { certificate: 9, program: 1 }, ClientId { certificate: 3, program: 3 });
        let mut sessions = Sessions::default();
        sessions.keep(request(4, 1), "d");
        sessions.keep(request(5, 3), "e");
        sessions.expire(other, at(30), at(0));
        sessions.expire(third, at(20), at(0));
        let known = |sessions: &Sessions<&'static str>| {
            let again = |session: &Session<&'static str>| {
                let outcomes = session.outcomes().map(|(number, outcome)| (number, *outcome)).collect();
                Session::new(session.settled(), outcomes).unwrap()
            };
            sessions.known().map(|(client, session)| (client, again(session))).collect::<Vec<_>>()
        };
        let over: Vec<_> = sessions.over().collect();
        assert_eq!(over, [(at(30), other), (at(20), third)], "in the order in which they were declared so");
        assert_eq!(Sessions::new(known(&sessions), over.clone()), Some(sessions.clone()));
        assert_eq!(Session::new(4, vec![(3, "c")]), None, "a settled one");
        assert_eq!(Session::new(1, vec![(3, "c"), (3, "d")]), None, "the same twice");
        let twice = [known(&sessions), known(&sessions)].concat();
        assert_eq!(Sessions::new(twice, over), None, "a client twice");
        let both = vec![(at(1), CLIENT)];
        assert_eq!(Sessions::new(known(&sessions), both), None, "over, and not over");
        assert_eq!(Sessions::new(Vec::new(), vec![(at(1), other), (at(2), other)]), None::<Sessions<&str>>);
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
        let at = WallTime::from_micros;
        sessions.keep(request(1, 1), "a");
        sessions.keep(request(2, 1), "b");
        assert_eq!((sessions.kept(), sessions.clients(), sessions.knows(CLIENT)), (2, 1, true));
        sessions.expire(CLIENT, at(10), at(0));
        sessions.expire(CLIENT, at(20), at(0));
        assert_eq!((sessions.find(request(1, 1)), sessions.kept()), (Known::Expired, 0));
        assert_eq!((sessions.clients(), sessions.expired()), (0, 1));
        let other = ClientId { certificate: 9, program: 1 };
        sessions.expire(other, at(30), at(10));
        assert_eq!(sessions.find(request(1, 1)), Known::Expired, "not before its time");
        assert_eq!((sessions.expired_since(at(10)), sessions.expired_since(at(11))), (2, 1));
        sessions.expire(other, at(40), at(11));
        assert_eq!(
            (sessions.find(request(1, 1)), sessions.expired()),
            (Known::New, 1),
            "the memory is bounded"
        );
    }
}
