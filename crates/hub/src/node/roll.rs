//! The roll call: somebody who is no node asks all that share a bus who they are. It is the question for a session that
//! nobody has, and every node answers that.

use super::abroad::{NODE, SESSION};
use std::sync::Arc;
use tavern_domain::{Epoch, SessionKey};
use tavern_engine::{Interest, Parcel, Subject, SubjectError, Writer};
use tavern_wire::bus::letter::{self, Claim, Letter, Says};

pub struct Roll {
    /// Where the answers come; to be listened to before the question is said. Each is `from` one node.
    pub answers: Interest,
    pub question: Parcel,
}

impl Roll {
    /// `name` is nobody's, and `lot` a number that nobody else drew.
    pub fn call(prefix: &str, name: &str, lot: u128) -> Result<Roll, SubjectError> {
        let says = Says::Ask { claim: Claim::Anonymous, gentle: true };
        let letter = Letter { key: SessionKey::from_bits(lot), number: lot as u64, says };
        let question = Parcel {
            subject: Subject::new(prefix, SESSION, b"")?,
            from: Writer::new(name, Epoch(0)),
            n: 1,
            note: Arc::from([]),
            payload: letter::encode(&letter).into(),
        };
        Ok(Roll { answers: Interest::Subject(Subject::new(prefix, NODE, name.as_bytes())?), question })
    }
}
