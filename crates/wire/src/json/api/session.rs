//! `GET /v1/sessions/{client}`: why a session counts as online.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct SessionReport {
    pub client: String,
    pub user: Option<String>,
    pub name: Option<String>,
    pub node: String,
    pub shard: usize,
    pub since: u64,
    /// `websocket`, `sse`, `poll`, or null while nothing is attached.
    pub transport: Option<&'static str>,
    pub online: bool,
    pub why: String,
    pub heard_at: u64,
    pub expires_at: Option<u64>,
    pub token_expires_at: Option<u64>,
    pub channels: Vec<String>,
    pub patterns: Vec<String>,
    pub mailbox: MailboxReport,
}

#[derive(Debug, Serialize)]
pub struct MailboxReport {
    pub first: u64,
    pub last: u64,
    pub sent: u64,
    pub events: usize,
    pub bytes: usize,
}
