//! What the lease protocol costs by itself: three nodes in one process, encoded messages, one core.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use base::Span;
use lease::Algorithm;
use serde::Serialize;

use crate::heap::live_bytes;
use crate::stats::{median, middle, per_second};
use crate::trio::Trio;

const BATCH: u64 = 50_000;
const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;

/// The bars that `--check` enforces.
const ACQUIRED_PER_SECOND_MIN: f64 = 500_000.0;
const BYTES_PER_IDLE_REGISTER_MAX: f64 = 100.0;
const COST_RATIO_MAX: f64 = 2.0;

/// The figures; units stand at the end of each key.
#[derive(Clone, Debug, Serialize)]
pub struct LeaseMemory {
    /// Which algorithm.
    pub algorithm: &'static str,
    /// Rounds behind each median.
    pub rounds: u32,
    /// Leases acquired in a second, in batches of 50,000, each voted for by three members.
    pub acquired_per_second: f64,
    /// Leases renewed in a second, with 50,000 held.
    pub renewed_per_second: f64,
    /// Heap of a node that only votes, for each of a million live registers, index included.
    pub bytes_per_idle_register: f64,
    /// Heap of the node that owns a million leases, for each of them, its registers included.
    pub bytes_per_owned_lease: f64,
    /// Time for one acquisition while there are up to 1,000 cells.
    pub cost_at_1k_cells_ns: f64,
    /// Time for one acquisition while there are up to 1,000,000 cells.
    pub cost_at_1m_cells_ns: f64,
    /// The second over the first.
    pub cost_ratio: f64,
    /// Leases denied or lost, and frames that could not be read. Must be zero.
    pub failed: u64,
}

impl LeaseMemory {
    /// The bars that are not met.
    pub fn shortfalls(&self) -> Vec<String> {
        let acquired = self.acquired_per_second;
        let bytes = self.bytes_per_idle_register;
        let ratio = self.cost_ratio;
        let missed = [
            (acquired < ACQUIRED_PER_SECOND_MIN).then(|| {
                format!("acquired_per_second is {acquired}, at least {ACQUIRED_PER_SECOND_MIN} is asked")
            }),
            (bytes > BYTES_PER_IDLE_REGISTER_MAX).then(|| {
                format!("bytes_per_idle_register is {bytes}, at most {BYTES_PER_IDLE_REGISTER_MAX} is asked")
            }),
            (ratio > COST_RATIO_MAX)
                .then(|| format!("cost_ratio is {ratio}, at most {COST_RATIO_MAX} is asked")),
            (self.failed > 0).then(|| format!("failed is {}, none may fail", self.failed)),
        ];
        missed.into_iter().flatten().collect()
    }
}

/// Measures. Needs [`CountingAllocator`](crate::heap::CountingAllocator) as the global allocator for the heap
/// figures; without it they are zero.
pub fn run<A: Algorithm>(rounds: NonZeroU32, mut progress: impl FnMut(&'static str)) -> LeaseMemory {
    let mut failed = 0;
    let mut acquired = Vec::new();
    let mut renewed = Vec::new();
    let mut costs = Vec::new();
    for _ in 0..rounds.get() {
        progress("batches");
        acquired.push(acquire_batch::<A>(&mut failed));
        renewed.push(renew_batch::<A>(&mut failed));
        progress("scale");
        // Side by side, so that a slow moment of the machine hits both.
        costs.push((cost_at_few::<A>(&mut failed), cost_at_many::<A>(&mut failed)));
    }
    progress("heap");
    let (bytes_per_idle_register, bytes_per_owned_lease) = heap::<A>(&mut failed);
    LeaseMemory {
        algorithm: A::NAME,
        rounds: rounds.get(),
        acquired_per_second: median(acquired),
        renewed_per_second: median(renewed),
        bytes_per_idle_register,
        bytes_per_owned_lease,
        cost_at_1k_cells_ns: median(costs.iter().map(|&(few, _)| few)),
        cost_at_1m_cells_ns: median(costs.iter().map(|&(_, many)| many)),
        cost_ratio: middle(costs.iter().map(|&(few, many)| many / few)),
        failed,
    }
}

/// Steps that [`run`] reports for this many rounds.
pub const fn steps(rounds: NonZeroU32) -> u64 {
    2 * rounds.get() as u64 + 1
}

fn acquire_batch<A: Algorithm>(failed: &mut u64) -> f64 {
    let mut trio = Trio::<A>::new();
    let begun = Instant::now();
    trio.acquire(0, BATCH);
    let elapsed = begun.elapsed();
    *failed += trio.outcome.failed + (BATCH - trio.outcome.acquired);
    per_second(trio.outcome.acquired, elapsed)
}

fn renew_batch<A: Algorithm>(failed: &mut u64) -> f64 {
    let mut trio = Trio::<A>::new();
    trio.acquire(0, BATCH);
    // Every lease is renewed every 617 to 667 ms.
    let begun = Instant::now();
    trio.pass(Span::from_millis(2_100));
    let elapsed = begun.elapsed();
    *failed += trio.outcome.failed + (3 * BATCH).saturating_sub(trio.outcome.renewed);
    per_second(trio.outcome.renewed, elapsed)
}

fn cost_at_few<A: Algorithm>(failed: &mut u64) -> f64 {
    let repeats = 100;
    let mut elapsed = Duration::ZERO;
    for _ in 0..repeats {
        let mut trio = Trio::<A>::new();
        let begun = Instant::now();
        trio.acquire(0, FEW);
        elapsed += begun.elapsed();
        *failed += FEW - trio.outcome.acquired;
    }
    nanos_each(elapsed, FEW * repeats)
}

fn cost_at_many<A: Algorithm>(failed: &mut u64) -> f64 {
    let mut trio = Trio::<A>::new();
    let begun = Instant::now();
    trio.acquire(0, MANY);
    let elapsed = begun.elapsed();
    *failed += MANY - trio.outcome.acquired;
    nanos_each(elapsed, MANY)
}

/// What a node that only votes and a node that owns everything give back when they go.
fn heap<A: Algorithm>(failed: &mut u64) -> (f64, f64) {
    let mut trio = Trio::<A>::new();
    trio.acquire_by_first(MANY);
    *failed += MANY - trio.outcome.acquired;
    let registers = trio.registers();
    let voter = bytes_freed(trio.take_last());
    drop(trio.take_last());
    let owner = bytes_freed(trio.take_last());
    (voter / count_f64(registers as u64), owner / count_f64(MANY))
}

fn bytes_freed<T>(subject: T) -> f64 {
    let before = live_bytes();
    drop(subject);
    count_f64((before - live_bytes()).unsigned_abs())
}

fn nanos_each(elapsed: Duration, count: u64) -> f64 {
    elapsed.as_secs_f64() * 1e9 / count_f64(count)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
const fn count_f64(count: u64) -> f64 {
    count as f64
}
