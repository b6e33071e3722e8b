//! What a stored session carries: subscriptions, rights, mailbox. Knows the bytes, not what they mean.
//! Must hold: what was written is read back the same; foreign bytes are an error and never a large allocation.
//!
//! The encoding, integers in little endian, `text` = `u32` length and that many bytes, `list` = `u32` count and
//! that many entries:
//!
//! | field | form |
//! |---|---|
//! | format | `u8` = 4; 3 ends after statuses, 2 after presences, 1 before them |
//! | token_expires | `u64` milliseconds |
//! | flags | `u8`: 1 unlimited, 2 polling, 4 lost |
//! | scopes | `text`, names joined by commas |
//! | grants | `list` of (pattern `text`, verbs `text` joined by commas) |
//! | subscriptions | `list` of (name `text`, `u8`: 1 pattern, 2 presence) |
//! | last_seq | `u64`: the number of the newest event ever put into the mailbox |
//! | events | `list` of (seq `u64`, event `text`) |
//! | presences | `list` of (channel `text`, `u8`: 1 with a state, state `text`) |
//! | window_ms | `u64`: how long it may stay without a transport before its client is lost; 0: as usual |
//! | told | `list` of (channel `text`, version `u64`): how far it was told about what it watches |
//! | heard | `list` of (node `text`, epoch `u64`, shard `u8`, n `u64`): the last word it could hear of each stream |
//! | statuses | `list` of (user `text`, digest `u64`): what it was told last about those whom its user follows |
//! | letters | `u64`: the highest number of a letter of its user that was put into its mailbox |
//! | post | `list` of (seq `u64`, letter `u64`): letters in the mailbox that were not acknowledged |

use std::sync::Arc;
use tavern_domain::rights::Grant;
use tavern_domain::{Epoch, Rights, Scope, Scopes, Time, Verb};

const FORMAT: u8 = 4;
const WITHOUT_LETTERS: u8 = 3;
const WITHOUT_MARKS: u8 = 2;
const WITHOUT_PRESENCES: u8 = 1;
const UNLIMITED: u8 = 1;
const POLLING: u8 = 2;
const LOST: u8 = 4;
const PATTERN: u8 = 1;
const PRESENCE: u8 = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionBody {
    pub token_expires: Time,
    pub unlimited: bool,
    pub scopes: Scopes,
    pub rights: Rights,
    pub subscriptions: Vec<Subscription>,
    pub last_seq: u64,
    pub events: Vec<StoredEvent>,
    /// The channels its client is present in, with its state there.
    pub presences: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// It was reached by polls, which come and go.
    pub polling: bool,
    /// Its loss was told: coming back is an arrival.
    pub lost: bool,
    pub window_ms: u64,
    /// The version up to which it was told about each channel it watches.
    pub told: Vec<(Arc<str>, u64)>,
    pub heard: Vec<Stream>,
    /// A digest of what it was told last about each of those whom its user follows.
    pub statuses: Vec<(Arc<str>, u64)>,
    /// The highest letter that was put into its mailbox.
    pub letters: u64,
    /// Which number of the mailbox is which letter, as far as they are not acknowledged.
    pub post: Vec<(u64, u64)>,
}

/// The words of one shard of one life of a node, up to the last one that could be heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub node: Arc<str>,
    pub epoch: Epoch,
    pub shard: u8,
    pub n: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub name: Box<[u8]>,
    pub pattern: bool,
    pub presence: bool,
}

/// An event of the mailbox, without its `seq` in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: u64,
    pub event: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the stored session has format {0}, this program knows {FORMAT}")]
    Format(u8),
    #[error("the stored session ends too early")]
    Short,
    #[error("the stored session holds something unknown")]
    Unknown,
}

impl SessionBody {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend(self.token_expires.0.to_le_bytes());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.push(flag(self.unlimited, UNLIMITED) | flag(self.polling, POLLING) | flag(self.lost, LOST));
        text(&mut out, join(self.scopes.iter().map(Scope::as_str)).as_bytes());
        count(&mut out, self.rights.grants.len());
        for grant in &self.rights.grants {
            text(&mut out, &grant.pattern);
            let verbs = Verb::ALL.into_iter().filter(|&verb| grant.verbs.has(verb));
            text(&mut out, join(verbs.map(Verb::as_str)).as_bytes());
        }
        count(&mut out, self.subscriptions.len());
        for subscription in &self.subscriptions {
            text(&mut out, &subscription.name);
            let pattern = if subscription.pattern { PATTERN } else { 0 };
            out.push(pattern | if subscription.presence { PRESENCE } else { 0 });
        }
        out.extend(self.last_seq.to_le_bytes());
        count(&mut out, self.events.len());
        for event in &self.events {
            out.extend(event.seq.to_le_bytes());
            text(&mut out, &event.event);
        }
        count(&mut out, self.presences.len());
        for (channel, state) in &self.presences {
            text(&mut out, channel.as_bytes());
            out.push(u8::from(state.is_some()));
            text(&mut out, state.as_ref().map_or(&[], |state| state.as_bytes()));
        }
        self.encode_marks(&mut out);
        out
    }

    fn encode_marks(&self, out: &mut Vec<u8>) {
        out.extend(self.window_ms.to_le_bytes());
        count(out, self.told.len());
        for (channel, version) in &self.told {
            text(out, channel.as_bytes());
            out.extend(version.to_le_bytes());
        }
        count(out, self.heard.len());
        for stream in &self.heard {
            text(out, stream.node.as_bytes());
            out.extend(stream.epoch.0.to_le_bytes());
            out.push(stream.shard);
            out.extend(stream.n.to_le_bytes());
        }
        count(out, self.statuses.len());
        for (user, digest) in &self.statuses {
            text(out, user.as_bytes());
            out.extend(digest.to_le_bytes());
        }
        out.extend(self.letters.to_le_bytes());
        count(out, self.post.len());
        for (seq, letter) in &self.post {
            out.extend(seq.to_le_bytes());
            out.extend(letter.to_le_bytes());
        }
    }

    pub fn decode(bytes: &[u8]) -> Result<SessionBody, BodyError> {
        let mut from = Bytes(bytes);
        let format = from.byte()?;
        if !(WITHOUT_PRESENCES..=FORMAT).contains(&format) {
            return Err(BodyError::Format(format));
        }
        let token_expires = Time(from.number()?);
        let flags = from.byte()?;
        let mut body = SessionBody {
            token_expires,
            unlimited: flags & UNLIMITED != 0,
            polling: flags & POLLING != 0,
            lost: flags & LOST != 0,
            scopes: from.words(Scope::parse)?,
            rights: Rights {
                grants: from.list(|from| {
                    Ok(Grant { pattern: from.text()?.into(), verbs: from.words(Verb::parse)? })
                })?,
            },
            subscriptions: from.list(|from| {
                let name = from.text()?.into();
                let flags = from.byte()?;
                Ok(Subscription { name, pattern: flags & PATTERN != 0, presence: flags & PRESENCE != 0 })
            })?,
            last_seq: from.number()?,
            events: from.list(|from| Ok(StoredEvent { seq: from.number()?, event: from.text()?.into() }))?,
            presences: match format {
                WITHOUT_PRESENCES => Vec::new(),
                _ => from.list(|from| {
                    let channel = from.string()?;
                    let given = from.byte()? != 0;
                    let state = from.string()?;
                    Ok((channel, given.then_some(state)))
                })?,
            },
            ..SessionBody::default()
        };
        if format > WITHOUT_MARKS {
            body.window_ms = from.number()?;
            body.told = from.list(|from| Ok((from.string()?, from.number()?)))?;
            body.heard = from.list(|from| {
                let (node, epoch) = (from.string()?, Epoch(from.number()?));
                Ok(Stream { node, epoch, shard: from.byte()?, n: from.number()? })
            })?;
            body.statuses = from.list(|from| Ok((from.string()?, from.number()?)))?;
        }
        if format > WITHOUT_LETTERS {
            body.letters = from.number()?;
            body.post = from.list(|from| Ok((from.number()?, from.number()?)))?;
        }
        if from.0.is_empty() { Ok(body) } else { Err(BodyError::Unknown) }
    }
}

fn join<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(",")
}

fn count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("lists of a session are bounded");
    out.extend(count.to_le_bytes());
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    count(out, bytes.len());
    out.extend(bytes);
}

/// What is left to read.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], BodyError> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(BodyError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, BodyError> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, BodyError> {
        self.take(8)?.try_into().map(u64::from_le_bytes).map_err(|_| BodyError::Short)
    }

    fn count(&mut self) -> Result<usize, BodyError> {
        self.take(4)?.try_into().map(|bytes| u32::from_le_bytes(bytes) as usize).map_err(|_| BodyError::Short)
    }

    fn text(&mut self) -> Result<&'a [u8], BodyError> {
        let bytes = self.count()?;
        self.take(bytes)
    }

    fn string(&mut self) -> Result<Arc<str>, BodyError> {
        std::str::from_utf8(self.text()?).map(Arc::from).map_err(|_| BodyError::Unknown)
    }

    fn words<T, C: FromIterator<T>>(&mut self, parse: impl Fn(&str) -> Option<T>) -> Result<C, BodyError> {
        let text = std::str::from_utf8(self.text()?).map_err(|_| BodyError::Unknown)?;
        let words = text.split(',').filter(|word| !word.is_empty());
        words.map(|word| parse(word).ok_or(BodyError::Unknown)).collect()
    }

    fn list<T>(&mut self, entry: impl Fn(&mut Self) -> Result<T, BodyError>) -> Result<Vec<T>, BodyError> {
        // Nothing is reserved from the announced count: every entry takes bytes, so the input bounds the list.
        let mut list = Vec::new();
        for _ in 0..self.count()? {
            list.push(entry(self)?);
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> SessionBody {
        SessionBody {
            token_expires: Time::NEVER,
            unlimited: true,
            scopes: [Scope::Publish, Scope::Admin].into_iter().collect(),
            rights: Rights::all(),
            subscriptions: vec![
                Subscription { name: (*b"game#A").into(), pattern: false, presence: true },
                Subscription { name: (*b"l\0bby*").into(), pattern: true, presence: false },
            ],
            last_seq: 9,
            events: vec![StoredEvent { seq: 9, event: Arc::from(*b"{}") }],
            presences: vec![("game#A".into(), Some("{}".into())), ("lobby".into(), None)],
            polling: true,
            lost: true,
            window_ms: 7,
            told: vec![("game#A".into(), 5)],
            heard: vec![Stream { node: "n1".into(), epoch: Epoch(3), shard: 2, n: 9 }],
            statuses: vec![("bob".into(), u64::MAX)],
            letters: 4,
            post: vec![(9, 4)],
        }
    }

    #[test]
    fn a_body_is_read_as_it_was_written() {
        for body in [SessionBody::default(), full()] {
            assert_eq!(SessionBody::decode(&body.encode()), Ok(body));
        }
    }

    #[test]
    fn bodies_of_earlier_formats_are_read_without_what_they_had_not() {
        let third = SessionBody { letters: 0, post: Vec::new(), ..full() };
        let mut bytes = third.encode();
        bytes[0] = WITHOUT_LETTERS;
        bytes.truncate(bytes.len() - 12);
        assert_eq!(SessionBody::decode(&bytes), Ok(third.clone()));
        let second =
            SessionBody { window_ms: 0, told: Vec::new(), heard: Vec::new(), statuses: Vec::new(), ..third };
        let mut bytes = second.encode();
        bytes[0] = WITHOUT_MARKS;
        bytes.truncate(bytes.len() - 32);
        assert_eq!(SessionBody::decode(&bytes), Ok(second.clone()));
        let first = SessionBody { presences: Vec::new(), ..second };
        let mut bytes = first.encode();
        bytes[0] = WITHOUT_PRESENCES;
        bytes.truncate(bytes.len() - 36);
        assert_eq!(SessionBody::decode(&bytes), Ok(first));
    }

    #[test]
    fn foreign_bytes_are_refused() {
        let bytes = full().encode();
        for end in 0..bytes.len() {
            assert!(SessionBody::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(SessionBody::decode(&[&bytes[..], b"x"].concat()), Err(BodyError::Unknown));
        assert_eq!(SessionBody::decode(&[7]), Err(BodyError::Format(7)));
        // An announced length far beyond the input allocates nothing.
        assert_eq!(SessionBody::decode(&[&bytes[..10], &[0xff; 4]].concat()), Err(BodyError::Short));
    }
}
