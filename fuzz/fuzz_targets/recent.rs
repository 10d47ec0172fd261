//! Fuzzes the decoder `recent`; its check stands in `src/checks.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fleasefs_fuzz::checks::check("recent", bytes));
