//! The audit trail as events of the topic `tavern.audit`: who did what to whom, from where, and how it ended.

use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Append, Commit};
use tavern_wire::json::api::{AuditEvent, encode};
use tavern_wire::json::event::stored;

pub const TOPIC: &str = tavern_domain::topic::AUDIT;

/// Who acts on the store without a server.
pub const COMMAND_LINE: &str = "command line";

pub fn line<'a>(
    action: &'a str,
    target: &'a str,
    key: &'a str,
    from: Option<String>,
    status: u16,
    node: &'a str,
) -> AuditEvent<'a> {
    AuditEvent { action, key, node, from, status, target }
}

/// The event for the topic.
pub fn append(line: &AuditEvent<'_>, now: Time) -> Append {
    let data = encode(line);
    let body = stored(line.action, None, now.ms(), &String::from_utf8_lossy(&data));
    Append { topic: Arc::from(TOPIC), id: None, body: body.into() }
}

pub fn commit(line: &AuditEvent<'_>, now: Time) -> Commit {
    Commit { appends: vec![append(line, now)], ..Commit::default() }
}
