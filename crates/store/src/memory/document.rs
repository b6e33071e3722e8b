//! Documents, in memory.

use super::page::rows;
use crate::document::{Document, DocumentKey};
use crate::page::{Page, Versioned};
use crate::row::{Row, RowKey};
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

    pub fn rows(&self, after: Option<&RowKey>, limit: u32) -> Page<Versioned<Row>> {
        let after = after.and_then(|key| match key {
            RowKey::Document(key) => Some(key),
            _ => None,
        });
        rows(&self.0, after, limit, Row::Document)
    }

    pub fn delete(&mut self, key: &DocumentKey) {
        self.0.remove(key);
    }
}
