//! Who may come in, and how this daemon introduces itself: what the network asks its owner.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::{NodeId, Process, Role, StartId, StoreId};
use net::{Admission, Peer};
use node::{ClusterMap, Met, RestoredCopy, StartRefusal};
use tokio::sync::watch;
use wire::{Hello, Introduction, NodeIntroduction, Refusal, Why};

use super::keeper::StoreKeeper;
use crate::clock::{Clock, Reading};
use crate::store::PeerRefusal;

/// The daemon at its door.
pub(crate) struct Doorman {
    map: Arc<ClusterMap>,
    me: Process,
    store: StoreId,
    start: StartId,
    line: StartId,
    keeper: StoreKeeper,
    /// What is known of the peers' starts: a copy of what the store has.
    known: Mutex<BTreeMap<NodeId, StartId>>,
    clock: OnceLock<Clock>,
    /// Node time as far as it is known before it is fixed.
    provisional: Clock,
    clients: AtomicUsize,
    clients_max: usize,
    is_stopping: AtomicBool,
    restored: watch::Sender<Option<RestoredCopy>>,
}

impl Doorman {
    pub(crate) fn new(
        (map, me): (Arc<ClusterMap>, Process),
        keeper: StoreKeeper,
        reading: Reading,
        clients_max: u32,
    ) -> Self {
        let known = keeper.known_starts();
        Self {
            map,
            me,
            store: keeper.store(),
            start: keeper.start_id(),
            line: keeper.line(),
            keeper,
            known: Mutex::new(known),
            clock: OnceLock::new(),
            provisional: Clock::unfixed(reading),
            clients: AtomicUsize::new(0),
            clients_max: clients_max as usize,
            is_stopping: AtomicBool::new(false),
            restored: watch::Sender::new(None),
        }
    }

    /// Node time is fixed.
    pub(crate) fn fix(&self, clock: Clock) {
        // Nobody fixes it twice.
        let _ = self.clock.set(clock);
    }

    /// Node time, or what stands for it before it is fixed.
    pub(crate) fn time(&self) -> Clock {
        self.clock.get().copied().unwrap_or(self.provisional)
    }

    /// How many clients are connected.
    pub(crate) fn set_clients(&self, count: usize) {
        self.clients.store(count, Ordering::Relaxed);
    }

    /// Nobody is let in any longer.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Becomes something once a peer knows a start of this node that this store does not.
    pub(crate) fn restored(&self) -> watch::Receiver<Option<RestoredCopy>> {
        self.restored.subscribe()
    }

    fn check_cluster(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.cluster != self.map.cluster() {
            let text = format!("this is cluster {}; use a configuration of it", self.map.cluster());
            return Err(Refusal::new(Why::Cluster, &text));
        }
        if hello.map_digest != self.map.digest() {
            let (theirs, ours) = (hello.map_version, self.map.version());
            let text = if theirs == ours {
                format!("both maps say version {ours} and differ; copy one cluster.toml to every machine")
            } else {
                format!(
                    "your map has version {theirs}, this daemon's {ours}; copy the newer cluster.toml to every machine"
                )
            };
            return Err(Refusal::new(Why::Map, &text));
        }
        if self.is_stopping.load(Ordering::Relaxed) {
            return Err(Refusal::new(Why::Stopping, "try again, or another daemon"));
        }
        Ok(())
    }

    async fn admit_node(&self, node: NodeId, told: &NodeIntroduction) -> Result<(), Refusal> {
        if told.process.node != node || node == self.me.node || self.map.osd(node).is_none() {
            let text = format!("the map of this cluster has no other daemon {node}");
            return Err(Refusal::new(Why::UnknownNode, &text));
        }
        match self.keeper.check(node, met(told), told.knows).await {
            Ok(()) => Ok(()),
            Err(NotAdmitted::Restored(copy)) => {
                let text = format!("daemon {} runs on an old copy of its data directory", self.me.node);
                self.restored.send_replace(Some(copy));
                Err(Refusal::new(Why::Stopping, &text))
            }
            Err(NotAdmitted::Peer(refusal)) => Err(refused(&refusal)),
        }
    }

    async fn note_node(&self, told: &NodeIntroduction) -> Result<(), Refusal> {
        let (node, met) = (told.process.node, met(told));
        self.keeper.note(node, met).await.map_err(|refusal| refused(&refusal))?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(node, met.start);
        Ok(())
    }

    fn admit_client(&self) -> Result<(), Refusal> {
        if self.clients.load(Ordering::Relaxed) >= self.clients_max {
            let text =
                format!("this daemon has as many clients as its `clients_max` allows, {}", self.clients_max);
            return Err(Refusal::new(Why::TooManyClients, &text));
        }
        Ok(())
    }
}

/// Why a peer is not admitted.
pub(crate) enum NotAdmitted {
    /// Because of what it is.
    Peer(PeerRefusal),
    /// Because this node is not what it was.
    Restored(RestoredCopy),
}

impl net::Owner for Doorman {
    fn hello(&self, peer: &Peer) -> Hello {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let knows = match peer.role {
            Role::Node(node) => known.get(&node).copied(),
            _ => None,
        };
        Hello {
            cluster: self.map.cluster(),
            map_version: self.map.version(),
            map_digest: self.map.digest(),
            who: Introduction::Node(NodeIntroduction {
                process: self.me,
                store: self.store,
                nonce: self.start.nonce,
                line: self.line,
                knows,
            }),
        }
    }

    fn admit<'a>(&'a self, peer: &'a Peer, hello: &'a Hello) -> Admission<'a> {
        Box::pin(async move {
            self.check_cluster(hello)?;
            match (&peer.role, &hello.who) {
                (Role::Node(node), Introduction::Node(told)) => self.admit_node(*node, told).await,
                (Role::Supervisor(node), Introduction::Supervisor(told)) if node == told => {
                    if self.map.osd(*node).is_some() {
                        return Ok(());
                    }
                    Err(Refusal::new(
                        Why::UnknownNode,
                        &format!("the map of this cluster has no daemon {node}"),
                    ))
                }
                (Role::Client(_) | Role::Admin(_), Introduction::Client { .. }) => self.admit_client(),
                (role, _) => {
                    let text = format!("the introduction does not fit the certificate of {role}");
                    Err(Refusal::new(Why::Protocol, &text))
                }
            }
        })
    }

    fn settle<'a>(&'a self, _: &'a Peer, hello: &'a Hello) -> Admission<'a> {
        Box::pin(async move {
            match &hello.who {
                Introduction::Node(told) => self.note_node(told).await,
                _ => Ok(()),
            }
        })
    }

    fn clock(&self) -> net::Reading {
        net::Reading { time: self.time().now(), is_fixed: self.clock.get().is_some() }
    }
}

/// What a peer says of its start.
const fn met(told: &NodeIntroduction) -> Met {
    let start = StartId { incarnation: told.process.incarnation, nonce: told.nonce };
    Met { store: told.store, start }
}

fn refused(refusal: &PeerRefusal) -> Refusal {
    Refusal::new(why(refusal), &refusal.to_string())
}

const fn why(refusal: &PeerRefusal) -> Why {
    match refusal {
        PeerRefusal::Start(StartRefusal::OtherStore { .. }) => Why::AnotherStore,
        PeerRefusal::Start(StartRefusal::Outdated { .. }) => Why::OldIncarnation,
        PeerRefusal::Start(StartRefusal::Copy { .. }) => Why::RestoredStore,
        PeerRefusal::Ourselves { .. } | PeerRefusal::TooMany => Why::UnknownNode,
        _ => Why::Stopping,
    }
}
