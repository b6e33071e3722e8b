//! What a test and its peer process share: bytes as one word of a line, the clock of the machine, and a small random
//! number generator.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Any bytes as one word without spaces. Empty bytes are a lone `%`.
pub fn encode(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "%".into();
    }
    let mut word = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'%' {
            word.push(char::from(byte));
        } else {
            word.push_str(&format!("%{byte:02x}"));
        }
    }
    word
}

pub fn decode(word: &str) -> Vec<u8> {
    if word == "%" {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte == b'%' {
            let digits = std::str::from_utf8(&after[..2]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &after[2..];
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    bytes
}

/// Nanoseconds on the clock that all processes of the machine share.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(outcome, 0, "the clock is readable");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long a thread was runnable without a processor: what a busy machine adds to every measured time.
pub struct Queueing(Option<File>);

impl Queueing {
    pub fn of_this_thread() -> Queueing {
        Queueing(File::open("/proc/thread-self/schedstat").ok())
    }

    pub fn total_ns(&self) -> u64 {
        let mut text = [0; 128];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]);
        text.split_ascii_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

/// A random number generator with a seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}
