//! What is set for every object of a node.

use base::{Span, WallTime};

use crate::Machine;
use crate::weight::{ENTRY_BYTES, MESSAGE_BYTES, VERSION_BYTES, requests_bytes};

/// So many clients beyond [`Config::clients_max`] are known if they look after the object.
pub const HOUSE_CLIENTS_MAX: usize = 16;

/// Limits and times.
///
/// What is counted and what is weighed is limited both ways: whichever limit is reached first holds. Promises, barriers,
/// changes of members, acknowledgements and the ends of clients are never refused for want of room: what is refused
/// is only what clients ask for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Entries that may be proposed and not committed. More are refused until some are.
    pub uncommitted_max: usize,
    /// The same in bytes; also what one backup is sent before it answers. Default 16 MiB.
    pub uncommitted_bytes_max: u64,
    /// Clients whose requests are remembered, beside [some](HOUSE_CLIENTS_MAX) of those who look after the object. A further one is refused until one of them is over. Default 4,096.
    pub clients_max: usize,
    /// How far ahead of the first request that it has not settled a client may ask. Default 1,024.
    pub unsettled_max: u64,
    /// Outcomes that are remembered. Half of them are shared out among clients evenly, and half are for whoever comes
    /// first. Default 8,192.
    pub outcomes_max: usize,
    /// Clients that are remembered to be over. While there are so many, no client is over. Default 16,384.
    pub expired_max: usize,
    /// For how long that is remembered: no request may take longer to arrive. Default one day.
    pub expired_for: Span,
    /// Questions and syncs that may wait at a time.
    pub waiting_max: usize,
    /// Entries in one message.
    pub batch_max: usize,
    /// Bytes of one message with entries. Default 2 MiB.
    pub batch_bytes_max: u64,
    /// Committed entries that are kept for those who lag behind. Who lacks more takes over a state.
    pub kept_max: usize,
    /// The same in bytes. Default 16 MiB.
    pub kept_bytes_max: u64,
    /// Committed entries that are kept while somebody takes over a state, and will need what came after it.
    pub kept_lending_max: usize,
    /// The same in bytes. Default 64 MiB.
    pub kept_lending_bytes_max: u64,
    /// Parts of a state in one message.
    pub parts_max: usize,
    /// Versions of parts in one message.
    pub versions_max: usize,
    /// Bytes of one message with parts, or with the end of a state. Default 5 MiB.
    pub page_bytes_max: u64,
    /// What was not answered for so long is sent again. Longer than a round trip and a write.
    pub retry_after: Span,
    /// A primary that has not heard of a majority for so long says so.
    pub isolated_after: Span,
    /// How long a backup may not know what is committed when nothing else is to be told. Objects tell it at the same times, so that
    /// many are told by one message.
    pub tell_after: Span,
    /// How long all are asked when all that answer have forgotten: the longest lease.
    pub all_forgot_after: Span,
    /// A tenure that has not begun, and hears nothing new for so long, is over. Longer than `all_forgot_after` and a few
    /// retries. Default 6 s.
    pub recovery_max: Span,
    /// How often a node that is no member any more says so, until nobody will ask it.
    pub retired_every: Span,
    /// Test only: the rule that is broken.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<crate::Bug>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Something that may be would never fit.
    #[error("{name} ({limit}) must be at least {needed}: otherwise {what} would never fit")]
    TooSmall {
        /// The limit.
        name: &'static str,
        /// What it is.
        limit: u64,
        /// What it has to be.
        needed: u64,
        /// What would never fit.
        what: &'static str,
    },
    /// Nobody would be waited for.
    #[error("recovery_max ({recovery_max}) must be longer than all_forgot_after + retry_after ({waits})")]
    RecoveryTooShort {
        /// When a recovery is given up.
        recovery_max: Span,
        /// For how long it may have to wait.
        waits: Span,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            uncommitted_max: 1_024,
            uncommitted_bytes_max: 16 << 20,
            clients_max: 4_096,
            unsettled_max: 1_024,
            outcomes_max: 8_192,
            expired_max: 16_384,
            expired_for: Span::from_secs(24 * 60 * 60),
            waiting_max: 4_096,
            batch_max: 256,
            batch_bytes_max: 2 << 20,
            kept_max: 1_024,
            kept_bytes_max: 16 << 20,
            kept_lending_max: 16_384,
            kept_lending_bytes_max: 64 << 20,
            parts_max: 64,
            versions_max: 1_024,
            page_bytes_max: 5 << 20,
            retry_after: Span::from_millis(200),
            isolated_after: Span::from_secs(1),
            tell_after: Span::from_millis(20),
            all_forgot_after: Span::from_secs(2),
            recovery_max: Span::from_secs(6),
            retired_every: Span::from_secs(10),
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}

impl Config {
    /// When a backup is told what is committed at `now`, if nothing else takes it along.
    pub(crate) fn tell_at(&self, now: WallTime) -> WallTime {
        (now + self.tell_after).rounded_down(self.tell_after)
    }

    /// Bytes of the entries in one message.
    pub(crate) const fn entries_bytes_max(&self) -> u64 {
        self.batch_bytes_max.saturating_sub(MESSAGE_BYTES)
    }

    /// Bytes of what one message brings of a state, but for the versions of what is not different.
    pub(crate) const fn parts_bytes_max(&self) -> u64 {
        self.page_bytes_max.saturating_sub(MESSAGE_BYTES + self.versions_max as u64 * VERSION_BYTES)
    }

    /// Checks every relation between the values, for objects of this kind.
    pub fn check<M: Machine>(&self) -> Result<(), ConfigError> {
        let entry = ENTRY_BYTES + M::OP_BYTES_MAX;
        let part = VERSION_BYTES + M::PART_BYTES_MAX;
        let versions = self.versions_max as u64 * VERSION_BYTES;
        let clients = self.clients_max.saturating_add(HOUSE_CLIENTS_MAX);
        let rest = requests_bytes::<M>(clients, self.outcomes_max, self.expired_max);
        let needed = [
            ("uncommitted_max", self.uncommitted_max as u64, 1, "a request"),
            ("clients_max", self.clients_max as u64, 1, "a client"),
            ("unsettled_max", self.unsettled_max, 1, "a request"),
            (
                "outcomes_max",
                self.outcomes_max as u64,
                2 * self.clients_max as u64,
                "one outcome of each client",
            ),
            ("expired_max", self.expired_max as u64, 1, "the end of a client"),
            ("waiting_max", self.waiting_max as u64, 1, "a question"),
            ("batch_max", self.batch_max as u64, 1, "an entry"),
            ("parts_max", self.parts_max as u64, 1, "a part"),
            ("versions_max", self.versions_max as u64, 1, "a part"),
            // Before it there may be a barrier and a view.
            (
                "uncommitted_bytes_max",
                self.uncommitted_bytes_max,
                entry + 4 * ENTRY_BYTES,
                "the largest operation",
            ),
            ("batch_bytes_max", self.batch_bytes_max, MESSAGE_BYTES + entry, "the largest operation"),
            ("page_bytes_max", self.page_bytes_max, MESSAGE_BYTES + versions + part, "the largest part"),
            ("page_bytes_max", self.page_bytes_max, MESSAGE_BYTES + rest, "all requests that are remembered"),
            ("kept_lending_max", self.kept_lending_max as u64, self.kept_max as u64, "what is kept anyway"),
            (
                "kept_lending_bytes_max",
                self.kept_lending_bytes_max,
                self.kept_bytes_max,
                "what is kept anyway",
            ),
        ];
        let (recovery_max, waits) = (self.recovery_max, self.all_forgot_after + self.retry_after);
        if recovery_max <= waits {
            return Err(ConfigError::RecoveryTooShort { recovery_max, waits });
        }
        match needed.into_iter().find(|&(_, limit, needed, _)| limit < needed) {
            Some((name, limit, needed, what)) => Err(ConfigError::TooSmall { name, limit, needed, what }),
            None => Ok(()),
        }
    }
}
