//! client-fuse.
