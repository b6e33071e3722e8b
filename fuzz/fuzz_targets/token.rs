//! Feeds random bytes to `tavern::fuzz::token`, which checks the properties.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern::fuzz::token(data));
