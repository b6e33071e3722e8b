//! What nodes write to each other about a session that moves: JSON with a version, so that two releases can run side by
//! side. Knows no state: `tavern-hub` says when which letter is written.
//! Must hold: what was written is read back the same; anything else is refused.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tavern_domain::{ClientId, SessionKey};

const VERSION: u8 = 1;

/// One letter. Each concerns one session and one attempt to move it, named by a number that the one who began it chose.
#[derive(Clone, Debug)]
pub struct Letter {
    pub key: SessionKey,
    pub number: u64,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "snake_case")]
pub enum Says {
    /// Who has this session? Its client is here and wants it.
    Ask {
        claim: Claim,
        /// Only if no transport that is pushed to would be taken from it.
        gentle: bool,
    },
    /// Not here.
    No,
    /// It is on its way somewhere: ask again in a moment.
    Moving,
    /// It is here, and whoever asks may not have it.
    Refused,
    /// It is here with a transport that would be lost: the question was a gentle one.
    Attached,
    /// It is here, frozen, and can be had: begin to listen to these, then say `give`.
    Here { names: Vec<Name> },
    /// The node that has it stops: somebody else should take it, in the same way.
    Offer { names: Vec<Name> },
    /// The new node listens. The versions are those from which it will tell its watchers.
    Give { versions: BTreeMap<String, u64> },
    /// The session lies in the store under this client and version: whoever removes it there has it.
    Given { client: Id, version: u64 },
    /// The new node has it: the old one forgets.
    Taken,
}

/// Who wants the session: only its own user gets it. A client that names nothing but the secret is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    Secret,
    Anonymous,
    User(String),
}

/// What the session listens to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    pub name: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pattern: bool,
    /// It watches who is there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub presence: bool,
}

/// A client's id as it stands in a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(pub ClientId);

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        let text = String::deserialize(deserializer)?;
        ClientId::parse(&text).map(Id).ok_or_else(|| serde::de::Error::custom("no client id"))
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    v: u8,
    key: String,
    number: u64,
    #[serde(flatten)]
    says: Says,
}

pub fn encode(letter: &Letter) -> Vec<u8> {
    let mut key = String::new();
    letter.key.write(&mut key);
    let envelope = Envelope { v: VERSION, key, number: letter.number, says: letter.says.clone() };
    serde_json::to_vec(&envelope).unwrap_or_default()
}

/// None: not a letter that this release understands.
pub fn decode(bytes: &[u8]) -> Option<Letter> {
    let envelope: Envelope = serde_json::from_slice(bytes).ok()?;
    let key = SessionKey::parse(&envelope.key).filter(|_| envelope.v == VERSION)?;
    Some(Letter { key, number: envelope.number, says: envelope.says })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_they_were_written() {
        let key = SessionKey::from_random(77 << 64 | 5, 0, 1);
        let names = vec![
            Name { name: "gäme#A".into(), pattern: false, presence: true },
            Name { name: "g*".into(), pattern: true, presence: false },
        ];
        for says in [
            Says::Ask { claim: Claim::User("ann".into()), gentle: false },
            Says::Ask { claim: Claim::Anonymous, gentle: true },
            Says::Ask { claim: Claim::Secret, gentle: false },
            Says::No,
            Says::Moving,
            Says::Refused,
            Says::Attached,
            Says::Here { names: names.clone() },
            Says::Offer { names },
            Says::Give { versions: [("game#A".into(), u64::MAX)].into() },
            Says::Given { client: Id(ClientId::from_random(9)), version: u64::MAX },
            Says::Taken,
        ] {
            let bytes = encode(&Letter { key, number: u64::MAX, says: says.clone() });
            let read = decode(&bytes).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&bytes)));
            assert!(read.key.matches(key));
            assert_eq!((read.number, read.says), (u64::MAX, says));
        }
    }

    #[test]
    fn foreign_bytes_are_no_letter() {
        let whole = encode(&Letter { key: SessionKey::from_bits(1), number: 1, says: Says::No });
        let text = String::from_utf8(whole.clone()).unwrap();
        for end in 0..whole.len() {
            assert!(decode(&whole[..end]).is_none(), "cut at {end}");
        }
        assert!(decode(text.replace("\"v\":1", "\"v\":9").as_bytes()).is_none());
        assert!(decode(text.replace("no", "perhaps").as_bytes()).is_none());
        assert!(decode(text.replace("000", "0!0").as_bytes()).is_none());
    }
}
