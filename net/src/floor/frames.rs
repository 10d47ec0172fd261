//! Counting length-framed messages in a stream that arrives in pieces cut anywhere.
//!
//! Nothing is copied or kept but a partial header: the payload only passes by.

use super::load::{Ack, MESSAGE_BYTES_MAX};

/// A message's length stands before it as a little-endian `u32`.
pub(super) const FRAME_HEADER_BYTES: u32 = 4;

/// Counts whole messages.
#[derive(Default)]
pub(super) struct FrameCounter {
    counted: Ack,
    header: [u8; FRAME_HEADER_BYTES as usize],
    header_bytes: usize,
    /// Payload of the current message that has not arrived; none while its header is incomplete.
    payload_bytes_left: Option<usize>,
}

/// A length that no message of a load has.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {bytes} bytes is longer than the bound of {MESSAGE_BYTES_MAX}")]
pub(super) struct FrameTooLong {
    bytes: u32,
}

impl FrameCounter {
    /// Takes the next piece of the stream.
    pub(super) fn feed(&mut self, mut piece: &[u8]) -> Result<(), FrameTooLong> {
        while !piece.is_empty() {
            piece = match self.payload_bytes_left {
                Some(left) => self.pass_payload(left, piece),
                None => self.take_header(piece)?,
            };
        }
        Ok(())
    }

    /// What has arrived whole.
    pub(super) fn counted(&self) -> Ack {
        self.counted
    }

    fn pass_payload<'a>(&mut self, left: usize, piece: &'a [u8]) -> &'a [u8] {
        let here = left.min(piece.len());
        self.counted.bytes += here as u64;
        if here == left {
            self.counted.messages += 1;
            self.payload_bytes_left = None;
        } else {
            self.payload_bytes_left = Some(left - here);
        }
        &piece[here..]
    }

    fn take_header<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], FrameTooLong> {
        let here = (self.header.len() - self.header_bytes).min(piece.len());
        self.header[self.header_bytes..self.header_bytes + here].copy_from_slice(&piece[..here]);
        self.header_bytes += here;
        if self.header_bytes == self.header.len() {
            let bytes = u32::from_le_bytes(self.header);
            if bytes > MESSAGE_BYTES_MAX {
                return Err(FrameTooLong { bytes });
            }
            self.header_bytes = 0;
            self.payload_bytes_left = Some(bytes as usize);
        }
        Ok(&piece[here..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_may_be_cut_anywhere() {
        let mut stream = Vec::new();
        for length in [1_u32, 300, 5] {
            stream.extend(length.to_le_bytes());
            stream.resize(stream.len() + length as usize, 7);
        }
        for piece_bytes in 1..=stream.len() {
            let mut counter = FrameCounter::default();
            for piece in stream.chunks(piece_bytes) {
                counter.feed(piece).unwrap();
            }
            assert_eq!(counter.counted(), Ack { messages: 3, bytes: 306 }, "pieces of {piece_bytes}");
        }
    }

    #[test]
    fn a_message_counts_when_it_is_whole() {
        let mut counter = FrameCounter::default();
        counter.feed(&[2, 0, 0, 0, 1]).unwrap();
        assert_eq!(counter.counted().messages, 0);
        counter.feed(&[1]).unwrap();
        assert_eq!(counter.counted().messages, 1);
    }

    #[test]
    fn a_length_over_the_bound_is_an_error() {
        let bytes = MESSAGE_BYTES_MAX + 1;
        assert_eq!(FrameCounter::default().feed(&bytes.to_le_bytes()), Err(FrameTooLong { bytes }));
    }
}
