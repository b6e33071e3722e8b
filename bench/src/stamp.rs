//! The number and send time in a published payload. Written in place and read back without
//! parsing the message around it.
//! Must hold: a payload is one JSON string of exactly the asked size, so that every protocol may carry it
//! unchanged.

/// The smallest payload that holds a stamp: two quotes, six digits of number, eight of time.
pub const SMALLEST: usize = 16;

const NUMBER: usize = 6;
const TIME: usize = 8;
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

/// The number of a message among those of its publisher, and its time in nanoseconds since the load began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub number: u64,
    pub at_ns: u64,
}

/// A payload of `size` bytes, ready to be stamped.
pub fn blank(size: usize) -> Vec<u8> {
    assert!(size >= SMALLEST);
    let mut payload = vec![b'x'; size];
    payload[0] = b'"';
    payload[size - 1] = b'"';
    payload
}

impl Stamp {
    pub fn write(self, payload: &mut [u8]) {
        digits(self.number, &mut payload[1..=NUMBER]);
        digits(self.at_ns, &mut payload[1 + NUMBER..=NUMBER + TIME]);
    }

    /// Reads the stamp of a payload that begins with its quote. Nothing if it carries none.
    pub fn read(payload: &[u8]) -> Option<Self> {
        if payload.len() < SMALLEST || payload[0] != b'"' {
            return None;
        }
        let number = value(&payload[1..=NUMBER])?;
        let at_ns = value(&payload[1 + NUMBER..=NUMBER + TIME])?;
        Some(Self { number, at_ns })
    }
}

fn digits(mut value: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = DIGITS[(value & 63) as usize];
        value >>= 6;
    }
}

fn value(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |value, digit| {
        let six = match digit {
            b'0'..=b'9' => digit - b'0',
            b'A'..=b'Z' => digit - b'A' + 10,
            b'a'..=b'z' => digit - b'a' + 36,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        Some(value << 6 | u64::from(six))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_from_every_size() {
        for size in [16, 17, 256] {
            for stamp in [
                Stamp { number: 0, at_ns: 0 },
                Stamp { number: 1, at_ns: 123_456_789_012 },
                Stamp { number: (1 << 36) - 1, at_ns: (1 << 48) - 1 },
            ] {
                let mut payload = blank(size);
                stamp.write(&mut payload);
                assert_eq!(payload.len(), size);
                assert_eq!(Stamp::read(&payload), Some(stamp));
                assert!(serde_json::from_slice::<String>(&payload).is_ok());
            }
        }
    }

    #[test]
    fn foreign_payloads_carry_no_stamp() {
        assert_eq!(Stamp::read(b""), None);
        assert_eq!(Stamp::read(b"\"short\""), None);
        assert_eq!(Stamp::read(b"\"!!!!!!!!!!!!!!!!\""), None);
        assert_eq!(Stamp::read(b"0123456789abcdefgh"), None);
    }
}
