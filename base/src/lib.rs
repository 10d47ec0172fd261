//! Names and numbers that every crate shares: ids, epochs, views, time types and seeded randomness.
//!
//! Nothing here decides anything. Clocks are never read and no randomness is drawn from the
//! environment: time and seeds are values that somebody else hands in.

mod id;
mod random;
mod role;
mod time;
mod view;

pub use id::{
    ClientId, ClusterId, Dead, Epoch, HexError, Incarnation, NodeId, ObjectId, Process, Seq, StartId, StoreId,
};
pub use random::{Random, mix};
pub use role::{NAME_LEN_MAX, Name, Role, RoleError};
pub use time::{MonoTime, Span, WallTime};
pub use view::{MEMBERS_MAX, Members, MembersError, View, ViewId};
