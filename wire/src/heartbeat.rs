//! Layout: the exchange of times between nodes, by datagram.

use base::WallTime;
use bytes::Bytes;
use lease::Exchange;
use serde::{Deserialize, Serialize};

use crate::DecodeError;
use crate::codec::{Body, append, read_all};
use crate::field::Sink;
use crate::kind::Kind;

/// A question for the peer's time, or the answer. Either says that its sender is alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Heartbeat {
    /// What time is it?
    Ask {
        /// By the clock of who asks; the answer repeats it.
        asked: WallTime,
    },
    /// This time.
    Answer(TimeAnswer),
}

/// The answer to [`Heartbeat::Ask`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimeAnswer {
    /// As it was asked.
    pub asked: WallTime,
    /// When the question came, by the clock of who answers.
    pub received: WallTime,
    /// When the answer left, by the same clock.
    pub answered: WallTime,
    /// Whether that clock has its place among its peers' already. If not, it says nothing about the one who asked.
    pub time_is_fixed: bool,
}

impl TimeAnswer {
    /// The exchange that this answer completes when it arrives at `done`, by the clock of who asked.
    pub const fn into_exchange(self, done: WallTime) -> Exchange {
        Exchange { asked: self.asked, received: self.received, answered: self.answered, done }
    }
}

impl Body for Heartbeat {
    const KIND: Kind = Kind::Heartbeat;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }
}
