//! How a connection ends, and how the other side learns why.

use std::time::Duration;

use bytes::Bytes;
use quinn::{ConnectionError, VarInt};

/// The longest reason that fits the smallest packet beside everything else.
const TEXT_BYTES_MAX: usize = 900;

/// Why a connection ended. `Display` says it for the log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseReason {
    /// The owner closed it.
    #[error("we closed it: {0}")]
    Ours(String),
    /// The peer closed it.
    #[error("the peer closed it: {0}")]
    Peers(String),
    /// The peer was not heard any more.
    #[error("the peer was silent for {0:?}")]
    Silent(Duration),
    /// The peer's address is another process's now, which knows nothing of this connection.
    #[error("the peer's process was replaced by another one")]
    Replaced,
    /// The peer's certificate came on the deny list.
    #[error("the peer's certificate was denied")]
    Denied,
    /// The peer sent what it must not send.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
}

impl CloseReason {
    /// What the transport says of a connection that we did not close.
    pub(crate) fn of(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => Self::Peers(readable(&close.reason)),
            ConnectionError::Reset => Self::Replaced,
            ConnectionError::LocallyClosed => Self::Ours("the endpoint was closed".to_owned()),
            other => Self::Broken(other.to_string()),
        }
    }

    /// The number and the text that the peer is told.
    pub(crate) fn to_peer(&self) -> (VarInt, String) {
        let (code, text) = match self {
            Self::Ours(text) => (0, text.clone()),
            Self::Silent(after) => (1, format!("silent for {after:?}")),
            Self::Denied => (2, "the certificate is on the deny list".to_owned()),
            Self::Protocol(text) => (3, format!("broke the protocol: {text}")),
            Self::Peers(text) | Self::Broken(text) => (4, text.clone()),
            Self::Replaced => (4, "replaced".to_owned()),
        };
        let fits = text.char_indices().map(|(start, char)| start + char.len_utf8());
        let end = fits.take_while(|end| *end <= TEXT_BYTES_MAX).last().unwrap_or(0);
        (VarInt::from_u32(code), text[..end].to_owned())
    }
}

/// A peer's text as it may be shown: bounded, and without control characters.
fn readable(text: &Bytes) -> String {
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    String::from_utf8_lossy(text).chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters_and_made_readable() {
        let (_, text) = CloseReason::Ours("ä".repeat(1_000)).to_peer();
        assert_eq!(text.len(), TEXT_BYTES_MAX);
        assert_eq!(readable(&Bytes::from_static(b"a\n\xff\x1b[")), "a \u{fffd} [");
    }
}
