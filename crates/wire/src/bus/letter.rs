//! What nodes write to each other about a session that moves. Knows no state: `tavern-hub` says when which letter is
//! written.

use super::message::{self, Claiming, Empty, Saying};
use prost::Message as _;
use std::collections::BTreeMap;
use tavern_domain::{ClientId, SessionKey};

/// One letter. Each concerns one session and one attempt to move it, named by a number that the one who began it chose.
#[derive(Clone, Debug)]
pub struct Letter {
    pub key: SessionKey,
    pub number: u64,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
    Given { client: ClientId, version: u64 },
    /// The new node has it: the old one forgets.
    Taken,
}

/// Who wants the session: only its own user gets it. A client that names nothing but the secret is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    Secret,
    Anonymous,
    User(String),
}

/// What the session listens to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: String,
    pub pattern: bool,
    /// It watches who is there.
    pub presence: bool,
}

pub fn encode(letter: &Letter) -> Vec<u8> {
    let mut key = String::new();
    letter.key.write(&mut key);
    let names = |names: &[Name]| message::Names {
        names: names
            .iter()
            .map(|name| message::Name {
                name: name.name.clone(),
                pattern: name.pattern,
                presence: name.presence,
            })
            .collect(),
    };
    let says = match &letter.says {
        Says::Ask { claim, gentle } => {
            let claim = match claim {
                Claim::Secret => Claiming::Secret(Empty {}),
                Claim::Anonymous => Claiming::Anonymous(Empty {}),
                Claim::User(user) => Claiming::User(user.clone()),
            };
            Saying::Ask(message::Ask { gentle: *gentle, claim: Some(claim) })
        }
        Says::No => Saying::No(Empty {}),
        Says::Moving => Saying::Moving(Empty {}),
        Says::Refused => Saying::Refused(Empty {}),
        Says::Attached => Saying::Attached(Empty {}),
        Says::Here { names: list } => Saying::Here(names(list)),
        Says::Offer { names: list } => Saying::Offer(names(list)),
        Says::Give { versions } => {
            let version = |(channel, version): (&String, &u64)| message::Version {
                channel: channel.clone(),
                version: *version,
            };
            Saying::Give(message::Versions { versions: versions.iter().map(version).collect() })
        }
        Says::Given { client, version } => {
            Saying::Given(message::Given { client: client.to_string(), version: *version })
        }
        Says::Taken => Saying::Taken(Empty {}),
    };
    message::Letter { key, number: letter.number, says: Some(says) }.encode_to_vec()
}

/// None: not a letter that this release understands.
pub fn decode(bytes: &[u8]) -> Option<Letter> {
    let letter = message::Letter::decode(bytes).ok()?;
    let names = |list: message::Names| -> Vec<Name> {
        let name =
            |name: message::Name| Name { name: name.name, pattern: name.pattern, presence: name.presence };
        list.names.into_iter().map(name).collect()
    };
    let says = match letter.says? {
        Saying::Ask(ask) => Says::Ask {
            claim: match ask.claim? {
                Claiming::Secret(_) => Claim::Secret,
                Claiming::Anonymous(_) => Claim::Anonymous,
                Claiming::User(user) => Claim::User(user),
            },
            gentle: ask.gentle,
        },
        Saying::No(_) => Says::No,
        Saying::Moving(_) => Says::Moving,
        Saying::Refused(_) => Says::Refused,
        Saying::Attached(_) => Says::Attached,
        Saying::Here(list) => Says::Here { names: names(list) },
        Saying::Offer(list) => Says::Offer { names: names(list) },
        Saying::Give(list) => {
            Says::Give { versions: list.versions.into_iter().map(|one| (one.channel, one.version)).collect() }
        }
        Saying::Given(given) => {
            Says::Given { client: ClientId::parse(&given.client)?, version: given.version }
        }
        Saying::Taken(_) => Says::Taken,
    };
    Some(Letter { key: SessionKey::parse(&letter.key)?, number: letter.number, says })
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
            Says::Given { client: ClientId::from_random(9), version: u64::MAX },
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
        for bytes in [&b""[..], b"\xff", b"{}"] {
            assert!(decode(bytes).is_none());
        }
        let whole = encode(&Letter { key: SessionKey::from_bits(1), number: 1, says: Says::No });
        assert!(decode(&whole[2..]).is_none(), "without its beginning");
        let silent = message::Letter { says: None, ..message::Letter::decode(&whole[..]).unwrap() };
        assert!(decode(&silent.encode_to_vec()).is_none(), "it says nothing");
        let keyless = message::Letter { key: "?".into(), ..message::Letter::decode(&whole[..]).unwrap() };
        assert!(decode(&keyless.encode_to_vec()).is_none());
    }
}
