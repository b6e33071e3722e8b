//! Documents, in memory.

use crate::row::{Document, DocumentKey, Versioned};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Documents(BTreeMap<DocumentKey, Versioned<Document>>);

impl Documents {
    pub fn version(&self, key: &DocumentKey) -> u64 {
        self.0.get(key).map_or(0, |document| document.version)
    }

    pub fn get(&self, key: &DocumentKey) -> Option<Versioned<Document>> {
        self.0.get(key).cloned()
    }

    pub fn put(&mut self, document: &Document, version: u64) {
        self.0.insert(document.key.clone(), Versioned { version, row: document.clone() });
    }

    pub fn delete(&mut self, key: &DocumentKey) {
        self.0.remove(key);
    }
}
