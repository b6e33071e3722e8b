//! What can be asked of topics, by whom, and the replies. Nothing here decides.

use std::sync::Arc;
use tavern_domain::topic::{NAME_BYTES, is_name};
use tavern_domain::{Identity, Scope};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::PublishedEvent;

/// Who publishes and owns when no key is shown.
const NOBODY: &str = "dev";

/// The key that a command was sent with, by its id. What is made with a key belongs to it; an admin may do with it
/// whatever its owner may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCaller {
    pub id: Arc<str>,
    pub admin: bool,
}

impl TopicCaller {
    pub fn of(identity: &Identity) -> TopicCaller {
        let id = identity.key.clone().unwrap_or_else(|| NOBODY.into());
        TopicCaller { id, admin: identity.scopes.has(Scope::Admin) }
    }

    pub fn owns(&self, owner: &str) -> bool {
        *self.id == *owner
    }

    pub fn may(&self, owner: &str) -> bool {
        self.admin || self.owns(owner)
    }
}

#[derive(Debug)]
pub enum TopicCommand {
    /// Adds events to a topic. `once` is the `Idempotency-Key`, short enough for an id: events without an id get one made
    /// from it.
    Publish { topic: Arc<str>, once: Option<String>, events: Vec<PublishedEvent> },
}

#[derive(Debug, PartialEq, Eq)]
pub enum TopicReply {
    Published(Published),
}

/// What became of the events of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    pub first_seq: u64,
    pub last_seq: u64,
    pub accepted: usize,
    pub duplicates: usize,
}

pub fn check_topic_name(name: &str) -> Result<(), Refusal> {
    if is_name(name) {
        return Ok(());
    }
    let message = format!("{name:?} is no topic: 1 to {NAME_BYTES} of a-z, 0-9, `_`, `.` and `-`");
    Err(Refusal::new(Code::BadRequest, message))
}
