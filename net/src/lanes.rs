//! The three lanes of a connection, by what they do when the network is slow: datagrams drop, small messages queue
//! and then refuse, transfers wait.

pub(crate) mod bulk;
pub(crate) mod datagrams;
pub(crate) mod messages;
