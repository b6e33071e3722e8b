//! Feeds random bytes to `tavern_wire::fuzz::radar`, which checks the properties.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern_wire::fuzz::radar(data));
