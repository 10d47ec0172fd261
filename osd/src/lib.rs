//! osd.
