//! The load: many requests in flight over several connections, as fast as they go or at a given rate.
//!
//! It is the same for every rival. All of it runs on one thread; how much of a processor that takes is part of the
//! result, because a driver that is busy all the time would measure itself.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

/// A request that did not give its leases, in the rival's own words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct RequestError(pub(crate) String);

/// Connections to a running rival.
pub(crate) trait Rival: 'static {
    /// How many connections there are.
    fn connections(&self) -> usize;

    /// Acquires the leases of these numbers, which nobody has had before, in one step of the protocol.
    async fn acquire(&self, connection: usize, leases: Range<u64>) -> Result<(), RequestError>;

    /// How many leases the rival itself says are held.
    async fn held(&self) -> Result<u64, RequestError>;
}

/// What to ask for, and how much of it at a time.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The numbers of the leases.
    pub(crate) leases: Range<u64>,
    pub(crate) leases_per_request: u64,
    pub(crate) in_flight: usize,
    /// No request starts later than this; the ones under way are waited for.
    pub(crate) limit: Duration,
    /// Leases per second to offer; without it every answer is followed by the next request at once.
    pub(crate) rate: Option<f64>,
}

/// What came of a plan.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) granted: u64,
    /// Granted before the limit.
    pub(crate) granted_in_time: u64,
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    /// From the start to the last answer.
    pub(crate) elapsed: Duration,
    /// Of single requests, from when they were due.
    latencies_us: Vec<u32>,
}

impl Tally {
    /// The time within which this many of a hundred requests were answered; zero without any.
    pub(crate) fn percentile_us(&mut self, percent: usize) -> u32 {
        self.latencies_us.sort_unstable();
        let rank = (self.latencies_us.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies_us.get(rank).copied().unwrap_or_default()
    }

    fn note(&mut self, start: Instant, due: Instant, plan: &Plan, result: Result<u64, RequestError>) {
        let now = Instant::now();
        self.elapsed = self.elapsed.max(now - start);
        match result {
            Ok(leases) => {
                self.granted += leases;
                self.granted_in_time += if now - start <= plan.limit { leases } else { 0 };
                let latency_us = now.saturating_duration_since(due).as_micros();
                self.latencies_us.push(u32::try_from(latency_us).unwrap_or(u32::MAX));
            }
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert(error.0);
            }
        }
    }
}

/// Carries out `plan`.
pub(crate) async fn drive<R: Rival>(rival: &Rc<R>, plan: Plan) -> Tally {
    let job =
        Rc::new(Job { rival: Rc::clone(rival), plan, start: Instant::now(), tally: RefCell::default() });
    match job.plan.rate {
        None => as_fast_as_it_goes(&job).await,
        Some(rate) => at_a_rate(&job, rate).await,
    }
    job.tally.take()
}

/// A plan that is being carried out.
struct Job<R> {
    rival: Rc<R>,
    plan: Plan,
    start: Instant,
    tally: RefCell<Tally>,
}

impl<R: Rival> Job<R> {
    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.plan.limit
    }

    /// The leases of the request at `position` in the plan; none behind the last.
    fn request(&self, position: u64) -> Option<Range<u64>> {
        let first = self.plan.leases.start + position * self.plan.leases_per_request;
        let end = (first + self.plan.leases_per_request).min(self.plan.leases.end);
        (first < end).then_some(first..end)
    }

    async fn acquire(&self, connection: usize, leases: Range<u64>, due: Instant) {
        let count = leases.end - leases.start;
        let result = self.rival.acquire(connection % self.rival.connections(), leases).await;
        self.tally.borrow_mut().note(self.start, due, &self.plan, result.map(|()| count));
    }
}

async fn as_fast_as_it_goes<R: Rival>(job: &Rc<Job<R>>) {
    let next = Rc::new(Cell::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..job.plan.in_flight {
        let (job, next) = (Rc::clone(job), Rc::clone(&next));
        workers.spawn_local(async move {
            while !job.is_over() {
                let position = next.get();
                next.set(position + 1);
                let Some(leases) = job.request(position) else { return };
                job.acquire(worker, leases, Instant::now()).await;
            }
        });
    }
    while workers.join_next().await.is_some() {}
}

/// Starts each request when it is due, whether or not earlier ones are answered, up to the plan's depth.
async fn at_a_rate<R: Rival>(job: &Rc<Job<R>>, rate: f64) {
    let (due, mut dues) = mpsc::channel(1024);
    let (start, leases_per_request) = (job.start, job.plan.leases_per_request);
    let requests = (job.plan.leases.end - job.plan.leases.start).div_ceil(leases_per_request);
    let pacer = thread::spawn(move || pace(start, leases_per_request, rate, requests, &due));
    let depth = Arc::new(Semaphore::new(job.plan.in_flight));
    let mut requests = JoinSet::new();
    while let Some((position, due)) = dues.recv().await {
        // Nothing closes the semaphore.
        let Ok(permit) = Arc::clone(&depth).acquire_owned().await else { break };
        if job.is_over() {
            break;
        }
        let job = Rc::clone(job);
        requests.spawn_local(async move {
            if let (Some(leases), Ok(connection)) = (job.request(position), usize::try_from(position)) {
                job.acquire(connection, leases, due).await;
            }
            drop(permit);
        });
        while requests.try_join_next().is_some() {}
    }
    // The pacer ends with its channel.
    drop(dues);
    while requests.join_next().await.is_some() {}
    pacer.join().expect("the pacing thread does not panic");
}

/// Says when each request is due. A thread of its own, because the runtime's timers are good to a millisecond only.
fn pace(
    start: Instant,
    leases_per_request: u64,
    rate: f64,
    requests: u64,
    due: &mpsc::Sender<(u64, Instant)>,
) {
    // Waking for each of many requests would cost the driver more than asking for them.
    const NAP_MIN: Duration = Duration::from_micros(200);
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    let interval_s = leases_per_request as f64 / rate;
    for position in 0..requests {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
        let at = start + Duration::from_secs_f64(interval_s * position as f64);
        if at > Instant::now() {
            thread::sleep(at.saturating_duration_since(Instant::now()).max(NAP_MIN));
        }
        if due.blocking_send((position, at)).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grants everything after a while, on two connections, except lease 13.
    #[derive(Default)]
    struct Fake {
        held: Cell<u64>,
        open: Cell<usize>,
        open_max: Cell<usize>,
    }

    impl Rival for Fake {
        fn connections(&self) -> usize {
            2
        }

        async fn acquire(&self, connection: usize, leases: Range<u64>) -> Result<(), RequestError> {
            assert!(connection < 2);
            self.open.set(self.open.get() + 1);
            self.open_max.set(self.open_max.get().max(self.open.get()));
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.open.set(self.open.get() - 1);
            if leases.contains(&13) {
                return Err(RequestError("unlucky".to_owned()));
            }
            self.held.set(self.held.get() + leases.end - leases.start);
            Ok(())
        }

        async fn held(&self) -> Result<u64, RequestError> {
            Ok(self.held.get())
        }
    }

    fn plan(leases: Range<u64>) -> Plan {
        Plan { leases, leases_per_request: 1, in_flight: 8, limit: Duration::from_secs(60), rate: None }
    }

    fn run(plan: Plan) -> (Tally, Rc<Fake>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let fake = Rc::new(Fake::default());
        let tally = tokio::task::LocalSet::new().block_on(&runtime, drive(&fake, plan));
        (tally, fake)
    }

    #[test]
    fn a_batch_asks_for_every_lease_once_with_many_in_flight() {
        let (mut tally, fake) = run(plan(100..150));
        assert_eq!((tally.granted, tally.granted_in_time, tally.failed), (50, 50, 0));
        assert_eq!((fake.held.get(), fake.open_max.get()), (50, 8));
        assert!(tally.percentile_us(50) >= 2_000 && tally.elapsed >= Duration::from_millis(12), "{tally:?}");
    }

    #[test]
    fn a_request_may_hold_several_leases_and_the_last_one_fewer() {
        let (tally, fake) = run(Plan { leases_per_request: 20, ..plan(100..150) });
        assert_eq!((tally.granted, tally.latencies_us.len(), fake.held.get()), (50, 3, 50));
    }

    #[test]
    fn what_fails_is_counted_and_the_first_reason_kept() {
        let (tally, _) = run(plan(10..20));
        assert_eq!((tally.granted, tally.failed), (9, 1));
        assert_eq!(tally.first_failure.as_deref(), Some("unlucky"));
    }

    #[test]
    fn a_batch_ends_at_its_limit() {
        let (tally, _) = run(Plan { limit: Duration::from_millis(20), ..plan(100..1_000_000) });
        assert!(tally.granted > 0 && tally.granted < 1_000, "{}", tally.granted);
    }

    #[test]
    fn a_rate_is_kept_and_time_counts_from_when_a_request_was_due() {
        let limit = Duration::from_millis(200);
        let (mut tally, _) = run(Plan { rate: Some(500.0), limit, ..plan(100..200) });
        assert_eq!(tally.granted, 100);
        assert!(tally.elapsed >= Duration::from_millis(198), "{:?}", tally.elapsed);
        // One at a time serves at most 500 in a second, and all of these are due in the first millisecond.
        let (mut crowded, _) = run(Plan { rate: Some(100_000.0), in_flight: 1, ..plan(100..130) });
        assert!(crowded.percentile_us(99) >= 50_000 && tally.percentile_us(50) < 50_000);
    }

    #[test]
    fn what_a_rival_cannot_keep_up_with_is_not_achieved() {
        let limit = Duration::from_millis(100);
        let (tally, _) = run(Plan { rate: Some(10_000.0), in_flight: 1, limit, ..plan(100..1_100) });
        assert!(tally.granted_in_time <= tally.granted && tally.granted < 100, "{tally:?}");
    }
}
