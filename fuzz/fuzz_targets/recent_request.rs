//! Fuzzes the decoder `recent_request`; its check stands in `src/checks.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fleasefs_fuzz::checks::check("recent_request", bytes));
