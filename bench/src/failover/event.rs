//! What happens to daemons, and how long whoever uses them may notice.

use std::io;
use std::time::Duration;

use client::Config;
use serde::Serialize;

use super::FailoverError;
use crate::daemons::Daemons;

/// The longest stall of something that is planned.
const PLANNED_MAX: Duration = Duration::from_millis(50);
/// Of the death of a process that its supervisor reports.
const CRASH_MAX: Duration = Duration::from_millis(150);
/// Of all processes at once.
const ALL_MAX: Duration = Duration::from_secs(4);
/// What a takeover takes beside the wait for the lease to run out.
const TAKEOVER_MAX: Duration = Duration::from_millis(500);
/// Beyond the bound it goes on for so long, so that it is seen to its end.
const MARGIN: Duration = Duration::from_millis(1_500);

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// The daemon is killed. Its supervisor reports that and starts it again.
    Crash,
    /// The daemon and its supervisor are killed: nobody reports that.
    Machine,
    /// The daemon and its supervisor are frozen, and go on later.
    Freeze,
    /// The daemon is stopped in order, and started again.
    Restart,
    /// The same, after an operator has had it hand over all that it leads.
    Drain,
    /// The daemon is cut off from all others, and from whoever uses it.
    Partition,
    /// All daemons are killed at once, and their supervisors start them again.
    All,
}

impl Event {
    /// All there are.
    pub const EVERY: [Self; 7] =
        [Self::Crash, Self::Machine, Self::Freeze, Self::Restart, Self::Drain, Self::Partition, Self::All];

    /// As people say it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Machine => "machine",
            Self::Freeze => "freeze",
            Self::Restart => "restart",
            Self::Drain => "drain",
            Self::Partition => "partition",
            Self::All => "all",
        }
    }

    /// The longest stall that is allowed where calls take up to `quiet` without any event.
    pub fn bound(self, config: &Config, quiet: Duration) -> Duration {
        let lease = config.map.settings().lease_config();
        let expiry = Duration::from_micros((lease.t_max + lease.epsilon).as_micros());
        match self {
            Self::Restart | Self::Drain => PLANNED_MAX.max(quiet * 2),
            Self::Crash => CRASH_MAX,
            Self::Machine | Self::Freeze | Self::Partition => expiry + TAKEOVER_MAX,
            Self::All => ALL_MAX,
        }
    }

    /// How long it goes on before it is undone.
    pub(crate) fn lasts(self, config: &Config) -> Duration {
        match self {
            Self::Machine | Self::Freeze | Self::Partition => self.bound(config, Duration::ZERO) + MARGIN,
            Self::Crash | Self::Restart | Self::Drain | Self::All => MARGIN,
        }
    }

    /// It happens, to daemon `victim` unless to all.
    pub(crate) fn begin(self, daemons: &mut Daemons, victim: usize) -> Result<(), FailoverError> {
        match self {
            Self::Crash => daemons.kill(victim),
            Self::Machine => daemons.kill_machine(victim),
            Self::Freeze => daemons.freeze(victim),
            Self::Restart | Self::Drain => {
                if self == Self::Drain {
                    daemons.drain(victim)?;
                }
                daemons.stop(victim)?;
                daemons.restart(victim)?;
            }
            Self::Partition => daemons.namespaces().ok_or_else(no_namespaces)?.cut(victim)?,
            Self::All => daemons.kill_all(),
        }
        Ok(())
    }

    /// It is undone, if it does not end by itself.
    pub(crate) fn end(self, daemons: &mut Daemons, victim: usize) -> Result<(), FailoverError> {
        match self {
            Self::Machine => daemons.restart(victim)?,
            Self::Drain => daemons.undrain(victim)?,
            Self::Freeze => daemons.resume(victim),
            Self::Partition => daemons.namespaces().ok_or_else(no_namespaces)?.mend(victim)?,
            Self::Crash | Self::Restart | Self::All => {}
        }
        Ok(())
    }
}

fn no_namespaces() -> io::Error {
    io::Error::other("the daemons have no network namespaces of their own")
}
