//! What a sender asks of a receiver, and what the receiver says when it has counted: fixed layouts, little-endian.

/// The largest message of a load: it bounds what a receiver holds at once.
pub const MESSAGE_BYTES_MAX: u32 = 4 << 20;

/// The size of the message that a round trip carries: that of a small request.
pub(super) const ECHO_BYTES: usize = 128;

const KIND_ECHO: u8 = 0;
const KIND_ONE_STREAM: u8 = 1;
const KIND_STREAM_EACH: u8 = 2;

/// A number of messages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The payload of a message, from 1 to [`MESSAGE_BYTES_MAX`].
    pub message_bytes: u32,
    /// How many messages go to each receiver.
    pub messages: u64,
    /// How they travel.
    pub carriage: Carriage,
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carriage {
    /// One after the other on one stream, each preceded by its length.
    OneStream,
    /// Each on a stream of its own.
    StreamEach,
}

/// Why a load is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The size of messages is out of range.
    #[error("messages of {0} bytes are out of range; choose from 1 to {MESSAGE_BYTES_MAX}")]
    MessageBytes(u32),
    /// More bytes than can be counted.
    #[error("the load has more bytes than can be counted; choose fewer messages")]
    Total,
    /// An order that this version does not know.
    #[error("a sender asked for the unknown kind of load {0}; both ends must be of one version")]
    Kind(u8),
}

/// The first bytes on a stream: what the receiver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Send every message of [`ECHO_BYTES`] back.
    Echo,
    /// Count this load and acknowledge it.
    Load(Load),
}

/// What a receiver has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ack {
    /// Whole messages.
    pub(super) messages: u64,
    /// Bytes of their payload.
    pub(super) bytes: u64,
}

impl Load {
    pub(super) fn checked(self) -> Result<Self, LoadError> {
        if self.message_bytes == 0 || self.message_bytes > MESSAGE_BYTES_MAX {
            return Err(LoadError::MessageBytes(self.message_bytes));
        }
        self.messages.checked_mul(u64::from(self.message_bytes)).ok_or(LoadError::Total)?;
        Ok(self)
    }
}

impl Order {
    /// kind `u8`, size of a message `u32`, number of messages `u64`
    pub(super) const BYTES: usize = 13;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        let (kind, message_bytes, messages) = match self {
            Self::Echo => (KIND_ECHO, 0, 0),
            Self::Load(load) => {
                let kind = match load.carriage {
                    Carriage::OneStream => KIND_ONE_STREAM,
                    Carriage::StreamEach => KIND_STREAM_EACH,
                };
                (kind, load.message_bytes, load.messages)
            }
        };
        let mut bytes = [kind; Self::BYTES];
        bytes[1..5].copy_from_slice(&message_bytes.to_le_bytes());
        bytes[5..].copy_from_slice(&messages.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self, LoadError> {
        let [kind, a, b, c, d, messages @ ..] = bytes;
        let carriage = match kind {
            KIND_ECHO => return Ok(Self::Echo),
            KIND_ONE_STREAM => Carriage::OneStream,
            KIND_STREAM_EACH => Carriage::StreamEach,
            unknown => return Err(LoadError::Kind(unknown)),
        };
        let load = Load {
            message_bytes: u32::from_le_bytes([a, b, c, d]),
            messages: u64::from_le_bytes(messages),
            carriage,
        };
        Ok(Self::Load(load.checked()?))
    }
}

impl Ack {
    /// messages `u64`, bytes `u64`
    pub(super) const BYTES: usize = 16;

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        (u128::from(self.bytes) << 64 | u128::from(self.messages)).to_le_bytes()
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of the number")]
    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { messages: both as u64, bytes: (both >> 64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_wire() {
        let load = Load { message_bytes: 0x0102_0304 >> 4, messages: 5, carriage: Carriage::StreamEach };
        for order in
            [Order::Echo, Order::Load(load), Order::Load(Load { carriage: Carriage::OneStream, ..load })]
        {
            assert_eq!(Order::from_bytes(order.to_bytes()), Ok(order));
        }
        let ack = Ack { messages: 7, bytes: u64::MAX };
        assert_eq!(Ack::from_bytes(ack.to_bytes()), ack);
    }

    #[test]
    fn foreign_orders_are_refused() {
        let mut bytes = Order::Echo.to_bytes();
        bytes[0] = 9;
        assert_eq!(Order::from_bytes(bytes), Err(LoadError::Kind(9)));
        let huge = Load { message_bytes: u32::MAX, messages: 1, carriage: Carriage::OneStream };
        assert_eq!(Order::from_bytes(Order::Load(huge).to_bytes()), Err(LoadError::MessageBytes(u32::MAX)));
        let many = Load { message_bytes: 2, messages: u64::MAX, carriage: Carriage::OneStream };
        assert_eq!(Order::from_bytes(Order::Load(many).to_bytes()), Err(LoadError::Total));
    }
}
