//! What a daemon says about itself: its log, and its status.

use base::{Members, NodeId, Span, StoreId, WallTime};
use lease::{Algorithm, ClockState};
use net::ConnectError;
use node::{
    ClockStatus, DaemonStatus, LackingStatus, LeaseStatus, LockStatus, PageStatus, PeerStatus,
    STATUS_LACKING_MAX, Shard, ShardEvent, Status, SupervisorStatus, WorkStatus,
};
use tracing::field::debug;

use super::Supervised;
use super::links::Links;
use crate::clock_trust;
use crate::supervisor::GOOD_RUN;

/// What of a status the shard does not know.
pub(super) struct Facts<'a> {
    pub(super) links: &'a Links,
    pub(super) certificate_expires_s: u64,
    pub(super) deny_list_is_stale: bool,
    pub(super) supervised: Option<Supervised>,
    pub(super) store: StoreId,
    pub(super) uptime: Span,
    pub(super) work: WorkStatus,
    pub(super) page: Option<PageStatus>,
    pub(super) disk_free_bytes: u64,
}

/// The state of the daemon around `shard`.
pub(super) fn status<A: Algorithm>(shard: &Shard<A>, now: WallTime, facts: &Facts<'_>) -> Status {
    let map = shard.map();
    let (counters, locks) = (shard.counters(), shard.lock_counts());
    let (primaries, behind) = shard.primaries();
    Status {
        daemon: DaemonStatus {
            process: shard.me(),
            store: facts.store,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: millis(facts.uptime),
        },
        cluster: map.cluster(),
        map_version: map.version(),
        map_digest: map.digest().iter().map(|byte| format!("{byte:02x}")).collect(),
        quarantine_ms: millis(shard.leases().silent_until().since(now)),
        clock: ClockStatus {
            state: clock_trust(shard.guard().state()),
            offset_max_us: shard.guard().offset_max(now).map(Span::as_micros),
            epsilon_us: map.settings().lease_config().epsilon.as_micros(),
        },
        leases: LeaseStatus {
            held: shard.leases_held() as u64,
            primaries: primaries as u64,
            behind: behind as u64,
            changing: shard.leases_changing() as u64,
            registers: shard.leases().registers() as u64,
            acquired: counters.acquired,
            renewed: counters.renewed,
            lost: counters.lost,
            denied: counters.denied,
            conflicts: counters.conflicts,
            timeouts: counters.timeouts,
        },
        locks: LockStatus {
            held: locks.held as u64,
            waiting: locks.waiting as u64,
            sessions: shard.session_count() as u64,
        },
        work: facts.work,
        certificate_expires_unix_s: facts.certificate_expires_s,
        deny_list_is_stale: facts.deny_list_is_stale,
        disk_is_full: shard.is_full(),
        disk_free_bytes: facts.disk_free_bytes,
        supervisor: facts.supervised.map(|supervised| SupervisorStatus {
            restarts: supervised.restarts,
            crash_looping: is_crash_looping(supervised, facts.uptime),
        }),
        drain: shard.drain_status(),
        page: facts.page.clone(),
        peers: map
            .osds()
            .filter(|osd| osd.id != shard.me().node)
            .map(|osd| peer(shard, now, facts, osd.id))
            .collect(),
        lacking: lacking(shard),
        blocked: shard.blocked(),
    }
}

/// Until this run was a good one, too.
fn is_crash_looping(supervised: Supervised, uptime: Span) -> bool {
    supervised.crash_looping && uptime < GOOD_RUN
}

/// Those that most is lacking of.
fn lacking<A: Algorithm>(shard: &Shard<A>) -> Vec<LackingStatus> {
    let status = |(members, objects): (Members, usize)| LackingStatus {
        members: members.as_slice().to_vec(),
        objects: objects as u64,
    };
    let mut all: Vec<LackingStatus> = shard.lacking().into_iter().map(status).collect();
    all.sort_by_key(|lacking| std::cmp::Reverse(lacking.objects));
    all.truncate(STATUS_LACKING_MAX);
    all
}

fn peer<A: Algorithm>(shard: &Shard<A>, now: WallTime, facts: &Facts<'_>, node: NodeId) -> PeerStatus {
    let connected = facts.links.node(node);
    PeerStatus {
        node,
        incarnation: connected.map(|(process, _)| process.incarnation),
        connected: connected.is_some(),
        round_trip_us: connected.map(|(_, link)| link.stats().round_trip.as_micros()),
        last_heard_ms: shard.guard().heard_at(node).map(|at| millis(now.since(at))),
        offset_us: shard.guard().offset_of(now, node).map(|worst| {
            let micros = i64::try_from(worst.as_micros()).unwrap_or(i64::MAX);
            (-micros, micros)
        }),
    }
}

/// One line for what an operator may want to know.
pub(super) fn shard_event(event: &ShardEvent, now: WallTime) {
    match event {
        ShardEvent::Clock(ClockState::Sound) => {
            tracing::info!("the clock agrees with a majority: taking part")
        }
        ShardEvent::Clock(ClockState::Joining) => {
            tracing::warn!(
                "no majority of the cluster was heard for a lease time: owning nothing until it is"
            );
        }
        ShardEvent::Clock(ClockState::Off) => {
            tracing::error!(
                "this clock disagrees with the others by too much: owning nothing; check its synchronisation"
            );
        }
        ShardEvent::Death { node, incarnation } => {
            tracing::warn!(%node, incarnation = incarnation.0, "reported dead by its supervisor or its successor");
        }
        ShardEvent::TakenOver { cell, ended, grant, wait_until } => {
            // What is not there is left out of the line.
            let holder = grant.map(|grant| debug(grant.client));
            let token = grant.map(|grant| grant.token.0);
            let wait_ms = wait_until.map(|until| millis(until.since(now)));
            tracing::info!(?cell, ?ended, holder, token, wait_ms, "took a lock over");
        }
        ShardEvent::DiskStalled(true) => {
            tracing::error!("the disk does nothing although it should: leading no file until it goes on");
        }
        ShardEvent::DiskFull(true) => tracing::warn!(
            "the disk is nearly full: files take no more data until something is removed, here or on the rest of the disk"
        ),
        ShardEvent::DiskFull(false) => tracing::info!("the disk has space again"),
        ShardEvent::DiskStalled(false) => tracing::info!("the disk goes on"),
        ShardEvent::LeaseLost { cell, why } => tracing::debug!(?cell, ?why, "lost a lease"),
        ShardEvent::SessionOver { session, cells } => {
            tracing::warn!(session = session.0, cells, "a client fell silent; what it held is free");
        }
        ShardEvent::Detached { cell } => {
            tracing::warn!(
                ?cell,
                "a lease may not outlast its client's session; the client has to attach again"
            );
        }
        ShardEvent::SettingsDiffer { peer } => {
            tracing::error!(%peer, "runs with other lease settings; give all daemons the same cluster map");
        }
        ShardEvent::Misbehaved { peer, what } => tracing::error!(?peer, "{what}"),
        _ => file_event(event),
    }
}

fn file_event(event: &ShardEvent) {
    match event {
        ShardEvent::FileBlocked { object, missing, forgot } => {
            tracing::error!(
                ?object,
                ?missing,
                ?forgot,
                "a file cannot be served: members lost what they had not synced, and those that may remember are missing"
            );
        }
        ShardEvent::FileLost { object, generation } => {
            tracing::error!(?object, ?generation, "what was written to a file and not synced may be lost");
        }
        ShardEvent::FileUnsound { object, from } => {
            tracing::error!(?object, %from, "a member would have dropped something committed; nothing has changed");
        }
        ShardEvent::FileUnreadable { object, place } => {
            tracing::error!(
                ?object,
                ?place,
                "content of a file is damaged on this disk; it is not given out"
            );
        }
        ShardEvent::FileMembers { object, view } => {
            tracing::info!(?object, ?view, "the members of a file have changed");
        }
        ShardEvent::FileClientOver { object, client } => {
            tracing::info!(?object, ?client, "a client that was silent for long made room for another one");
        }
        _ => {}
    }
}

/// Calls to a peer that is down fail again and again: the first says it, and then ever fewer.
pub(super) fn call_failed(node: NodeId, error: &ConnectError, failures: u32) {
    if failures.is_power_of_two() {
        tracing::warn!(%node, failures, "cannot connect: {error}");
    } else {
        tracing::debug!(%node, failures, "cannot connect: {error}");
    }
}

const fn millis(span: Span) -> u64 {
    span.as_micros() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_stays_up_is_no_longer_said_to_keep_dying() {
        let dying = Supervised { restarts: 3, crash_looping: true };
        assert!(is_crash_looping(dying, Span::from_secs(1)) && !is_crash_looping(dying, GOOD_RUN));
        assert!(!is_crash_looping(Supervised { crash_looping: false, ..dying }, Span::ZERO));
    }
}
