//! Lease coordination.
