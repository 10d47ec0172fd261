//! What every decoder has to stand: one check for each, shared by the fuzz targets and by the tests that replay the
//! corpus.

pub mod checks;
mod memory;
