//! Which entries are ordered, durable and acknowledged.
//!
//! One engine for everything that is replicated: a file, a volume's namespace, the cluster map. What the object is, is
//! a parameter, [`Machine`]. Who is primary is decided elsewhere, by leases; a primary brings an epoch that nobody has
//! used before, and the time until which its lease lasts. Clocks decide nothing here but what may be *answered*: with
//! two primaries at a time the epochs, which replicas keep, let at most one of them commit.
//!
//! # Contract
//!
//! [`Replica`] is one object at one node. It is pure: calls name the time, and what it wants done comes out of
//! [`poll_output`](Replica::poll_output) in order.
//!
//! - *Commands*: [`lead`](Replica::lead), [`renew`](Replica::renew), [`resign`](Replica::resign),
//!   [`propose`](Replica::propose), [`expire`](Replica::expire), [`ask`](Replica::ask), [`sync`](Replica::sync),
//!   [`admit`](Replica::admit), [`dismiss`](Replica::dismiss), [`strike`](Replica::strike),
//!   [`accept_loss`](Replica::accept_loss), [`end`](Replica::end).
//! - *Kept*: [`checkpoint`](Replica::checkpoint) is all of it; [`new`](Replica::new) goes on from there.
//! - *Lost*: [`damage`](Replica::damage) names parts that cannot be read any more.
//! - *Events in*: [`handle_message`](Replica::handle_message), [`handle_timeout`](Replica::handle_timeout).
//! - *Out*: [`poll_output`](Replica::poll_output), to be drained after every call, and
//!   [`poll_timeout`](Replica::poll_timeout), which may change after any call.
//!
//! Messages that stand for something on disk name the write they wait for ([`When`]); the driver sends them when it is
//! done. A replica votes for itself in the same way: by a message to itself that waits for its own journal.
//!
//! # What is deliberately absent
//!
//! No clock, file or socket, no knowledge of leases: an epoch and a time are plain values. No decision who should be
//! primary. No retry on behalf of clients.

mod backup;
mod bugs;
mod config;
mod damage;
mod entry;
mod errors;
mod habit;
mod limits;
mod log;
mod machine;
mod message;
mod output;
mod over;
mod primary;
mod recovery;
mod replica;
mod room;
mod sessions;
mod state;
mod syncs;
mod taking;
mod transfer;
mod views;
mod weight;

pub use bugs::Bug;
pub use config::{Config, ConfigError, HOUSE_CLIENTS_MAX};
pub use entry::{Body, Entry, Position, Request};
pub use errors::{AskError, ChangeError, JournalError, LeadError, ProposeError, SyncError};
pub use limits::{Limit, Reached};
pub use machine::Machine;
pub use message::{Account, Memory, Message, Page, Parts};
pub use output::{Event, Io, Mark, Output, Record, Ticket, Waiting, When};
pub use primary::Tenure;
pub use replica::{Replica, Standing, follow_each_other};
pub use sessions::{Session, Sessions};
pub use state::{Checkpoint, Head, Holding, Rest, State};
