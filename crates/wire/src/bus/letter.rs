//! The messages between nodes about a session that moves. The order of the steps is `tavern-hub`'s.

use super::envelope;
use super::message::{self, AskClaim, Empty, EnvelopeKind, MigrationMessage, MigrationStep};
use std::collections::BTreeMap;
use tavern_domain::{ClientId, SessionKey};

/// One step of one attempt to move one session. The node that began the attempt chose its number.
#[derive(Clone, Debug)]
pub struct Letter {
    pub key: SessionKey,
    pub number: u64,
    pub says: Says,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// Which node has this session? Its client is here.
    Ask {
        claim: Claim,
        /// Only if that does not take a push transport away from the session.
        gentle: bool,
    },
    /// Not here.
    No,
    /// It is moving to another node: ask again in a moment.
    Moving,
    /// It is here, and the claim does not match its user.
    Refused,
    /// It is here with a push transport, and the question was a gentle one.
    Attached,
    /// It is here, frozen: subscribe to these, then send `give`.
    Here { names: Vec<Name> },
    /// The node that has it stops and offers it, in the same way.
    Offer { names: Vec<Name> },
    /// The new node has subscribed. It tells watchers of each channel from these versions on.
    Give { versions: BTreeMap<String, u64> },
    /// The session is in the store under this client and version: the node that removes it there has it.
    Given { client: ClientId, version: u64 },
    /// The new node has it: the old one deletes its own.
    Taken,
}

/// Who asks for the session. Only its own user gets it; for a client without a token the secret is enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    Secret,
    Anonymous,
    User(String),
}

/// A subscription of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: String,
    pub pattern: bool,
    /// It watches the presence.
    pub presence: bool,
}

pub fn encode(letter: &Letter) -> Vec<u8> {
    let mut key = String::new();
    letter.key.write(&mut key);
    let names = |names: &[Name]| message::Interests {
        interests: names
            .iter()
            .map(|name| message::Interest {
                name: name.name.clone(),
                pattern: name.pattern,
                presence: name.presence,
            })
            .collect(),
    };
    let step = match &letter.says {
        Says::Ask { claim, gentle } => {
            let claim = match claim {
                Claim::Secret => AskClaim::Secret(Empty {}),
                Claim::Anonymous => AskClaim::Anonymous(Empty {}),
                Claim::User(user) => AskClaim::User(user.clone()),
            };
            MigrationStep::Ask(message::Ask { gentle: *gentle, claim: Some(claim) })
        }
        Says::No => MigrationStep::No(Empty {}),
        Says::Moving => MigrationStep::Moving(Empty {}),
        Says::Refused => MigrationStep::Refused(Empty {}),
        Says::Attached => MigrationStep::Attached(Empty {}),
        Says::Here { names: list } => MigrationStep::Here(names(list)),
        Says::Offer { names: list } => MigrationStep::Offer(names(list)),
        Says::Give { versions } => {
            let version = |(channel, version): (&String, &u64)| message::Version {
                channel: channel.clone(),
                version: *version,
            };
            MigrationStep::Give(message::Versions { versions: versions.iter().map(version).collect() })
        }
        Says::Given { client, version } => {
            MigrationStep::Given(message::Given { client: client.to_string(), version: *version })
        }
        Says::Taken => MigrationStep::Taken(Empty {}),
    };
    envelope(EnvelopeKind::Migration(MigrationMessage { key, number: letter.number, step: Some(step) }))
}

pub(super) fn read(letter: MigrationMessage) -> Option<Letter> {
    let names = |list: message::Interests| -> Vec<Name> {
        let name =
            |one: message::Interest| Name { name: one.name, pattern: one.pattern, presence: one.presence };
        list.interests.into_iter().map(name).collect()
    };
    let says = match letter.step? {
        MigrationStep::Ask(ask) => Says::Ask {
            claim: match ask.claim? {
                AskClaim::Secret(_) => Claim::Secret,
                AskClaim::Anonymous(_) => Claim::Anonymous,
                AskClaim::User(user) => Claim::User(user),
            },
            gentle: ask.gentle,
        },
        MigrationStep::No(_) => Says::No,
        MigrationStep::Moving(_) => Says::Moving,
        MigrationStep::Refused(_) => Says::Refused,
        MigrationStep::Attached(_) => Says::Attached,
        MigrationStep::Here(list) => Says::Here { names: names(list) },
        MigrationStep::Offer(list) => Says::Offer { names: names(list) },
        MigrationStep::Give(list) => {
            Says::Give { versions: list.versions.into_iter().map(|one| (one.channel, one.version)).collect() }
        }
        MigrationStep::Given(given) => {
            Says::Given { client: ClientId::parse(&given.client)?, version: given.version }
        }
        MigrationStep::Taken(_) => Says::Taken,
    };
    Some(Letter { key: SessionKey::parse(&letter.key)?, number: letter.number, says })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;

    #[test]
    fn a_migration_message_is_read_back_as_it_was_written() {
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
            let Some(BusMessage::Session(read)) = BusMessage::decode(&bytes) else { panic!("{says:?}") };
            assert!(read.key.matches(key));
            assert_eq!((read.number, read.says), (u64::MAX, says));
        }
    }

    #[test]
    fn a_message_without_a_key_or_a_step_is_not_decoded() {
        let whole =
            MigrationMessage { key: "0".repeat(26), number: 1, step: Some(MigrationStep::No(Empty {})) };
        assert!(read(whole.clone()).is_some());
        assert!(read(MigrationMessage { step: None, ..whole.clone() }).is_none());
        assert!(read(MigrationMessage { key: "?".into(), ..whole }).is_none());
    }
}
