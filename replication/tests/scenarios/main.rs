//! Stories about one object at a few nodes, told step by step.

mod cluster;
mod commits;
mod failovers;
mod rules;
mod storms;
