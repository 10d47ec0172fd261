//! The search for an order.
//!
//! Operations with an outcome are numbered by their return. A [`Place`] of the search is: all of them below its frontier have
//! taken effect, a few behind it as well, some of the unknown ones, and the state that this gave. The operation at the
//! frontier returns first of those that are left, so exactly those may be next that were called before it returned. From a place the
//! search tries each of these, and then, for each as an *aim*, unknown operations before it.
//!
//! No recursion: a history may be long.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::bits::Bits;
use super::{Moment, Specification};

/// An operation as the search sees it.
pub(super) struct Entry<'a, S: Specification> {
    /// Its place in the history.
    pub(super) id: usize,
    pub(super) called: Moment,
    pub(super) op: &'a S::Op,
    pub(super) returned: Option<(Moment, &'a S::Outcome)>,
}

/// How a search ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// There is an order.
    Order,
    /// There is none, and no attempt got beyond the return of this operation.
    Stuck(usize),
    /// Too many steps.
    GaveUp,
}

/// Whether there is an order. What it costs is taken from `steps`.
pub(super) fn search<S: Specification>(spec: &S, entries: &[Entry<'_, S>], steps: &mut u64) -> Found {
    let mut search = Search::new(spec, entries);
    for pass in PASSES {
        search.restart(pass);
        let share = if search.unknown.is_empty() { 1 } else { pass.share };
        let found = search.run(*steps / share);
        *steps = steps.saturating_sub(search.steps);
        let is_certain = found == Found::Order || !search.is_cut;
        if is_certain && found != Found::GaveUp {
            return found;
        }
    }
    Found::GaveUp
}

/// How far a search goes.
#[derive(Clone, Copy)]
struct Pass {
    /// How many unknown operations in a row may take effect.
    chain_max: usize,
    /// Whether they do so only before operations that cannot be next without them.
    is_lazy: bool,
    /// Which part of the steps that are left it may take: one of so many.
    share: u64,
}

/// Mostly an order is found where unknown operations happen only when they are needed. That there is none is known only
/// without limits.
const PASSES: [Pass; 3] = [
    Pass { chain_max: 1, is_lazy: true, share: 3 },
    Pass { chain_max: 2, is_lazy: true, share: 3 },
    Pass { chain_max: usize::MAX, is_lazy: false, share: 1 },
];

/// A completed operation.
struct Known<'a, S: Specification> {
    id: usize,
    called: Moment,
    returned: Moment,
    op: &'a S::Op,
    outcome: &'a S::Outcome,
    is_query: bool,
    /// The unknown operations that may matter for it.
    mattering: Bits,
}

/// An operation whose outcome nobody knows.
struct Unknown<'a, S: Specification> {
    called: Moment,
    op: &'a S::Op,
    /// The unknown operations that may matter for it.
    mattering: Bits,
}

/// Where the search is.
struct Place<S: Specification> {
    /// All completed operations below this have taken effect.
    frontier: usize,
    /// Completed operations behind the frontier that have taken effect, in order.
    ahead: Vec<usize>,
    /// Unknown operations that have taken effect.
    used: Bits,
    state: S::State,
}

/// A place, and what is left to be tried from there.
struct Node<S: Specification> {
    place: Place<S>,
    /// The next completed operation to take effect, if only unknown ones may come before it.
    aim: Option<usize>,
    /// The unknown operations that took effect since the aim was taken.
    chain: Vec<usize>,
    moves: std::vec::IntoIter<Move>,
}

#[derive(Clone, Copy)]
enum Move {
    /// A completed operation takes effect.
    Take(usize),
    /// Some unknown operations take effect, and then this completed one.
    Aim(usize),
    /// An unknown operation takes effect.
    Risk(usize),
}

/// A place without its unknown operations; the state and what is ahead as a digest.
type Footprint = (Option<usize>, usize, [u64; 2]);

struct Search<'a, S: Specification> {
    spec: &'a S,
    /// By their return.
    known: Vec<Known<'a, S>>,
    /// By their call.
    unknown: Vec<Unknown<'a, S>>,
    /// For each frontier, the completed operations that may be next.
    open: Vec<Vec<usize>>,
    /// For each footprint, the fewest unknown operations with which it was reached.
    seen: HashMap<Footprint, Vec<Bits>>,
    steps: u64,
    /// The highest frontier reached.
    furthest: usize,
    pass: Pass,
    /// Whether the limits of the pass kept it from anything.
    is_cut: bool,
}

impl<'a, S: Specification> Search<'a, S> {
    fn new(spec: &'a S, entries: &[Entry<'a, S>]) -> Self {
        // An unknown query says nothing and does nothing.
        let mut open: Vec<&Entry<'a, S>> =
            entries.iter().filter(|entry| entry.returned.is_none() && !spec.is_query(entry.op)).collect();
        open.sort_by_key(|entry| entry.called);
        let mattering = |op: &S::Op| {
            let mut bits = Bits::none(open.len());
            let those = open.iter().enumerate().filter(|(_, entry)| spec.may_matter(entry.op, op));
            those.for_each(|(n, _)| bits.add(n));
            bits
        };
        let unknown = open
            .iter()
            .map(|entry| Unknown { called: entry.called, op: entry.op, mattering: mattering(entry.op) })
            .collect();
        let mut known: Vec<Known<'a, S>> = entries
            .iter()
            .filter_map(|entry| {
                let (returned, outcome) = entry.returned?;
                let (id, called, op) = (entry.id, entry.called, entry.op);
                let is_query = spec.is_query(op);
                Some(Known { id, called, returned, op, outcome, is_query, mattering: mattering(op) })
            })
            .collect();
        known.sort_by_key(|known| (known.returned, known.id));
        let open = open_at(&known);
        let seen = HashMap::new();
        Self { spec, known, unknown, open, seen, steps: 0, furthest: 0, pass: PASSES[0], is_cut: false }
    }

    /// Forgets what was tried.
    fn restart(&mut self, pass: Pass) {
        self.seen.clear();
        (self.steps, self.furthest, self.pass, self.is_cut) = (0, 0, pass, false);
    }

    fn run(&mut self, steps_max: u64) -> Found {
        let (state, used) = (self.spec.start(), Bits::none(self.unknown.len()));
        let mut path = Vec::new();
        path.extend(self.enter(Place { frontier: 0, ahead: Vec::new(), used, state }));
        while let Some(depth) = path.len().checked_sub(1) {
            let node = &mut path[depth];
            if node.place.frontier == self.known.len() {
                return Found::Order;
            }
            if self.steps >= steps_max {
                return Found::GaveUp;
            }
            let Some(next) = node.moves.next() else {
                path.pop();
                continue;
            };
            let next = match next {
                Move::Take(known) => {
                    let base = depth - path[depth].chain.len();
                    self.take(&path[base].place.state, &path[depth], known)
                }
                Move::Aim(known) => self.aim(node.place.clone(), known),
                Move::Risk(unknown) => self.risk(&path[depth], unknown),
            };
            path.extend(next);
        }
        match self.known.get(self.furthest) {
            Some(culprit) => Found::Stuck(culprit.id),
            None => Found::Order,
        }
    }

    /// A completed operation takes effect. `base` is the state before the node's chain.
    fn take(
        &mut self,
        base: &S::State,
        Node { place, chain, .. }: &Node<S>,
        known: usize,
    ) -> Option<Node<S>> {
        self.steps += 1;
        let Known { op, outcome, .. } = self.known[known];
        let state = self.spec.step(&place.state, op, Some(outcome))?;
        if chain.iter().any(|&unknown| self.can_wait((base, &state), chain, unknown, known)) {
            return None;
        }
        let mut next = Place { state, ..place.clone() };
        next.mark(known);
        self.enter(next)
    }

    /// Whether a link of the chain from one state to another, which ends with `known`, might as well come after that.
    fn can_wait(
        &mut self,
        (from, to): (&S::State, &S::State),
        chain: &[usize],
        late: usize,
        known: usize,
    ) -> bool {
        let mut state = Some(from.clone());
        for &unknown in chain.iter().filter(|&&unknown| unknown != late) {
            self.steps += 1;
            state = state.and_then(|state| self.spec.step(&state, self.unknown[unknown].op, None));
        }
        self.steps += 2;
        let Known { op, outcome, .. } = self.known[known];
        let state = state.and_then(|state| self.spec.step(&state, op, Some(outcome)));
        let state = state.and_then(|state| self.spec.step(&state, self.unknown[late].op, None));
        state.is_some_and(|state| state == *to)
    }

    /// Where only unknown operations may come before `known`.
    fn aim(&mut self, place: Place<S>, known: usize) -> Option<Node<S>> {
        let helpers = self.helpers(&place, known);
        if helpers.is_empty()
            || !self.is_new(Some(known), &place)
            || self.is_hopeless(&place.state, known, &helpers)
        {
            return None;
        }
        if self.pass.is_lazy {
            self.steps += 1;
            let Known { op, outcome, .. } = self.known[known];
            if self.spec.step(&place.state, op, Some(outcome)).is_some() {
                self.is_cut = true;
                return None;
            }
        }
        let moves: Vec<Move> = helpers.into_iter().map(Move::Risk).collect();
        Some(Node { place, aim: Some(known), chain: Vec::new(), moves: moves.into_iter() })
    }

    /// An unknown operation takes effect on the way to the node's aim.
    fn risk(&mut self, node: &Node<S>, unknown: usize) -> Option<Node<S>> {
        let (place, aim) = (&node.place, node.aim?);
        if node.chain.len() >= self.pass.chain_max {
            self.is_cut = true;
            return None;
        }
        self.steps += 1;
        let state = self.spec.step(&place.state, self.unknown[unknown].op, None)?;
        let mut place = Place { state, ..place.clone() };
        place.used.add(unknown);
        let helpers = self.helpers(&place, aim);
        if !self.is_new(Some(aim), &place) || self.is_hopeless(&place.state, aim, &helpers) {
            return None;
        }
        let mut moves = vec![Move::Take(aim)];
        moves.extend(helpers.into_iter().map(Move::Risk));
        let chain = node.chain.iter().copied().chain([unknown]).collect();
        Some(Node { place, aim: Some(aim), chain, moves: moves.into_iter() })
    }

    /// A place with all queries answered that can be, unless nothing new can come of it.
    fn enter(&mut self, mut place: Place<S>) -> Option<Node<S>> {
        self.answer_queries(&mut place);
        self.furthest = self.furthest.max(place.frontier);
        let frontier = place.frontier;
        if frontier == self.known.len() {
            return Some(Node { place, aim: None, chain: Vec::new(), moves: Vec::new().into_iter() });
        }
        if !self.is_new(None, &place) {
            return None;
        }
        let next: Vec<usize> =
            self.open[frontier].iter().copied().filter(|known| !place.ahead.contains(known)).collect();
        // What returns first must come before all that are not open yet, so it has these alone to help it.
        let known = next.iter().filter(|&&known| known != frontier && !self.known[known].is_query);
        let unknown = self.unused(&place).map(|unknown| self.unknown[unknown].op);
        let others: Vec<&S::Op> = known.map(|&known| self.known[known].op).chain(unknown).collect();
        let Known { op, outcome, .. } = self.known[frontier];
        if self.spec.is_hopeless(&place.state, (op, outcome), &others) {
            return None;
        }
        let takes = next.iter().filter(|&&known| !self.known[known].is_query).map(|&known| Move::Take(known));
        let moves: Vec<Move> = takes.chain(next.iter().map(|&known| Move::Aim(known))).collect();
        Some(Node { place, aim: None, chain: Vec::new(), moves: moves.into_iter() })
    }

    fn answer_queries(&mut self, place: &mut Place<S>) {
        while let Some(open) = self.open.get(place.frontier) {
            let before = place.frontier;
            for &known in open {
                let Known { op, outcome, is_query, .. } = self.known[known];
                if is_query && !place.has(known) {
                    self.steps += 1;
                    if self.spec.step(&place.state, op, Some(outcome)).is_some() {
                        place.mark(known);
                    }
                }
            }
            if place.frontier == before {
                break;
            }
        }
    }

    /// The unknown operations that could take effect now.
    fn unused(&self, place: &Place<S>) -> impl Iterator<Item = usize> {
        let until = self.known.get(place.frontier).map_or(Moment(u64::MAX), |known| known.returned);
        let open = self.unknown.partition_point(|unknown| unknown.called <= until);
        (0..open).filter(|&unknown| !place.used.has(unknown))
    }

    /// Those of them that may matter for `aim`, or for one that does.
    fn helpers(&self, place: &Place<S>, aim: usize) -> Vec<usize> {
        let mut rest = Bits::none(self.unknown.len());
        self.unused(place).for_each(|unknown| rest.add(unknown));
        let mut found = Bits::none(self.unknown.len());
        let mut mattering = self.known[aim].mattering.clone();
        loop {
            mattering.keep_all(&rest);
            if mattering.is_empty() {
                return found.iter().collect();
            }
            rest.remove_all(&mattering);
            found.add_all(&mattering);
            let fresh = std::mem::replace(&mut mattering, Bits::none(self.unknown.len()));
            fresh.iter().for_each(|unknown| mattering.add_all(&self.unknown[unknown].mattering));
        }
    }

    fn is_hopeless(&self, state: &S::State, aim: usize, helpers: &[usize]) -> bool {
        let others: Vec<&S::Op> = helpers.iter().map(|&unknown| self.unknown[unknown].op).collect();
        let Known { op, outcome, .. } = self.known[aim];
        self.spec.is_hopeless(state, (op, outcome), &others)
    }

    /// Whether nobody was here before with the same unknown operations or fewer. From now on somebody was.
    fn is_new(&mut self, aim: Option<usize>, place: &Place<S>) -> bool {
        let digest = |salt: u64| {
            let mut hasher = DefaultHasher::new();
            (salt, &place.ahead, &place.state).hash(&mut hasher);
            hasher.finish()
        };
        let seen = self.seen.entry((aim, place.frontier, [digest(1), digest(2)])).or_default();
        if seen.iter().any(|used| used.is_within(&place.used)) {
            return false;
        }
        seen.retain(|used| !place.used.is_within(used));
        seen.push(place.used.clone());
        true
    }
}

impl<S: Specification> Place<S> {
    fn has(&self, known: usize) -> bool {
        known < self.frontier || self.ahead.contains(&known)
    }

    fn mark(&mut self, known: usize) {
        let at = self.ahead.partition_point(|&ahead| ahead < known);
        self.ahead.insert(at, known);
        let done = self.ahead.iter().zip(self.frontier..).take_while(|&(&ahead, next)| ahead == next).count();
        self.ahead.drain(..done);
        self.frontier += done;
    }
}

/// For each frontier, the operations from there on that were called before the one there returned.
fn open_at<S: Specification>(known: &[Known<'_, S>]) -> Vec<Vec<usize>> {
    let mut by_call: Vec<usize> = (0..known.len()).collect();
    by_call.sort_by_key(|&n| known[n].called);
    let mut calls = by_call.into_iter().peekable();
    let mut open: Vec<usize> = Vec::new();
    let mut all = Vec::with_capacity(known.len());
    for (frontier, first) in known.iter().enumerate() {
        while let Some(n) = calls.next_if(|&n| known[n].called <= first.returned) {
            let at = open.partition_point(|&other| other < n);
            open.insert(at, n);
        }
        open.retain(|&n| n >= frontier);
        all.push(open.clone());
    }
    all
}

impl<S: Specification> Clone for Place<S> {
    fn clone(&self) -> Self {
        let Self { frontier, ahead, used, state } = self;
        Self { frontier: *frontier, ahead: ahead.clone(), used: used.clone(), state: state.clone() }
    }
}

impl<S: Specification> Clone for Entry<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Specification> Copy for Entry<'_, S> {}
