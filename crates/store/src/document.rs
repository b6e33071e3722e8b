//! Documents: versioned bodies under a kind and a name.

use std::sync::Arc;

/// A versioned body for data without columns of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub key: DocumentKey,
    pub body: Arc<[u8]>,
}

/// The kind and the name of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentKey {
    kind: Arc<str>,
    name: Arc<str>,
}

impl DocumentKey {
    /// The kind is a constant of the caller, never text from outside.
    pub fn new(kind: &str, name: &str) -> DocumentKey {
        DocumentKey::shared(kind, name.into())
    }

    /// The same with a name that is shared, not copied.
    pub fn shared(kind: &str, name: Arc<str>) -> DocumentKey {
        assert!(is_kind(kind), "{kind:?} is not a kind of document");
        DocumentKey { kind: kind.into(), name }
    }

    /// Parses a stored key. `None`: the kind is invalid, so it was not written by Tavern.
    pub fn parse(kind: &str, name: &str) -> Option<DocumentKey> {
        is_kind(kind).then(|| DocumentKey { kind: kind.into(), name: name.into() })
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name, unique within the kind.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Whether it can be the kind of a document or of a deadline.
pub(crate) fn is_kind(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= 32 && text.bytes().all(inner)
}
