//! Models of replication: the production replicas in every order of events that small bounds allow.
//!
//! A model is a [`Setup`](setup::Setup): which nodes there are, what has happened before, and what may happen how often.
//! [`world`] turns it into states and actions, [`tables`] runs the production code for a step (and remembers the
//! step, because the same node meets the same message in millions of states), [`node`] is a replica with its disk,
//! [`facts`] is what has to be known of a node to judge it, and [`report`] lets the checker loose and judges the result.
//!
//! `FLEASEFS_LONG=1` widens the bounds to those of `docs/replication.md`; `FLEASEFS_MODEL_STORY=1` prints the story of
//! every planted bug that is found.
#![allow(clippy::print_stdout, reason = "counts and stories are what these tests have to tell")]

mod damage;
mod facts;
mod milestone;
mod node;
mod planted_bugs;
mod power;
mod report;
mod setup;
mod story;
mod tables;
mod tiny;
mod transfers;
mod views;
mod world;
