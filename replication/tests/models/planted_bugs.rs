//! Planted bugs and the models that find them.
//!
//! Each bug breaks one rule; its test fails if the model named beside it does not find the property broken that stands
//! there, within its bounds.

use replication::Bug;

use crate::report::{find, prove};
use crate::setup::Setup;
use crate::world::{DURABLE, ENTRIES, MAJORITY, ONCE, PROMISES, SEEN, STATES};
use crate::{damage, power, transfers, views};

macro_rules! found {
    ($($test:ident: $bug:ident in $setup:expr, broken $broken:expr;)*) => {
        $(
            #[test]
            fn $test() {
                find(Bug::$bug, $setup, $broken);
            }
        )*
    };
}

found! {
    no_epoch_check: NoEpochCheck in power::setup_tenures(), broken SEEN;
    promise_not_kept: PromiseNotKept in power::setup_tenures(), broken MAJORITY;
    no_predecessor_check: NoPredecessorCheck in power::setup_tenures(), broken ENTRIES;
    ack_before_write: AckBeforeWrite in power::setup_kills(), broken SEEN;
    old_entries_counted_committed: OldEntriesCountedCommitted in power::setup_old_entries(), broken ENTRIES;
    reads_uncommitted: ReadsUncommitted in power::setup_tenures(), broken SEEN;
    tail_by_sequence: TailBySequence in with_two_ops(power::setup_tenures()), broken ENTRIES;
    no_deduplication: NoDeduplication in power::setup_tenures(), broken ONCE;
    sync_by_primary_alone: SyncByPrimaryAlone in power::setup_power(), broken DURABLE;
    forgetting_ignored: ForgettingIgnored in power::setup_power(), broken SEEN;
    forgetting_ignored_promises: ForgettingIgnored in power::setup_power(), broken PROMISES;
    sync_ignores_generation: SyncIgnoresGeneration in power::setup_short_logs(), broken DURABLE;
    transfer_without_requests: TransferWithoutRequests in transfers::setup(), broken STATES;
    transfer_without_requests_executes_twice: TransferWithoutRequests in transfers::setup(), broken ONCE;
    transfer_forgets_promise: TransferForgetsPromise in transfers::setup(), broken PROMISES;
    damaged_serves: DamagedServes in damage::setup(), broken SEEN;
    damaged_is_source: DamagedIsSource in damage::setup(), broken SEEN;
    view_not_durable: ViewNotDurable in views::setup_power(), broken DURABLE;
    tombstone_dropped_early: TombstoneDroppedEarly in views::setup_tombstones(), broken SEEN;
}

fn with_two_ops(setup: Setup) -> Setup {
    Setup { ops: vec![0, 1], ..setup }
}

/// A bug that other rules keep harmless: the model stays right with it.
fn is_harmless(bug: Bug, mut setup: Setup) {
    setup.config.bug = Some(bug);
    prove(setup);
}

/// What was recovered is not committed yet, so a question waits for all of it that might change the answer.
#[test]
fn served_before_barrier_is_harmless_to_questions_that_wait() {
    is_harmless(Bug::ServedBeforeBarrier, power::setup_tenures());
}
