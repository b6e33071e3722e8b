//! Topics: the answer to a publish, and settings of a subscription that the server makes itself.

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

/// The settings of a subscription to be pulled.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NewSubscription<'a> {
    pub topics: &'a [&'a str],
    pub pull: bool,
}
