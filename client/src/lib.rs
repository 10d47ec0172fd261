//! Client sessions as a pure core, and the library that programs use.

pub mod core;
