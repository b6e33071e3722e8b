//! Feeds random bytes to `tavern_pusher::fuzz::pusher`, which checks the properties.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern_pusher::fuzz::pusher(data));
