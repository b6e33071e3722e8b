//! The roll call: somebody who is no node asks all that share a bus who they are. It is the question for a session that
//! nobody has, and every node answers that.

use super::bus_messages::{NODE, SESSION};
use std::sync::Arc;
use tavern_domain::{Epoch, SessionKey};
use tavern_store::{BusPacket, Interest, Subject, SubjectError, Writer};
use tavern_wire::bus::migration::{self, MigrationAction, MigrationRequest, SessionClaim};

pub struct NodeQuery {
    /// Where the answers come; to be listened to before the question is said. Each is `from` one node.
    pub answers: Interest,
    pub question: BusPacket,
}

impl NodeQuery {
    /// `name` is nobody's, and `lot` a number that nobody else drew.
    pub fn call(prefix: &str, name: &str, lot: u128) -> Result<NodeQuery, SubjectError> {
        let says = MigrationAction::Ask { claim: SessionClaim::Anonymous, gentle: true };
        let request = MigrationRequest { key: SessionKey::from_bits(lot), number: lot as u64, step: says };
        let question = BusPacket {
            subject: Subject::new(prefix, SESSION, b"")?,
            from: Writer::new(name, Epoch(0)),
            n: 1,
            header: Arc::from([]),
            payload: migration::encode(&request).into(),
        };
        Ok(NodeQuery { answers: Interest::Subject(Subject::new(prefix, NODE, name.as_bytes())?), question })
    }
}
