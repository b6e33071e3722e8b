//! Feeds random requests to `tavern::fuzz::http`, which checks the properties.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern::fuzz::http(data));
