//! An endpoint at work: it lets callers in, keeps calling whom it is told to, and reports to its owner's inbox.
//!
//! ```text
//!            Owner: hello, admit, clock            Inbox: events, in batches
//!                      ^                                   ^
//! callers --> accept --+--> introductions --> Link --------+
//! nodes   <-- keep_calling --^
//! ```
//!
//! Who calls whom, and whether a second connection of the same peer replaces the first, is the owner's decision.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use base::{NodeId, Role};
use quinn::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::caller::{Caller, Target};
use crate::config::{Config, ConfigError};
use crate::endpoint::{Endpoint, Whose};
use crate::handshake::{ConnectError, Introduced, Owner, introduce};
use crate::inbox::{Event, Inbox, channel};
use crate::link::{self, Shared};
use crate::socket::SocketBuffers;

/// An endpoint at work. Dropping it closes its connections at once.
pub struct Network {
    endpoint: Endpoint,
    shared: Arc<Shared>,
    /// Accepts callers; ends with this.
    _accepting: JoinSet<()>,
}

impl Network {
    /// Puts `endpoint` to work for `owner`, who finds in the inbox whatever happens.
    pub fn start(
        endpoint: Endpoint,
        config: Config,
        owner: Arc<dyn Owner>,
    ) -> Result<(Self, Inbox), ConfigError> {
        let config = config.checked()?;
        let (outlet, inbox) = channel(config.inbox_events);
        let Whose { role, denied, .. } = endpoint.whose().clone();
        let may_ask = wire::Kind::Heartbeat.may_come_from(&role);
        let shared = Shared { config, owner, outlet, denied, may_ask, next_link: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let mut accepting = JoinSet::new();
        if let Role::Node(_) = role {
            let whose = endpoint.whose().clone();
            accepting.spawn(accept(endpoint.inner.clone(), whose, Arc::clone(&shared)));
        }
        Ok((Self { endpoint, shared, _accepting: accepting }, inbox))
    }

    /// Keeps one connection to `node`, which listens at `address` (`host:port`), for as long as the returned handle
    /// lives.
    pub fn keep_calling(&self, node: NodeId, address: &str) -> Caller {
        let target = Target { node, address: address.to_owned(), cluster: self.endpoint.whose().cluster };
        Caller::start(self.endpoint.inner.clone(), target, Arc::clone(&self.shared))
    }

    /// Where this endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// What the kernel granted as socket buffers; [`SocketBuffers::clamped`] says whether that is worth a warning.
    pub fn buffers(&self) -> SocketBuffers {
        self.endpoint.buffers()
    }

    /// Closes every connection and waits until the peers have been told.
    pub async fn close(&self) {
        self.endpoint.close().await;
    }
}

/// Lets callers in until the endpoint is closed.
async fn accept(endpoint: quinn::Endpoint, whose: Whose, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(shared.config.handshakes_max));
    while let Some(incoming) = endpoint.accept().await {
        let is_short = places.available_permits() <= shared.config.handshakes_max / 2;
        if is_short && !incoming.remote_address_validated() {
            // Who says where it is from has to prove it, so that made-up addresses take no place. It costs its caller a
            // round trip, and fails only for a caller that is gone.
            let _ = incoming.retry();
            continue;
        }
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => {
                tokio::spawn(answer(incoming, place, whose.clone(), Arc::clone(&shared)));
            }
            // It is told so and calls again later.
            Err(_) => incoming.refuse(),
        }
    }
}

async fn answer(incoming: Incoming, place: OwnedSemaphorePermit, whose: Whose, shared: Arc<Shared>) {
    let from = incoming.remote_address();
    let introduced = timeout(shared.config.hello_timeout, meet(incoming, &whose, &shared)).await;
    drop(place);
    match introduced.unwrap_or(Err(ConnectError::Slow(from))) {
        Ok(introduced) => link::serve(link::prepare(introduced, &shared), shared).await,
        Err(error) => {
            // News for the log only: with no room for it there is more important news.
            shared.outlet.try_announce(Event::CallerRefused { from, error });
        }
    }
}

async fn meet(incoming: Incoming, whose: &Whose, shared: &Shared) -> Result<Introduced, ConnectError> {
    let connection = incoming.await?;
    introduce(connection, whose.cluster, None, &*shared.owner).await
}
