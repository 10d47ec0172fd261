//! Bytes to messages and back: the only place that knows how messages are laid out.
//!
//! Everything is little-endian with explicit widths. A decoder checks every length before it allocates, accepts
//! exactly what its encoder can produce, and never panics. `docs/wire.md` shows the layouts.

mod bytes;
mod lease_frame;

pub use bytes::DecodeError;
pub use lease_frame::{FRAME_MIN, decode_lease_frame, encode_lease_frames};
