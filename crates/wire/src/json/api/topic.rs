//! Topics: the reply to a publish, and reports about topics.

use serde::Serialize;

/// `POST /v1/topics/{topic}/events`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PublishReport<'a> {
    pub topic: &'a str,
    pub first_seq: u64,
    pub last_seq: u64,
    pub accepted: usize,
    pub duplicates: usize,
}

/// What was removed, by name.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Deleted<'a> {
    pub deleted: &'a str,
}

/// `GET /v1/topics/{topic}`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TopicReport<'a> {
    pub topic: &'a str,
    pub publisher: Option<&'a str>,
    pub events: u64,
    pub subscriptions: u64,
    pub created_at: u64,
}

/// `GET /v1/topics`.
#[derive(Clone, Debug, Serialize)]
pub struct TopicList<'a> {
    pub topics: Vec<TopicReport<'a>>,
    pub next: Option<&'a str>,
}
