//! Deadlines: work that is due at a time, found by time.

use crate::document::is_kind;
use std::sync::Arc;
use tavern_domain::Time;

/// Work that is due at a time. One per kind and name: setting it again moves it. The fields are in the order in which
/// deadlines sort.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    pub due: Time,
    pub kind: Arc<str>,
    pub name: Arc<str>,
}

impl Deadline {
    /// A deadline. Panics if `kind` is not one lower-case word.
    pub fn new(due: Time, kind: &str, name: &str) -> Deadline {
        assert!(is_kind(kind), "{kind:?} is not a kind of deadline");
        Deadline { due, kind: kind.into(), name: name.into() }
    }

    /// Whether this is its kind and name.
    pub fn is(&self, kind: &str, name: &str) -> bool {
        *self.kind == *kind && *self.name == *name
    }
}
