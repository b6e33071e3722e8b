//! Discovery: lets a process that is not a node find all nodes on a bus, or the node of one name. To find all, it looks up a
//! session that does not exist, and every node answers.

use super::bus_messages::{NODE, SESSION};
use std::sync::Arc;
use tavern_domain::{Epoch, SessionKey};
use tavern_store::{BusPacket, Interest, Subject, SubjectError, Writer};
use tavern_wire::bus::BusMessage;
use tavern_wire::bus::migration::{self, MigrationAction, MigrationRequest, SessionClaim};

pub struct NodeQuery {
    /// The subject of the answers; subscribe to it before the query is published. Each is `from` one node.
    pub answers: Interest,
    pub question: BusPacket,
}

impl NodeQuery {
    /// `name` is unused, and `lot` is a random number.
    pub fn call(prefix: &str, name: &str, lot: u128) -> Result<NodeQuery, SubjectError> {
        let step = MigrationAction::Ask { claim: SessionClaim::Anonymous, gentle: true };
        let request = MigrationRequest { key: SessionKey::from_bits(lot), number: lot as u64, step };
        let question = BusPacket {
            subject: Subject::new(prefix, SESSION, b"")?,
            from: Writer::new(name, Epoch(0)),
            n: 1,
            header: Arc::from([]),
            payload: migration::encode(&request).into(),
        };
        Ok(NodeQuery { answers: Interest::Subject(Subject::new(prefix, NODE, name.as_bytes())?), question })
    }
    /// Asks the node of this name for its address: `address` reads it from the answer. `asker` is an unused name.
    pub fn holder(prefix: &str, name: &str, asker: &str) -> Result<NodeQuery, SubjectError> {
        let question = BusPacket {
            subject: Subject::new(prefix, NODE, name.as_bytes())?,
            from: Writer::new(asker, Epoch(0)),
            n: 1,
            header: Arc::from([]),
            payload: tavern_wire::bus::name_question(asker).into(),
        };
        Ok(NodeQuery { answers: Interest::Subject(Subject::new(prefix, NODE, asker.as_bytes())?), question })
    }

    pub fn address(answer: &BusPacket) -> Option<Arc<str>> {
        match BusMessage::decode(&answer.payload)? {
            BusMessage::NameAnswer(address) => Some(address),
            _ => None,
        }
    }
}
