//! What a daemon keeps on disk: the only part of the product that touches files.
//!
//! So far it holds what the disk allows at best, for `fleasefs bench floor`.

pub mod floor;
