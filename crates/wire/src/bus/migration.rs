//! The messages between nodes about a session that moves. The order of the steps is `tavern-hub`'s.

use super::envelope;
use super::message::{self, AskClaim, Empty, EnvelopeKind, MigrationMessage, MigrationStep};
use std::collections::BTreeMap;
use tavern_domain::{ClientId, SessionKey};

/// One step of one attempt to move one session. The node that began the attempt chose its number.
#[derive(Clone, Debug)]
pub struct MigrationRequest {
    pub key: SessionKey,
    pub number: u64,
    pub step: MigrationAction,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigrationAction {
    /// Which node has this session? Its client is here.
    Ask {
        claim: SessionClaim,
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
    /// It was here and ended with `bye` a moment ago.
    Ended,
    /// It is here, frozen: subscribe to these, then send `give`.
    Here { names: Vec<MovedSubscription> },
    /// The node that has it stops and offers it, in the same way.
    Offer { names: Vec<MovedSubscription> },
    /// The new node has subscribed. It sends presence events of each channel after these versions.
    Give { versions: BTreeMap<String, u64> },
    /// The session is in the store under this client and version: the node that removes it there has it.
    Given { client: ClientId, version: u64 },
    /// The new node has it: the old one deletes its own.
    Taken,
}

/// Who asks for the session. Only its own user or API key gets it; the secret alone is enough for a session that was
/// opened without either.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionClaim {
    Secret,
    Anonymous,
    User(String),
    /// The id of an API key.
    Key(String),
}

/// A subscription of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedSubscription {
    pub name: String,
    pub pattern: bool,
    /// It watches the presence.
    pub presence: bool,
}

pub fn encode(request: &MigrationRequest) -> Vec<u8> {
    let mut key = String::new();
    request.key.write(&mut key);
    let names = |names: &[MovedSubscription]| message::InterestsRecord {
        interests: names
            .iter()
            .map(|name| message::InterestRecord {
                name: name.name.clone(),
                pattern: name.pattern,
                presence: name.presence,
            })
            .collect(),
    };
    let step = match &request.step {
        MigrationAction::Ask { claim, gentle } => {
            let claim = match claim {
                SessionClaim::Secret => AskClaim::Secret(Empty {}),
                SessionClaim::Anonymous => AskClaim::Anonymous(Empty {}),
                SessionClaim::User(user) => AskClaim::User(user.clone()),
                SessionClaim::Key(key) => AskClaim::Key(key.clone()),
            };
            MigrationStep::Ask(message::Ask { gentle: *gentle, claim: Some(claim) })
        }
        MigrationAction::No => MigrationStep::No(Empty {}),
        MigrationAction::Moving => MigrationStep::Moving(Empty {}),
        MigrationAction::Refused => MigrationStep::Refused(Empty {}),
        MigrationAction::Attached => MigrationStep::Attached(Empty {}),
        MigrationAction::Ended => MigrationStep::Ended(Empty {}),
        MigrationAction::Here { names: list } => MigrationStep::Here(names(list)),
        MigrationAction::Offer { names: list } => MigrationStep::Offer(names(list)),
        MigrationAction::Give { versions } => {
            let version = |(channel, version): (&String, &u64)| message::Version {
                channel: channel.clone(),
                version: *version,
            };
            MigrationStep::Give(message::Versions { versions: versions.iter().map(version).collect() })
        }
        MigrationAction::Given { client, version } => {
            MigrationStep::Given(message::GivenRecord { client: client.to_string(), version: *version })
        }
        MigrationAction::Taken => MigrationStep::Taken(Empty {}),
    };
    envelope(EnvelopeKind::Migration(MigrationMessage { key, number: request.number, step: Some(step) }))
}

pub(super) fn read(request: MigrationMessage) -> Option<MigrationRequest> {
    let names = |list: message::InterestsRecord| -> Vec<MovedSubscription> {
        let name = |one: message::InterestRecord| MovedSubscription {
            name: one.name,
            pattern: one.pattern,
            presence: one.presence,
        };
        list.interests.into_iter().map(name).collect()
    };
    let step = match request.step? {
        MigrationStep::Ask(ask) => MigrationAction::Ask {
            claim: match ask.claim? {
                AskClaim::Secret(_) => SessionClaim::Secret,
                AskClaim::Anonymous(_) => SessionClaim::Anonymous,
                AskClaim::User(user) => SessionClaim::User(user),
                AskClaim::Key(key) => SessionClaim::Key(key),
            },
            gentle: ask.gentle,
        },
        MigrationStep::No(_) => MigrationAction::No,
        MigrationStep::Moving(_) => MigrationAction::Moving,
        MigrationStep::Refused(_) => MigrationAction::Refused,
        MigrationStep::Attached(_) => MigrationAction::Attached,
        MigrationStep::Ended(_) => MigrationAction::Ended,
        MigrationStep::Here(list) => MigrationAction::Here { names: names(list) },
        MigrationStep::Offer(list) => MigrationAction::Offer { names: names(list) },
        MigrationStep::Give(list) => MigrationAction::Give {
            versions: list.versions.into_iter().map(|one| (one.channel, one.version)).collect(),
        },
        MigrationStep::Given(given) => {
            MigrationAction::Given { client: ClientId::parse(&given.client)?, version: given.version }
        }
        MigrationStep::Taken(_) => MigrationAction::Taken,
    };
    Some(MigrationRequest { key: SessionKey::parse(&request.key)?, number: request.number, step })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::BusMessage;

    #[test]
    fn a_migration_message_is_read_back_as_it_was_written() {
        let key = SessionKey::from_random(77 << 64 | 5, 0, 1);
        let names = vec![
            MovedSubscription { name: "gäme#A".into(), pattern: false, presence: true },
            MovedSubscription { name: "g*".into(), pattern: true, presence: false },
        ];
        for step in [
            MigrationAction::Ask { claim: SessionClaim::User("ann".into()), gentle: false },
            MigrationAction::Ask { claim: SessionClaim::Key("k1".into()), gentle: false },
            MigrationAction::Ask { claim: SessionClaim::Anonymous, gentle: true },
            MigrationAction::Ask { claim: SessionClaim::Secret, gentle: false },
            MigrationAction::No,
            MigrationAction::Moving,
            MigrationAction::Refused,
            MigrationAction::Attached,
            MigrationAction::Ended,
            MigrationAction::Here { names: names.clone() },
            MigrationAction::Offer { names },
            MigrationAction::Give { versions: [("game#A".into(), u64::MAX)].into() },
            MigrationAction::Given { client: ClientId::from_random(9), version: u64::MAX },
            MigrationAction::Taken,
        ] {
            let bytes = encode(&MigrationRequest { key, number: u64::MAX, step: step.clone() });
            let Some(BusMessage::Session(read)) = BusMessage::decode(&bytes) else { panic!("{step:?}") };
            assert!(read.key.matches(key));
            assert_eq!((read.number, read.step), (u64::MAX, step));
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
