//! What the owner of an endpoint may set, and the relations that must hold.

use std::time::Duration;

/// Intervals, timeouts and bounds of an endpoint. The defaults fit a cluster in one machine room.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How often each side asks the other for its time. Default 125 ms.
    pub heartbeat_interval: Duration,
    /// After how many intervals without any word from the peer a connection is closed. Default 8.
    pub silent_intervals: u32,
    /// How long the introductions after the TLS handshake may take, the owner's decision included. Default 2 s.
    pub hello_timeout: Duration,
    /// How long a first call waits for an answer; each failed call doubles it, up to `call_timeout_max`. Short
    /// calls find a peer that has just started sooner, long ones bear with a slow machine. Default 250 ms.
    pub call_timeout_min: Duration,
    /// See `call_timeout_min`. Default 2 s.
    pub call_timeout_max: Duration,
    /// The pause after a first failed call; each further one doubles it, up to `pause_max`. Default 10 ms.
    pub pause_min: Duration,
    /// See `pause_min`. 50 ms during a failover, up to 1 s when nobody waits. Default 1 s.
    pub pause_max: Duration,
    /// Decides the jitter of pauses.
    pub seed: u64,
    /// Callers that may be in the middle of a handshake at once; more are turned away. Default 256.
    pub handshakes_max: usize,
    /// Bytes of datagrams to one peer that wait for room; beyond it the oldest are dropped. Default 8 MiB.
    pub datagram_queue_bytes: usize,
    /// Bytes of frames to one peer that wait for room; beyond it sending fails. Default 16 MiB.
    pub message_queue_bytes: usize,
    /// Events that may wait for the owner, in each of the inbox's two queues. An event carries up to about 200 KiB.
    /// Default 128.
    pub inbox_events: usize,
}

/// Why a configuration cannot work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// One of them would never or always apply.
    #[error("{0} must be above zero")]
    Zero(&'static str),
    /// A range that is empty.
    #[error("{low} must not be above {high}")]
    Range {
        /// The lower end.
        low: &'static str,
        /// The upper end.
        high: &'static str,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(125),
            silent_intervals: 8,
            hello_timeout: Duration::from_secs(2),
            call_timeout_min: Duration::from_millis(250),
            call_timeout_max: Duration::from_secs(2),
            pause_min: Duration::from_millis(10),
            pause_max: Duration::from_secs(1),
            seed: 0,
            handshakes_max: 256,
            datagram_queue_bytes: 8 << 20,
            message_queue_bytes: 16 << 20,
            inbox_events: 128,
        }
    }
}

impl Config {
    /// How long a peer may be silent.
    pub fn silent_after(&self) -> Duration {
        self.heartbeat_interval * self.silent_intervals
    }

    pub(crate) fn checked(self) -> Result<Self, ConfigError> {
        let zero = [
            ("heartbeat_interval", self.heartbeat_interval.is_zero()),
            ("silent_intervals", self.silent_intervals == 0),
            ("hello_timeout", self.hello_timeout.is_zero()),
            ("call_timeout_min", self.call_timeout_min.is_zero()),
            ("pause_min", self.pause_min.is_zero()),
            ("handshakes_max", self.handshakes_max == 0),
            ("datagram_queue_bytes", self.datagram_queue_bytes == 0),
            ("message_queue_bytes", self.message_queue_bytes == 0),
            ("inbox_events", self.inbox_events == 0),
        ];
        if let Some((name, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
            return Err(ConfigError::Zero(name));
        }
        if self.call_timeout_min > self.call_timeout_max {
            return Err(ConfigError::Range { low: "call_timeout_min", high: "call_timeout_max" });
        }
        if self.pause_min > self.pause_max {
            return Err(ConfigError::Range { low: "pause_min", high: "pause_max" });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_relations_are_named() {
        assert!(Config::default().checked().is_ok());
        let zero = Config { silent_intervals: 0, ..Config::default() };
        assert_eq!(zero.checked(), Err(ConfigError::Zero("silent_intervals")));
        let empty = Config { pause_max: Duration::from_millis(9), ..Config::default() };
        assert_eq!(empty.checked().unwrap_err().to_string(), "pause_min must not be above pause_max");
    }
}
