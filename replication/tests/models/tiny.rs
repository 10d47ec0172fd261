//! The smallest object that shows what can go wrong: two cells, each with the list of what was ever done to it.

use base::ClientId;
use replication::{Machine, Position, Request};

/// How many operations there are at most. Operation `n` changes cell `n % 2`.
pub(crate) const OPS_MAX: usize = 3;

/// Two lists of operations, with the entries that changed them last.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Tiny {
    cells: [(Position, u32); 2],
}

/// Operations in the order in which they were executed, a digit each.
pub(crate) type Lists = [u32; 2];

const BASE: u32 = 8;

impl Machine for Tiny {
    type Op = u8;
    /// What was done to the cell before.
    type Outcome = u32;
    type Query = ();
    type Answer = Lists;
    type Key = u8;
    type Part = u32;

    const OP_BYTES_MAX: u64 = 1;
    const OUTCOME_BYTES_MAX: u64 = 4;
    const PART_BYTES_MAX: u64 = 4;

    fn op_bytes(_: &u8) -> u64 {
        1
    }

    fn part_bytes(_: &u32) -> u64 {
        4
    }

    fn apply(&mut self, at: Position, &op: &u8) -> u32 {
        let cell = &mut self.cells[usize::from(op % 2)];
        let before = cell.1;
        *cell = (at, before * BASE + u32::from(op) + 1);
        before
    }

    fn answer(&self, (): &()) -> Lists {
        self.cells.map(|(_, list)| list)
    }

    fn overlaps(&self, _: &u8, (): &()) -> bool {
        true
    }

    fn versions(&self, after: Option<&u8>, parts_max: usize) -> Vec<(u8, Position)> {
        let there = (0..).zip(&self.cells).filter(|(_, (at, _))| *at != Position::START);
        let behind = there.filter(|(key, _)| after.is_none_or(|after| key > after));
        behind.map(|(key, &(at, _))| (key, at)).take(parts_max).collect()
    }

    fn version(&self, &key: &u8) -> Option<Position> {
        let (at, _) = self.cells[usize::from(key)];
        (at != Position::START).then_some(at)
    }

    fn part(&self, &key: &u8) -> Option<u32> {
        let (at, list) = self.cells[usize::from(key)];
        (at != Position::START).then_some(list)
    }

    fn place(&mut self, key: u8, part: Option<(Position, u32)>) {
        self.cells[usize::from(key)] = part.unwrap_or_default();
    }
}

/// The request for an operation: the same whoever is asked.
pub(crate) fn request(op: u8) -> Request {
    let client = ClientId { certificate: 1, program: u64::from(op) };
    Request { client, number: 1, settled: 1 }
}

/// Which operations are in these lists, a bit each, and whether any is there twice.
pub(crate) fn executed(lists: Lists) -> (u8, bool) {
    let (mut ops, mut twice) = (0, false);
    for mut list in lists {
        while list > 0 {
            let bit = 1 << (list % BASE - 1);
            twice |= ops & bit != 0;
            ops |= bit;
            list /= BASE;
        }
    }
    (ops, twice)
}
