//! Inboxes: messages for a user, kept until the user has read them. Must hold: numbers of one inbox grow by one while
//! it has messages, and never go back; messages that were dropped unread are reported.

use crate::page::Page;
use std::sync::Arc;
use tavern_domain::Time;

/// A message to add, and how much the inbox may hold with it: above that the oldest are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewInboxMessage {
    pub user: Arc<str>,
    pub body: Arc<[u8]>,
    pub max_messages: usize,
    pub max_bytes: usize,
}

/// A message in an inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxMessage {
    pub n: u64,
    pub at: Time,
    pub body: Arc<[u8]>,
}

/// Messages to remove, from the oldest through a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreedMessages {
    pub user: Arc<str>,
    pub through: u64,
    /// The user has not read them: they expired.
    pub unread: bool,
}

/// A page of a user's inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct InboxPage {
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    pub page: Page<InboxMessage>,
}
