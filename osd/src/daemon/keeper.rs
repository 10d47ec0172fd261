//! The store at work: its writes wait for the disk on a thread of their own, and never hold the driver up.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use base::{NodeId, StartId, StoreId};
use node::Met;

use super::DaemonError;
use super::doorman::NotAdmitted;
use crate::clock::{self, Clock};
use crate::store::{PeerRefusal, Store, WriteError};

/// A handle of the store. Clones stand for the same one.
#[derive(Clone)]
pub(crate) struct StoreKeeper {
    store: Arc<Mutex<Store>>,
    /// Its name, which must be had without waiting for a write.
    id: StoreId,
}

impl StoreKeeper {
    pub(crate) fn new(store: Store) -> Self {
        let id = store.id();
        Self { store: Arc::new(Mutex::new(store)), id }
    }

    pub(crate) const fn store(&self) -> StoreId {
        self.id
    }

    pub(crate) fn start_id(&self) -> StartId {
        self.with(|store| store.start_id())
    }

    pub(crate) fn line(&self) -> StartId {
        self.with(|store| store.line())
    }

    /// Which start of each peer is the newest that this node has seen.
    pub(crate) fn known_starts(&self) -> BTreeMap<NodeId, StartId> {
        self.with(|store| store.known_starts().collect())
    }

    /// Whether a peer's start may come in: unless the peer or this node is not what it was.
    pub(crate) async fn check(
        &self,
        node: NodeId,
        told: Met,
        ours: Option<StartId>,
    ) -> Result<(), NotAdmitted> {
        let checked = self.run(move |store| {
            if let Some(ours) = ours {
                store.check_own_chain(ours).map_err(NotAdmitted::Restored)?;
            }
            store.check_peer(node, &told).map_err(NotAdmitted::Peer)
        });
        checked.await.map(|_| ())
    }

    /// Notes a peer's start, durably. The peer lets this node in, so it is what it was.
    pub(crate) async fn note(&self, node: NodeId, told: Met) -> Result<(), PeerRefusal> {
        self.run(move |store| store.admit_peer(node, told)).await
    }

    /// Raises the epoch ceiling.
    pub(crate) async fn raise_ceiling(&self, to: u64) -> Result<(), WriteError> {
        self.run(move |store| store.raise_ceiling(to)).await
    }

    /// Keeps whether an operator has drained this node.
    pub(crate) async fn note_drained(&self, is_drained: bool) -> Result<(), WriteError> {
        self.run(move |store| store.note_drained(is_drained)).await
    }

    /// Notes node time, and returns the mark that it must not reach before the next one.
    pub(crate) async fn mark_time(&self, clock: Clock) -> Result<base::WallTime, WriteError> {
        self.run(move |store| {
            let since_boot = clock::since_boot();
            store.mark_time(clock.at(since_boot), since_boot)?;
            Ok(store.time_mark())
        })
        .await
    }

    /// Notes that the store has failed, as well as that goes: the disk may take nothing any more.
    pub(crate) fn note_failed(&self) {
        if let Err(error) = self.with(Store::note_failed) {
            tracing::error!("that the store has failed cannot be noted on its disk: {error}");
        }
    }

    /// Notes that this start ends cleanly.
    pub(crate) async fn stop(&self, clock: Clock) -> Result<(), DaemonError> {
        self.run(move |store| {
            let since_boot = clock::since_boot();
            Ok(store.stop(clock.at(since_boot), since_boot)?)
        })
        .await
    }

    async fn run<T: Send + 'static>(&self, work: impl FnOnce(&mut Store) -> T + Send + 'static) -> T {
        let keeper = self.clone();
        match tokio::task::spawn_blocking(move || keeper.with(work)).await {
            Ok(done) => done,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // It is cancelled only with the runtime, and whoever waits goes with that, too.
                Err(_) => std::future::pending().await,
            },
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Store) -> T) -> T {
        work(&mut self.store.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
