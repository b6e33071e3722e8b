//! Letters: what a user must hear, kept until he has read it. Must hold: numbers of one inbox grow by one while something
//! is in it, and never go back; what was dropped unread is told.

use crate::row::Page;
use std::sync::Arc;
use tavern_domain::Time;

/// A letter to post, and how much the inbox may hold with it: beyond that the oldest are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLetter {
    pub user: Arc<str>,
    pub body: Arc<[u8]>,
    pub most_letters: usize,
    pub most_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    pub n: u64,
    pub at: Time,
    pub body: Arc<[u8]>,
}

/// Letters that go, from the oldest through a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freed {
    pub user: Arc<str>,
    pub through: u64,
    /// Nobody has read them: they were kept too long.
    pub unread: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Letters {
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    pub page: Page<Letter>,
}
