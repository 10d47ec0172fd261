//! What the page shows: how all daemons of the cluster are, as they tell the one that serves it.
//!
//! Only while somebody looks are the others asked, and is anything kept of what they say.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{ClusterId, NodeId, Process, Span, WallTime};
use node::{ClusterMap, Happened, Recent, SECONDS_MAX, SecondSeen, Status};
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// So many may look at a time.
pub(crate) const WATCHERS_MAX: usize = 16;
/// Answers of different daemons come one after the other: so long they are waited for.
const GATHER: Duration = Duration::from_millis(30);
/// Whoever looks is told something at least this often, so that he knows that the daemon is there.
const TELL_AT_LEAST: Duration = Duration::from_secs(2);

/// What all daemons say.
#[derive(Debug)]
pub(crate) struct Board {
    me: NodeId,
    cluster: ClusterId,
    epsilon: Span,
    t_max: Span,
    /// Held for moments.
    told: Mutex<Told>,
    news: watch::Sender<()>,
    watchers: AtomicUsize,
    /// Somebody looks where nobody did.
    begun: Notify,
}

#[derive(Debug)]
struct Told {
    /// Node time when something was told last.
    now: WallTime,
    daemons: BTreeMap<NodeId, Daemon>,
}

#[derive(Debug, Default)]
struct Daemon {
    address: String,
    /// When it told something last.
    at: Option<WallTime>,
    status: Option<Status>,
    seconds: std::collections::VecDeque<SecondSeen>,
    happened: Vec<Happened>,
}

/// Somebody who looks.
#[derive(Debug)]
pub(crate) struct Watcher {
    board: Arc<Board>,
    news: watch::Receiver<()>,
    /// Up to when he knows each daemon's work.
    knows: BTreeMap<NodeId, u64>,
}

/// What is told to somebody who looks.
#[derive(Serialize)]
struct View {
    cluster: String,
    served_by: NodeId,
    now_ms: u64,
    epsilon_us: u64,
    t_max_ms: u64,
    daemons: Vec<DaemonView>,
}

#[derive(Serialize)]
struct DaemonView {
    node: NodeId,
    address: String,
    /// How old that is; none if nothing was told yet.
    age_ms: Option<u64>,
    status: Option<Status>,
    /// What was not told before.
    seconds: Vec<SecondSeen>,
    happened: Vec<Happened>,
}

impl Board {
    pub(crate) fn new(me: Process, map: &ClusterMap) -> Arc<Self> {
        let daemon = |address: &str| Daemon { address: address.to_owned(), ..Daemon::default() };
        let lease = map.settings().lease_config();
        Arc::new(Self {
            me: me.node,
            cluster: map.cluster(),
            epsilon: lease.epsilon,
            t_max: lease.t_max,
            told: Mutex::new(Told {
                now: WallTime::ZERO,
                daemons: map.osds().map(|osd| (osd.id, daemon(&osd.address))).collect(),
            }),
            news: watch::Sender::new(()),
            watchers: AtomicUsize::new(0),
            begun: Notify::new(),
        })
    }

    /// Whether somebody looks.
    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Lets somebody look, unless too many do.
    pub(crate) fn watch(self: &Arc<Self>) -> Option<Watcher> {
        let more = |watchers| (watchers < WATCHERS_MAX).then_some(watchers + 1);
        let before = self.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        let mut news = self.news.subscribe();
        if before == 0 {
            self.begun.notify_one();
        } else {
            // What is there already is told at once.
            news.mark_changed();
        }
        Some(Watcher { board: self.clone(), news, knows: BTreeMap::new() })
    }

    /// Waits until somebody looks where nobody did.
    pub(crate) async fn begun(&self) {
        self.begun.notified().await;
    }

    /// Up to when a daemon's work is known here.
    pub(crate) fn known(&self, node: NodeId) -> u64 {
        self.lock().daemons.get(&node).and_then(Daemon::known).unwrap_or(0)
    }

    /// A daemon has told this.
    pub(crate) fn take(&self, now: WallTime, recent: Recent) {
        let mut told = self.lock();
        told.now = now;
        let Some(daemon) = told.daemons.get_mut(&recent.status.daemon.process.node) else { return };
        let known = daemon.known();
        let Recent { status, seconds, happened } = recent;
        let is_new = |second: &SecondSeen| known.is_none_or(|known| second.at_ms > known);
        daemon.seconds.extend(seconds.into_iter().filter(is_new));
        while daemon.seconds.len() > SECONDS_MAX {
            daemon.seconds.pop_front();
        }
        (daemon.at, daemon.status, daemon.happened) = (Some(now), Some(status), happened);
        drop(told);
        self.news.send_replace(());
    }

    /// Nobody looks any more.
    pub(crate) fn clear(&self) {
        for daemon in self.lock().daemons.values_mut().filter(|daemon| daemon.at.is_some()) {
            *daemon = Daemon { address: std::mem::take(&mut daemon.address), ..Daemon::default() };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Daemon {
    fn known(&self) -> Option<u64> {
        self.seconds.back().map(|second| second.at_ms)
    }
}

impl Watcher {
    /// What is to be seen as soon as there is something new, as one line of JSON.
    pub(crate) async fn next(&mut self) -> String {
        // Its sender lives as long as the board.
        if let Ok(Ok(())) = timeout(TELL_AT_LEAST, self.news.changed()).await {
            sleep(GATHER).await;
            self.news.mark_unchanged();
        }
        let view = self.look();
        serde_json::to_string(&view).unwrap_or_else(|_| "{}".to_owned())
    }

    fn look(&mut self) -> View {
        let Board { me, cluster, epsilon, t_max, .. } = *self.board;
        let told = self.board.lock();
        let mut daemons = Vec::with_capacity(told.daemons.len());
        for (&node, daemon) in &told.daemons {
            let known = self.knows.entry(node).or_insert(0);
            let from = daemon.seconds.partition_point(|second| second.at_ms <= *known);
            daemons.push(DaemonView {
                node,
                address: daemon.address.clone(),
                age_ms: daemon.at.map(|at| told.now.since(at).as_micros() / 1_000),
                status: daemon.status.clone(),
                seconds: daemon.seconds.range(from..).copied().collect(),
                happened: daemon.happened.clone(),
            });
            *known = daemon.known().unwrap_or(*known);
        }
        View {
            cluster: cluster.to_string(),
            served_by: me,
            now_ms: told.now.as_micros() / 1_000,
            epsilon_us: epsilon.as_micros(),
            t_max_ms: t_max.as_micros() / 1_000,
            daemons,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.board.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}
