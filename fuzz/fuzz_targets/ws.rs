//! Feeds made-up bytes to `tavern_wire::fuzz::ws`, which says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tavern_wire::fuzz::ws(data));
