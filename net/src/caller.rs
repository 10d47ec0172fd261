//! Keeps one connection to a node: calls, calls again after a pause that grows, and says what happened.
//!
//! This is mechanics, not a decision. Who calls whom, and when a peer's old process is known to be dead, is for the
//! owner to say.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::{ClusterId, NodeId, Random};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::config::Config;
use crate::endpoint;
use crate::handshake::{ConnectError, Introduced, introduce};
use crate::inbox::Event;
use crate::link::{self, Link, Shared};
use crate::peer::server_name;

/// Keeps one connection to a node for as long as it lives. Dropping it closes that connection.
pub struct Caller {
    common: Arc<Common>,
    _task: JoinSet<()>,
}

/// Whom to call.
pub(crate) struct Target {
    pub(crate) node: NodeId,
    pub(crate) address: String,
    pub(crate) cluster: ClusterId,
}

struct Common {
    target: Target,
    again: Notify,
    link: Mutex<Option<Link>>,
}

impl Caller {
    pub(crate) fn start(endpoint: quinn::Endpoint, target: Target, shared: Arc<Shared>) -> Self {
        let common = Arc::new(Common { target, again: Notify::new(), link: Mutex::default() });
        let mut task = JoinSet::new();
        task.spawn(keep_calling(endpoint, Arc::clone(&common), shared));
        Self { common, _task: task }
    }

    /// Whom it calls.
    pub fn node(&self) -> NodeId {
        self.common.target.node
    }

    /// The process at the other end is known to be dead: closes the connection to it, if there is one, and calls
    /// now, with the shortest pauses again.
    pub fn call_again(&self) {
        if let Some(link) = self.common.current() {
            link.close("its process is dead");
        }
        self.common.again.notify_one();
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if let Some(link) = self.common.current() {
            link.close("no longer needed");
        }
    }
}

impl Common {
    fn current(&self) -> Option<Link> {
        self.slot().clone()
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Link>> {
        // Nothing panics while it holds the lock.
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn keep_calling(endpoint: quinn::Endpoint, common: Arc<Common>, shared: Arc<Shared>) {
    let mut pauses = Pauses::new(&shared.config, common.target.node);
    loop {
        let called = tokio::select! {
            called = call(&endpoint, &common.target, &shared, pauses.call_timeout()) => called,
            // Whatever answers now is no longer the process that this call was for.
            () = common.again.notified() => { pauses.reset(); continue }
        };
        match called {
            Ok(introduced) => {
                let ready = link::prepare(introduced, &shared);
                let link = ready.link.clone();
                // Before the owner is told, so that it finds the connection here when it is.
                *common.slot() = Some(link.clone());
                tokio::spawn(link::serve(ready, Arc::clone(&shared)));
                stay(&link, &mut pauses).await;
            }
            Err(ConnectError::Closed) => return,
            Err(error) => {
                pauses.count_failure();
                let (node, failures) = (common.target.node, pauses.failures);
                let event = Event::CallFailed { node, error: Arc::new(error), failures };
                if shared.outlet.announce(event).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = sleep(pauses.next()) => {}
            () = common.again.notified() => pauses.reset(),
        }
    }
}

/// Stays with a connection until it ends. Only one that lasted proves that calling is worth while again.
async fn stay(link: &Link, pauses: &mut Pauses) {
    if timeout(pauses.longest, link.closed()).await.is_ok() {
        return pauses.count_failure();
    }
    pauses.reset();
    link.closed().await;
}

async fn call(
    endpoint: &quinn::Endpoint,
    target: &Target,
    shared: &Shared,
    call_timeout: Duration,
) -> Result<Introduced, ConnectError> {
    let address = resolve(&target.address).await?;
    let name = server_name(target.cluster, target.node);
    let connecting = timeout(call_timeout, endpoint::connect(endpoint, address, &name));
    let no_answer = ConnectError::NoAnswer { address, after_ms: call_timeout.as_millis() };
    let connection = connecting.await.unwrap_or(Err(no_answer))?;
    let introducing = introduce(connection, target.cluster, Some(target.node), &*shared.owner);
    timeout(shared.config.hello_timeout, introducing).await.unwrap_or(Err(ConnectError::Slow(address)))
}

/// The first address that `host:port` stands for.
async fn resolve(address: &str) -> Result<SocketAddr, ConnectError> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let unusable = |reason: String| ConnectError::Address { address: address.to_owned(), reason };
    let mut found = tokio::net::lookup_host(address).await.map_err(|error| unusable(error.to_string()))?;
    found.next().ok_or_else(|| unusable("the name has no address".to_owned()))
}

/// How long to wait for an answer and between calls: both double with every failure.
struct Pauses {
    failures: u32,
    calls: (Duration, Duration),
    shortest: Duration,
    longest: Duration,
    random: Random,
}

impl Pauses {
    fn new(config: &Config, node: NodeId) -> Self {
        Self {
            failures: 0,
            calls: (config.call_timeout_min, config.call_timeout_max),
            shortest: config.pause_min,
            longest: config.pause_max,
            random: Random::new(config.seed ^ base::mix(u64::from(node.0))),
        }
    }

    fn reset(&mut self) {
        self.failures = 0;
    }

    fn count_failure(&mut self) {
        self.failures = self.failures.saturating_add(1);
    }

    fn call_timeout(&self) -> Duration {
        doubled(self.calls.0, self.calls.1, self.failures)
    }

    /// From half of the pause to all of it, so that nodes that failed together do not call together.
    fn next(&mut self) -> Duration {
        let pause = doubled(self.shortest, self.longest, self.failures.saturating_sub(1));
        let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.between(micros / 2, micros))
    }
}

/// `shortest`, doubled `times` times, but no more than `longest`.
fn doubled(shortest: Duration, longest: Duration, times: u32) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    shortest.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_start_over() {
        let mut pauses = Pauses::new(&Config::default(), NodeId(1));
        for (failures, longest_ms) in [(1, 10), (2, 20), (5, 160), (8, 1_000), (100, 1_000)] {
            pauses.failures = failures;
            let (pause, longest) = (pauses.next(), Duration::from_millis(longest_ms));
            assert!((longest / 2..=longest).contains(&pause), "{failures}: {pause:?}");
        }
        assert_eq!(pauses.call_timeout(), Config::default().call_timeout_max);
        pauses.reset();
        assert_eq!(pauses.call_timeout(), Config::default().call_timeout_min);
    }

    #[tokio::test]
    async fn addresses_that_mean_nothing_are_named() {
        for bad in ["", "127.0.0.1", "127.0.0.1:port"] {
            let error = resolve(bad).await.unwrap_err().to_string();
            assert!(error.contains(&format!("cannot call `{bad}`")), "{error}");
        }
    }
}
