//! An order that somebody claims to be one: the order in which the changes took effect. Whether it is takes no search.
//!
//! Between the changes each query has its place where it fits first, and no earlier than the queries that returned before
//! it was called. If there is a place for each of them, this is one.

use std::collections::BTreeSet;

use super::{History, Moment, Operation, Specification};

/// A history, and the changes of it that took effect, in order.
struct Witness<'a, S: Specification> {
    spec: &'a S,
    changes: Vec<&'a Operation<S::Op, S::Outcome>>,
    /// By their return.
    queries: Vec<&'a Operation<S::Op, S::Outcome>>,
    /// The copy after so many changes.
    states: Vec<S::State>,
}

/// Lets these changes of a history, and no others, take effect one after the other; `order` says at which places of the
/// history they stand. Returns the place of something that this does not explain, if there is any. It takes no search;
/// [`check`](super::check) finds other orders.
pub fn misfit<S: Specification>(spec: &S, history: &History<S>, order: &[usize]) -> Option<usize> {
    let is_query = |place: &usize| spec.is_query(&history[*place].op);
    let is_known = |place: &usize| history[*place].returned.is_some();
    let named: BTreeSet<usize> = order.iter().copied().collect();
    let mut forgotten = (0..history.len()).filter(|place| !is_query(place) && !named.contains(place));
    if let Some(place) = forgotten.find(is_known) {
        return Some(place);
    }
    let mut queries: Vec<usize> = (0..history.len()).filter(is_query).filter(is_known).collect();
    queries.sort_by_key(|&query| end(&history[query]));
    let changes = order.iter().map(|&place| &history[place]).collect();
    let called = queries.iter().map(|&query| &history[query]).collect();
    let mut witness = Witness { spec, changes, queries: called, states: vec![spec.start()] };
    match witness.follow() {
        Some(change) => Some(order[change]),
        None => witness.place_queries().map(|query| queries[query]),
    }
}

impl<S: Specification> Witness<'_, S> {
    /// Lets one change after the other take effect, up to one that does not fit.
    fn follow(&mut self) -> Option<usize> {
        let mut latest = Moment::default();
        for (place, change) in self.changes.iter().enumerate() {
            latest = latest.max(change.called);
            let outcome = change.returned.as_ref().map(|(_, outcome)| outcome);
            let before = self.states.last().expect("it begins with one");
            match self.spec.step(before, &change.op, outcome) {
                Some(after) if end(change) >= latest => self.states.push(after),
                _ => return Some(place),
            }
        }
        None
    }

    /// Finds a place for one query after the other, up to one that has none.
    fn place_queries(&self) -> Option<usize> {
        let mut by_call: Vec<usize> = (0..self.queries.len()).collect();
        by_call.sort_by_key(|&query| self.queries[query].called);
        let (first, last) = (self.first_places(), self.last_places());
        let mut places = vec![0; self.queries.len()];
        let (mut returned, mut least) = (0, 0);
        for query in by_call {
            let operation = self.queries[query];
            while end(self.queries[returned]) < operation.called {
                least = least.max(places[returned]);
                returned += 1;
            }
            let at =
                |places: &[(Moment, usize)], moment| places.partition_point(|&(other, _)| other < moment);
            let from =
                at(&first, operation.called).checked_sub(1).map_or(0, |place| first[place].1).max(least);
            let behind = at(&last, Moment(end(operation).0.saturating_add(1)));
            let upto = last.get(behind).map_or(self.changes.len(), |&(_, upto)| upto);
            match (from..=upto).find(|&place| self.fits(operation, place)) {
                Some(place) => places[query] = place,
                None => return Some(query),
            }
        }
        None
    }

    fn fits(&self, query: &Operation<S::Op, S::Outcome>, place: usize) -> bool {
        let outcome = query.returned.as_ref().map(|(_, outcome)| outcome);
        self.spec.step(&self.states[place], &query.op, outcome).is_some()
    }

    /// Behind how many changes a query stands at least that was called after a moment, by that moment.
    fn first_places(&self) -> Vec<(Moment, usize)> {
        let ends = self.changes.iter().enumerate().map(|(n, change)| (end(change), n + 1));
        let mut ends: Vec<(Moment, usize)> = ends.collect();
        ends.sort_unstable();
        let mut most = 0;
        for (_, place) in &mut ends {
            most = most.max(*place);
            *place = most;
        }
        ends
    }

    /// Behind how many changes a query stands at most that returned before a moment, by that moment.
    fn last_places(&self) -> Vec<(Moment, usize)> {
        let calls = self.changes.iter().enumerate().map(|(n, change)| (change.called, n));
        let mut calls: Vec<(Moment, usize)> = calls.collect();
        calls.sort_unstable();
        let mut least = usize::MAX;
        for (_, place) in calls.iter_mut().rev() {
            least = least.min(*place);
            *place = least;
        }
        calls
    }
}

/// When it returned, or never.
fn end<O, R>(operation: &Operation<O, R>) -> Moment {
    operation.returned.as_ref().map_or(Moment(u64::MAX), |(at, _)| *at)
}
