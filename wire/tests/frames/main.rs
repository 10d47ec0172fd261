//! Frames: their bytes, their way to a message, and everything that is refused on it.

#[path = "../../../fuzz/src/memory.rs"]
mod allocator;
mod files;
mod golden;
mod memory;
mod properties;
mod reader;
mod refused;
mod samples;
mod stored;
