//! Models of the lease protocol: the production nodes in every order of events that small bounds allow.
//!
//! A model is a [`Setup`](setup::Setup): which nodes there are, what they may be told to do and how far time runs.
//! [`world`] turns it into states and actions, [`tables`] runs the production code for a step (and remembers the
//! step, because the same node meets the same message in millions of states), [`report`] lets the checker loose on
//! it and judges the result.
//!
//! `FLEASEFS_LONG=1` widens the bounds to those of `docs/lease.md`; `FLEASEFS_MODEL_STORY=1` prints the story of
//! every planted bug that is found.
#![allow(clippy::print_stdout, reason = "counts and stories are what these tests have to tell")]

mod acquire;
mod dropping;
mod giving_up;
mod milestone;
mod paxos;
#[path = "../planted_bugs/mod.rs"]
mod planted_bugs;
mod report;
mod restart;
mod setup;
mod story;
mod tables;
mod views;
mod world;
