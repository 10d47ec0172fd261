//! Bytes to messages and back: the only place that knows how messages are laid out.
//!
//! Everything is little-endian with explicit widths. A decoder checks every length before it allocates, accepts
//! exactly what its encoder can produce, and never panics. `docs/wire.md` shows the layouts.
//!
//! ```text
//! kind         which frames there are, how long each may be, who may send it
//! frame        a frame's way from bytes to a message, one type for each step
//! reader       frames out of a stream that arrives in pieces
//! codec        a message's way to a frame; postcard, made strict
//! field        fields written by hand, and data beside them
//! hello        how the ends of a connection introduce themselves
//! heartbeat    the exchange of times
//! message      everything else that travels as a frame
//! entries      what files, their entries and their states are made of
//! files        what replicas and clients say about files
//! names        the tree of a volume: what is done to it, asked about it and kept of it
//! orders       what operators order
//! stored       what a daemon keeps of files on its disk
//! lease_frame  lease messages, which have a layout of their own
//! ```

mod access;
mod bytes;
mod codec;
mod entries;
mod errands;
mod field;
mod files;
mod frame;
mod heartbeat;
mod hello;
mod kind;
mod lease_frame;
mod message;
mod names;
mod orders;
mod reader;
mod stored;

pub use bytes::DecodeError;
pub use codec::{ALLOCATED_PER_BYTE_MAX, Message, encode, encode_in_pieces};
pub use files::{Batched, FILE_BATCH_MAX, FILE_DATA_BYTES_MAX, FILE_MESSAGE_BYTES_MAX, next_batch};
pub use frame::{Admitted, Frame, FrameError, HEADER_BYTES, Header};
pub use heartbeat::{Heartbeat, TimeAnswer};
pub use hello::{Hello, Introduction, NodeIntroduction, Refusal, Welcome, Why};
pub use kind::{ALPN, Kind, Lane, PROTOCOL_VERSION, REFUSAL_TEXT_BYTES_MAX};
pub use lease_frame::{FRAME_MIN, decode_lease_frame, encode_lease_frames};
pub use message::{Inspect, Notice, NoticeAck, RecentRequest, StatusRequest};
pub use names::{decode_name_key, decode_name_part, encode_name_key, encode_name_part};
pub use reader::FrameReader;
pub use stored::{FileRecord, KeptChunk, Stored, decode_stored, encode_stored, object_of_record};
