//! Reads the expiry of an X.509 certificate. Validates nothing else; TLS does that.

use super::moment::day_number;
use tavern_domain::Time;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end of validity of a certificate in DER form.
pub fn not_after(der: &[u8]) -> Option<Time> {
    let (_, certificate, _) = element(der).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut body, _) = element(certificate)?;
    if body.first() == Some(&VERSION) {
        body = element(body)?.2;
    }
    // Serial number, signature algorithm, issuer; then the validity.
    for _ in 0..3 {
        body = element(body)?.2;
    }
    let (_, validity, _) = element(body).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    moment(tag, std::str::from_utf8(text).ok()?)
}

/// The tag, the content, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if !(1..=4).contains(&count) || rest.len() < count {
            return None;
        }
        let (digits, rest) = rest.split_at(count);
        (digits.iter().fold(0, |length, &digit| length << 8 | usize::from(digit)), rest)
    };
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`.
fn moment(tag: u8, text: &str) -> Option<Time> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME if digits.len() == 12 => {
            let short: u64 = digits[..2].parse().ok()?;
            (if short < 50 { 2000 + short } else { 1900 + short }, &digits[2..])
        }
        GENERALIZED_TIME if digits.len() == 14 => (digits[..4].parse().ok()?, &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| rest[at..at + 2].parse::<u64>().ok();
    let days = day_number(year, part(0)?, part(2)?)?;
    Some(Time((days * 86_400 + part(4)? * 3_600 + part(6)? * 60 + part(8)?) * 1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = content.len();
        let mut bytes = if length < 0x80 {
            vec![tag, length as u8]
        } else {
            vec![tag, 0x82, (length >> 8) as u8, length as u8]
        };
        bytes.extend_from_slice(content);
        bytes
    }

    fn certificate(version: bool, tag: u8, end: &str) -> Vec<u8> {
        let mut body = if version { wrap(VERSION, &[2, 1, 2]) } else { Vec::new() };
        body.extend(wrap(2, &[7]));
        body.extend(wrap(SEQUENCE, &[0; 200]));
        body.extend(wrap(SEQUENCE, &[]));
        let validity = [wrap(UTC_TIME, b"200101000000Z"), wrap(tag, end.as_bytes())].concat();
        body.extend(wrap(SEQUENCE, &validity));
        wrap(SEQUENCE, &wrap(SEQUENCE, &body))
    }

    #[test]
    fn expiry_is_read() {
        for (version, tag, end, expected) in [
            (true, UTC_TIME, "261115100820Z", Some(1_794_737_300_000)),
            (false, UTC_TIME, "261115100820Z", Some(1_794_737_300_000)),
            (true, GENERALIZED_TIME, "21000301000000Z", Some(4_107_542_400_000)),
            (true, UTC_TIME, "soon", None),
            (true, UTC_TIME, "261315100820Z", None),
        ] {
            assert_eq!(not_after(&certificate(version, tag, end)), expected.map(Time), "{end}");
        }
    }

    #[test]
    fn other_bytes_have_no_expiry() {
        let whole = certificate(true, UTC_TIME, "261115100820Z");
        for length in 0..whole.len() {
            assert_eq!(not_after(&whole[..length]), None);
        }
        assert_eq!(not_after(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
    }
}
