//! Names and numbers that every crate shares: ids, epochs, views, time types and seeded randomness.
//!
//! Nothing here decides anything. Clocks are never read and no randomness is drawn from the
//! environment: time and seeds are values that somebody else hands in.

mod id;
mod random;
mod time;
mod view;

pub use id::{Epoch, Incarnation, NodeId, ObjectId, Process, Seq};
pub use random::{Random, mix};
pub use time::{MonoTime, Span, WallTime};
pub use view::{MEMBERS_MAX, Members, MembersError, View, ViewId};
