//! Ids of sessions and epochs of nodes. Randomness is an input.

use alloc::string::String;
use core::fmt;

/// The digits of ids: lower case, safe in URLs and file names, without the look-alikes i, l, o and u.
const DIGITS: &[u8; 32] = b"0123456789bcdfghjkmnpqrstvwxyzae";

/// The public id of one session: 80 random bits, written as 16 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(u128);

/// The secret that resumes a session: 128 random bits, written as 26 characters. Never logged.
#[derive(Clone, Copy)]
pub struct SessionKey(u128);

/// The epoch of a node: it grows with every start and every take-over, and fences off earlier lifetimes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl ClientId {
    /// The length of its text.
    pub const CHARS: usize = 16;
    const MASK: u128 = (1 << 80) - 1;

    pub fn from_random(bits: u128) -> ClientId {
        ClientId(bits & Self::MASK)
    }

    /// For storing it in few bytes; `from_random` reads it back.
    pub fn bits(self) -> u128 {
        self.0
    }

    pub fn parse(text: &str) -> Option<ClientId> {
        read_digits(text, Self::CHARS).map(ClientId)
    }

    pub fn write(self, into: &mut String) {
        write_digits(self.0, Self::CHARS, into);
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(Self::CHARS);
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl SessionKey {
    const CHARS: usize = 26;

    /// A key that belongs to shard `shard` of `shards`: the key itself shows where its session is.
    pub fn from_random(bits: u128, shard: usize, shards: usize) -> SessionKey {
        assert!(shard < shards);
        let shards = shards as u128;
        // Clear the top so that adding the shard cannot overflow.
        let bits = bits >> 1;
        SessionKey(bits - bits % shards + shard as u128)
    }

    pub fn shard(self, shards: usize) -> usize {
        (self.0 % shards as u128) as usize
    }

    pub fn parse(text: &str) -> Option<SessionKey> {
        read_digits(text, Self::CHARS).map(SessionKey)
    }

    pub fn write(self, into: &mut String) {
        write_digits(self.0, Self::CHARS, into);
    }

    /// For indexes and storage; compare secrets with `matches`.
    pub fn bits(self) -> u128 {
        self.0
    }

    /// 64 bits of it, for compact tables.
    pub fn half(self) -> u64 {
        (self.0 >> 32) as u64
    }

    pub fn from_bits(bits: u128) -> SessionKey {
        SessionKey(bits)
    }

    /// Compares in constant time.
    pub fn matches(self, other: SessionKey) -> bool {
        let difference = self.0 ^ other.0;
        core::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(hidden)")
    }
}

fn write_digits(mut bits: u128, chars: usize, into: &mut String) {
    let mut digits = [0u8; 26];
    for digit in digits[..chars].iter_mut().rev() {
        *digit = DIGITS[(bits & 31) as usize];
        bits >>= 5;
    }
    into.push_str(core::str::from_utf8(&digits[..chars]).unwrap_or_default());
}

/// The value of each byte as a digit; 255: it is not one.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        values[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    values
};

fn read_digits(text: &str, chars: usize) -> Option<u128> {
    if text.len() != chars {
        return None;
    }
    let mut bits = 0u128;
    for byte in text.bytes() {
        let digit = VALUES[usize::from(byte)];
        if digit == 255 || bits >> 123 != 0 {
            return None;
        }
        bits = bits << 5 | u128::from(digit);
    }
    Some(bits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::ToString;

    #[test]
    fn ids_are_read_back_as_they_were_written() {
        for bits in [0, 1, 31, 32, u128::MAX, 0x1234_5678_9abc_def0_1122_3344_5566_7788] {
            let client = ClientId::from_random(bits);
            assert_eq!(ClientId::parse(&client.to_string()), Some(client));
            assert_eq!(ClientId::from_random(client.bits()), client);
            for shards in 1..5 {
                let key = SessionKey::from_random(bits, shards - 1, shards);
                let mut text = String::new();
                key.write(&mut text);
                let read = SessionKey::parse(&text).unwrap();
                assert!(read.matches(key));
                assert!(SessionKey::from_bits(key.bits()).matches(key));
                assert_eq!(read.shard(shards), shards - 1);
            }
        }
    }

    #[test]
    fn invalid_text_is_not_an_id() {
        for text in ["", "abc", "0123456789bcdfgu", "0123456789bcdfg!", "0123456789bcdfghj"] {
            assert_eq!(ClientId::parse(text), None, "{text}");
        }
        assert!(SessionKey::parse("eeeeeeeeeeeeeeeeeeeeeeeeee").is_none(), "does not fit 128 bits");
    }

    #[test]
    fn debug_output_hides_the_session_key() {
        assert_eq!(format!("{:?}", SessionKey::from_bits(77)), "SessionKey(hidden)");
    }
}
