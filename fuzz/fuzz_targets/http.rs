//! Feeds made-up requests to `tavern::fuzz::http`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern::fuzz::http(data));
