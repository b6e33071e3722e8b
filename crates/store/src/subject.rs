//! The names that the bus routes by: `<prefix>.<kind>.<percent-encoded rest>`, or with `>` as the last part, which
//! matches every rest or every kind. Must hold: different names give different subjects, and a subject contains no
//! character that is special to NATS, Redis or file names.

use crate::limits;
use std::fmt;
use std::sync::Arc;
use tavern_domain::{Channel, Reach};

/// A name that the bus routes by.
///
/// ```
/// use tavern_store::Subject;
///
/// let subject = Subject::of_channel("tavern", b"game#1").unwrap();
/// assert_eq!(subject.as_str(), "tavern.game.1");
/// assert!(Subject::every_rest("tavern", "game").unwrap().matches(&subject));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject(Arc<str>);

/// Why a text is not a subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    #[error("a subject's prefix and kind are words of a-z, 0-9, _ and -")]
    Word,
    #[error("the subject is longer than {} bytes", limits::SUBJECT_BYTES)]
    TooLong,
    #[error("the text is not a subject in the form that Tavern writes")]
    Foreign,
}

/// How an empty rest is written: an empty part is not allowed in a subject, and a lone `%` encodes nothing else.
const EMPTY: &str = "%";
const ANY: &str = ">";
/// The kind of channels that are written as their whole name.
const NAME: &str = "_name";

impl Subject {
    /// The subject of one name.
    pub fn new(prefix: &str, kind: &str, rest: &[u8]) -> Result<Subject, SubjectError> {
        check_word(prefix)?;
        check_word(kind)?;
        let mut text = format!("{prefix}.{kind}.");
        if rest.is_empty() {
            text.push_str(EMPTY);
        }
        rest.iter().for_each(|&byte| encode(byte, &mut text));
        bounded(text)
    }

    /// Everything of one kind.
    pub fn every_rest(prefix: &str, kind: &str) -> Result<Subject, SubjectError> {
        check_word(prefix)?;
        check_word(kind)?;
        bounded(format!("{prefix}.{kind}.{ANY}"))
    }

    /// Everything with this prefix.
    pub fn everything(prefix: &str) -> Result<Subject, SubjectError> {
        check_word(prefix)?;
        bounded(format!("{prefix}.{ANY}"))
    }

    /// The subject of a channel's messages. Internal kinds start with `_`, which no channel's kind does.
    pub fn of_channel(prefix: &str, name: &[u8]) -> Result<Subject, SubjectError> {
        let public = Channel::parse_redis(name).ok().filter(|channel| channel.reach == Reach::Everyone);
        match public.map(|channel| (channel.kind, &name[channel.kind.len()..])) {
            Some((kind, b"")) => Subject::new(prefix, kind, b""),
            Some((kind, [b'#', rest @ ..])) if !rest.is_empty() => Subject::new(prefix, kind, rest),
            // `kind#` would look like `kind`; and names that only Redis clients use have no kind.
            _ => Subject::new(prefix, NAME, name),
        }
    }

    /// All subjects of channels whose names start with `kind#`.
    pub fn of_kind(prefix: &str, kind: &[u8]) -> Vec<Subject> {
        let own = std::str::from_utf8(kind).ok().filter(|kind| !kind.starts_with('_'));
        [own, Some(NAME)]
            .into_iter()
            .flatten()
            .filter_map(|kind| Subject::every_rest(prefix, kind).ok())
            .collect()
    }

    /// The name of the channel whose messages these are, if they are a channel's.
    pub fn channel(&self) -> Option<Vec<u8>> {
        let rest = self.rest()?;
        match self.kind() {
            NAME => Some(rest),
            own if own.starts_with('_') => None,
            kind if rest.is_empty() => Some(kind.as_bytes().to_vec()),
            kind => Some([kind.as_bytes(), b"#", &rest].concat()),
        }
    }

    /// Parses a subject that came from outside. Accepts only the form that `new` writes.
    pub fn parse(text: &str) -> Result<Subject, SubjectError> {
        if text.len() > limits::SUBJECT_BYTES {
            return Err(SubjectError::TooLong);
        }
        let subject = Subject(text.into());
        let rest = subject.rest().ok_or(SubjectError::Foreign)?;
        let same = Subject::new(subject.prefix(), subject.kind(), &rest)?;
        if same == subject { Ok(subject) } else { Err(SubjectError::Foreign) }
    }

    /// The subject as text, as servers see it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The prefix of the cluster.
    pub fn prefix(&self) -> &str {
        self.0.split('.').next().unwrap_or("")
    }

    /// The kind; `>` for everything.
    pub fn kind(&self) -> &str {
        self.0.split('.').nth(1).unwrap_or("")
    }

    /// The rest, decoded. None for a wide subject.
    pub fn rest(&self) -> Option<Vec<u8>> {
        decode(self.0.splitn(3, '.').nth(2)?)
    }

    /// Whether it matches many names.
    pub fn is_wide(&self) -> bool {
        self.0.ends_with(ANY)
    }

    /// Whether a subscription to `self` receives messages on `other`.
    pub fn matches(&self, other: &Subject) -> bool {
        match self.0.strip_suffix(ANY) {
            Some(front) => other.0.starts_with(front) && other.0.len() > front.len(),
            None => self == other,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check_word(word: &str) -> Result<(), SubjectError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let good = !word.is_empty() && word.len() <= 64 && word.bytes().all(inner);
    if good { Ok(()) } else { Err(SubjectError::Word) }
}

fn bounded(text: String) -> Result<Subject, SubjectError> {
    if text.len() > limits::SUBJECT_BYTES { Err(SubjectError::TooLong) } else { Ok(Subject(text.into())) }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' || byte == b'~'
}

fn encode(byte: u8, into: &mut String) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain(byte) {
        into.push(byte as char);
    } else {
        into.extend(['%', HEX[(byte >> 4) as usize] as char, HEX[(byte & 15) as usize] as char]);
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    if text == EMPTY {
        return Some(Vec::new());
    }
    let mut rest = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        rest.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            plain if is_plain(plain) => plain,
            _ => return None,
        });
    }
    Some(rest)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_as_they_were_encoded() {
        let every_byte: Vec<u8> = (0..=255).collect();
        for rest in [&b""[..], b"ABC", b"a.b", b"*", b">", b"%", b"a b", b"game#\xc3\xa9", &every_byte] {
            let subject = Subject::new("tavern", "game", rest).unwrap();
            assert_eq!(subject.as_str().matches('.').count(), 2, "{subject}");
            assert!(!subject.as_str().contains([' ', '*', '>', '#', '/']), "{subject}");
            let read = Subject::parse(subject.as_str()).unwrap();
            assert_eq!((read.prefix(), read.kind(), read.rest()), ("tavern", "game", Some(rest.to_vec())));
        }
        assert_eq!(Subject::new("tavern", "game", b"A.#").unwrap().as_str(), "tavern.game.A%2E%23");
    }

    #[test]
    fn every_channel_has_a_subject_of_its_own() {
        let names: [&[u8]; 10] = [
            b"game",
            b"game#",
            b"game#A",
            b"game##",
            b"#",
            b"",
            b"_name#A",
            b"redis#x",
            b"\xff",
            b"game#\x01",
        ];
        let subjects: Vec<Subject> =
            names.iter().map(|name| Subject::of_channel("tavern", name).unwrap()).collect();
        for (at, (name, subject)) in names.iter().zip(&subjects).enumerate() {
            assert_eq!(subject.channel().as_deref(), Some(*name), "{subject}");
            assert!(!subjects[..at].contains(subject), "{subject}");
        }
        assert_eq!(subjects[2].as_str(), "tavern.game.A");
        assert_eq!(Subject::new("tavern", "_shard", b"A").unwrap().channel(), None);
    }

    #[test]
    fn only_the_canonical_form_is_parsed() {
        for text in
            ["", "a", "a.b", "a.b.", "a.b.c.d", "a.b.%2e", "a.b.%41", "a.b.%4", "A.b.c", "a..c", "a.b.>"]
        {
            assert!(Subject::parse(text).is_err(), "{text}");
        }
        assert_eq!(Subject::parse(&"x".repeat(limits::SUBJECT_BYTES + 1)), Err(SubjectError::TooLong));
        assert_eq!(Subject::new("a", "b.c", b""), Err(SubjectError::Word));
        assert_eq!(Subject::new("a", "b", &[0; limits::SUBJECT_BYTES]), Err(SubjectError::TooLong));
    }

    #[test]
    fn a_wide_subject_matches_every_subject_it_stands_for() {
        let message = Subject::new("p", "game", b"A").unwrap();
        let matches = |subject: Result<Subject, _>| subject.unwrap().matches(&message);
        assert!(matches(Subject::new("p", "game", b"A")));
        assert!(matches(Subject::every_rest("p", "game")));
        assert!(matches(Subject::everything("p")));
        assert!(!matches(Subject::new("p", "game", b"AB")));
        assert!(!matches(Subject::every_rest("p", "gam")));
        assert!(!matches(Subject::everything("q")));
    }
}
