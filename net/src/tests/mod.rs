//! Tests of whole endpoints: on virtual time over a simulated network, and on real sockets.

mod lanes;
mod pair;
mod protocol;
mod scenarios;
mod udp;
mod world;
