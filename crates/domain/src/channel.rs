//! Channel names: `kind#rest`.
//! Must hold: a name has exactly one kind; a name outside the grammar is reachable from Redis connections only.

use crate::limits;
use core::fmt;

/// Which connections can use a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Everyone,
    RedisOnly,
}

/// A parsed channel name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel<'a> {
    pub name: &'a [u8],
    pub kind: &'a str,
    pub reach: Reach,
}

/// Why a name is not a channel name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    Empty,
    TooLong,
    Grammar,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Empty => "the channel name is empty",
            NameError::TooLong => "the channel name is longer than 255 bytes",
            NameError::Grammar => {
                "a channel name is kind#rest: the kind is [a-z][a-z0-9_-]{0,31}, the rest has no control characters"
            }
        })
    }
}

/// The kind of the own channel of each user, in which the server makes their sessions present.
pub const USER_KIND: &str = "user";

/// The kind of names outside the grammar.
pub const REDIS_KIND: &str = "redis";

const RESERVED: [&str; 4] = ["user", "party", "tavern", "followersof"];

impl<'a> Channel<'a> {
    /// Parses a name of the public grammar.
    pub fn parse(name: &'a str) -> Result<Channel<'a>, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > limits::CHANNEL_BYTES {
            return Err(NameError::TooLong);
        }
        let kind_bytes = name.bytes().position(|byte| byte == b'#').unwrap_or(name.len());
        let kind = &name[..kind_bytes];
        if !is_kind(kind) || has_control(name) {
            return Err(NameError::Grammar);
        }
        Ok(Channel { name: name.as_bytes(), kind, reach: Reach::Everyone })
    }

    /// Parses a name from the Redis protocol, which allows any bytes.
    pub fn parse_redis(name: &'a [u8]) -> Result<Channel<'a>, NameError> {
        if name.len() > limits::REDIS_CHANNEL_BYTES {
            return Err(NameError::TooLong);
        }
        let public = core::str::from_utf8(name).ok().and_then(|name| Channel::parse(name).ok());
        Ok(public.unwrap_or(Channel { name, kind: REDIS_KIND, reach: Reach::RedisOnly }))
    }

    /// Only the server publishes to these channels.
    pub fn is_reserved(&self) -> bool {
        RESERVED.contains(&self.kind)
    }
}

/// Whether a text contains a control character. Names are almost always printable ASCII, which is checked by bytes.
fn has_control(text: &str) -> bool {
    !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.chars().any(char::is_control)
}

/// Whether a text is a valid kind.
pub fn is_kind(kind: &str) -> bool {
    let bytes = kind.as_bytes();
    let follows = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    (1..=limits::KIND_BYTES).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes[1..].iter().all(follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    fn check(name: &str, expected: Result<&str, NameError>) {
        assert_eq!(Channel::parse(name).map(|channel| channel.kind), expected, "{name:?}");
    }

    #[test]
    fn the_grammar_of_names() {
        check("game#ABCDEF", Ok("game"));
        check("lobby#tournament#XYZ", Ok("lobby"));
        check("lobby", Ok("lobby"));
        check("lobby#", Ok("lobby"));
        check("a-b_9#ü ☃", Ok("a-b_9"));
        check("", Err(NameError::Empty));
        check("#x", Err(NameError::Grammar));
        check("Game#x", Err(NameError::Grammar));
        check("9game", Err(NameError::Grammar));
        check("news.sport", Err(NameError::Grammar));
        check("game#a\nb", Err(NameError::Grammar));
        check("game#a\u{85}b", Err(NameError::Grammar));
        check("game#a\u{7f}b", Err(NameError::Grammar));
        check("game#~ü", Ok("game"));
        let kind: String = core::iter::repeat_n('k', 32).collect();
        check(&kind, Ok(&kind));
        check(&(kind + "k"), Err(NameError::Grammar));
        let long: String = "g#".chars().chain(core::iter::repeat_n('x', 253)).collect();
        check(&long, Ok("g"));
        check(&(long + "x"), Err(NameError::TooLong));
    }

    #[test]
    fn redis_channels_may_be_outside_the_grammar() {
        let channel = Channel::parse_redis(b"news.sport").unwrap();
        assert_eq!((channel.kind, channel.reach), ("redis", Reach::RedisOnly));
        assert_eq!(Channel::parse_redis(b"").unwrap().reach, Reach::RedisOnly);
        assert_eq!(Channel::parse_redis(&[0xff, 0]).unwrap().kind, "redis");
        assert_eq!(Channel::parse_redis(b"game#1").unwrap().reach, Reach::Everyone);
        assert_eq!(Channel::parse_redis(&[b'x'; 513]), Err(NameError::TooLong));
        assert_eq!(Channel::parse_redis(&[b'x'; 512]).unwrap().kind, "redis");
    }

    #[test]
    fn some_kinds_are_reserved_for_the_server() {
        for (name, reserved) in [("user#a", true), ("party#1", true), ("tavern", true), ("users#a", false)] {
            assert_eq!(Channel::parse(name).unwrap().is_reserved(), reserved, "{name}");
        }
    }
}
