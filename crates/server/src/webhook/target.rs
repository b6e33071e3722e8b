//! The target of a webhook: a URL that is checked before it is stored. Names are not resolved here; their addresses are
//! checked at every dial. Must hold: a target has the scheme http or https, a host, no user and no fragment; a literal IP
//! address in it is in canonical form and allowed.

use super::address::{Forbidden, Policy};
use http::Uri;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest URL that is accepted.
pub const TARGET_BYTES: usize = 2_048;
/// The longest DNS name.
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookTarget(Uri);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the URL is longer than 2048 bytes")]
    TooLong,
    #[error("the URL must start with {0}")]
    Scheme(&'static str),
    #[error("http:// is not allowed: use https://, or set events.allow_http")]
    Plain,
    #[error("the URL must not contain a user or password: use headers")]
    User,
    #[error("the URL must not contain a fragment (#)")]
    Fragment,
    #[error("the URL contains a character that must be percent-encoded")]
    Character,
    #[error("{0:?} is not a host name")]
    Host(String),
    #[error("the port must be a number from 1 to 65535")]
    Port,
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("write the host as {0}")]
    Spelling(Ipv4Addr),
    #[error("this is not a URL")]
    Malformed,
}

impl WebhookTarget {
    pub fn parse(text: &str, policy: &Policy) -> Result<WebhookTarget, TargetError> {
        if text.len() > TARGET_BYTES {
            return Err(TargetError::TooLong);
        }
        let allowed = if policy.allow_http { "https:// or http://" } else { "https://" };
        let (scheme, rest) = text.split_once("://").ok_or(TargetError::Scheme(allowed))?;
        match scheme.to_ascii_lowercase().as_str() {
            "https" => {}
            "http" if policy.allow_http => {}
            "http" => return Err(TargetError::Plain),
            _ => return Err(TargetError::Scheme(allowed)),
        }
        // The URI parser drops a fragment silently.
        if text.contains('#') {
            return Err(TargetError::Fragment);
        }
        // Some parsers treat a backslash as a slash and see another host.
        if text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
            return Err(TargetError::Character);
        }
        let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
        if authority.contains('@') {
            return Err(TargetError::User);
        }
        let (host, port) = split(authority);
        if let Some(literal) = literal(host)? {
            policy.check(literal)?;
            // Parsers disagree about unusual forms: 010.0.0.1 is decimal for some, octal for others.
            if let IpAddr::V4(four) = literal
                && host.parse() != Ok(four)
            {
                return Err(TargetError::Spelling(four));
            }
        }
        if let Some(port) = port {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse::<u16>().ok().filter(|number| digits && *number > 0);
            number.ok_or(TargetError::Port)?;
        }
        let uri: Uri = text.parse().map_err(|_| TargetError::Malformed)?;
        // The checked host must be the one that is dialled.
        if uri.host() != Some(host) || uri.port().map(|found| found.as_str().to_owned()).as_deref() != port {
            return Err(TargetError::Malformed);
        }
        Ok(WebhookTarget(uri))
    }

    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Host and port, for metrics and logs: the path may contain a secret.
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }
}

impl fmt::Display for WebhookTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn split(authority: &str) -> (&str, Option<&str>) {
    let after = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after..].find(':') {
        Some(colon) => (&authority[..after + colon], Some(&authority[after + colon + 1..])),
        None => (authority, None),
    }
}

/// The IP address that a host spells in any form; None for a name.
fn literal(host: &str) -> Result<Option<IpAddr>, TargetError> {
    let wrong = || TargetError::Host(host.to_owned());
    if let Some(inside) = host.strip_prefix('[') {
        let six = inside.strip_suffix(']').and_then(|six| six.parse::<Ipv6Addr>().ok());
        return six.map(|six| Some(IpAddr::V6(six))).ok_or_else(wrong);
    }
    let bare = host.strip_suffix('.').unwrap_or(host);
    let last = bare.rsplit('.').next().unwrap_or(bare);
    if number(last).is_some() || last.bytes().all(|byte| byte.is_ascii_digit()) && !last.is_empty() {
        return spelled(bare).map(|four| Some(IpAddr::V4(four))).ok_or_else(wrong);
    }
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=LABEL_BYTES).contains(&label.len()) && label.bytes().all(plain)
    };
    if host.len() > NAME_BYTES || !host.split('.').all(label) {
        return Err(wrong());
    }
    Ok(None)
}

/// An IPv4 address as `inet_aton` reads it: one to four numbers; the last one fills the remaining bytes.
fn spelled(host: &str) -> Option<Ipv4Addr> {
    let mut bits: u64 = 0;
    let count = host.split('.').count();
    for (at, part) in host.split('.').enumerate() {
        let value = number(part)?;
        let last = at + 1 == count;
        let room = if last { 8 * (5u32.checked_sub(count as u32)?) } else { 8 };
        if room == 0 || value >> room != 0 {
            return None;
        }
        bits = bits << room | value;
    }
    u32::try_from(bits).ok().map(Ipv4Addr::from_bits)
}

/// Decimal, octal after `0`, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X'] => return Some(0),
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
