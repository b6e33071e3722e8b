//! The inboxes of users, as the store has had them, and what sessions must receive: every message
//! that no session of the user has acknowledged, in order, once, as it was stored.

use super::Outcome;
use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;
use tavern_store::{Found, Read};

/// The member of an event that holds the number of an inbox message.
pub const MESSAGE_ID: &str = "message_id";

#[derive(Default)]
pub struct InboxJudge {
    /// Every message that was ever stored, by user and number.
    stored: BTreeMap<String, BTreeMap<u64, Value>>,
    /// The number up to which a session of the user has acknowledged, or may have.
    acknowledged: BTreeMap<String, u64>,
}

impl InboxJudge {
    /// Records the messages that a commit has added, in order.
    pub fn observe(
        &mut self,
        cluster: &Cluster,
        users: impl Iterator<Item = String>,
    ) -> Result<Vec<(String, Value)>, String> {
        let mut added = Vec::new();
        for user in users {
            let after = self.last(&user);
            let read = Read::Inbox { user: user.as_str().into(), after, limit: 1000 };
            let Found::Inbox(found) = cluster.peek(read) else { continue };
            if found.dropped > 0 {
                return Err(format!("messages of {user} were dropped unread, up to {}", found.dropped));
            }
            for row in found.page.rows {
                let body: Value = serde_json::from_slice(&row.body).map_err(|error| error.to_string())?;
                self.stored.entry(user.clone()).or_default().insert(row.n, body.clone());
                added.push((user.clone(), body));
            }
        }
        Ok(added)
    }

    fn last(&self, user: &str) -> u64 {
        self.stored.get(user).and_then(|stored| stored.last_key_value()).map_or(0, |(n, _)| *n)
    }

    /// A session acknowledges the messages it has received.
    pub fn acknowledge(&mut self, user: &str, message_id: u64) {
        let known = self.acknowledged.entry(user.to_owned()).or_default();
        *known = message_id.max(*known);
    }

    /// A session that has received messages up to `before` receives this one. Returns its number.
    pub fn check_event(&self, user: &str, before: u64, event: &Value) -> Result<u64, String> {
        let id = event[MESSAGE_ID].as_u64().ok_or_else(|| format!("no inbox message: {event}"))?;
        let stored = self.stored.get(user).and_then(|stored| stored.get(&id));
        let body = stored.ok_or_else(|| format!("inbox message {id} of {user} is not in the store"))?;
        let differs = |(name, value): (&String, &Value)| event.get(name) != Some(value);
        if body.as_object().is_none_or(|members| members.iter().any(differs)) {
            return Err(format!("{body} is stored, {event} was received"));
        }
        if id <= before {
            return Err(format!("inbox message {id} was received after {before}"));
        }
        self.check_missing(user, before, id)?;
        Ok(id)
    }

    /// Checks that every unacknowledged message between two numbers was delivered.
    fn check_missing(&self, user: &str, before: u64, id: u64) -> Outcome {
        let known = before.max(self.acknowledged.get(user).copied().unwrap_or(0));
        let stored = self.stored.get(user).filter(|_| known + 1 < id);
        match stored.and_then(|stored| stored.range(known + 1..id).next()) {
            Some((missing, body)) => Err(format!("inbox message {missing} was not delivered: {body}")),
            None => Ok(()),
        }
    }

    /// Everything has been delivered.
    pub fn check_end(&self, user: &str, received: u64) -> Outcome {
        self.check_missing(user, received, self.last(user) + 1)
    }

    /// Every message of every user, in order.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.stored.iter().flat_map(|(user, stored)| stored.values().map(move |body| (user.as_str(), body)))
    }
}
