//! API keys, in memory.

use super::page::page;
use crate::key::ApiKey;
use crate::page::{Page, Versioned};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct ApiKeyTable(BTreeMap<Arc<str>, Versioned<ApiKey>>);

impl ApiKeyTable {
    pub fn version(&self, id: &str) -> u64 {
        self.0.get(id).map_or(0, |key| key.version)
    }

    pub fn put(&mut self, key: &ApiKey, version: u64) {
        self.0.insert(key.id.clone(), Versioned { version, row: key.clone() });
    }

    pub fn delete(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub fn by_hash(&self, hash: &[u8; 32]) -> Option<Versioned<ApiKey>> {
        self.0.values().find(|key| key.row.hash == *hash).cloned()
    }

    pub fn page(&self, after: Option<&str>, limit: u32) -> Page<Versioned<ApiKey>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        page(limit, |_| 0, self.0.range::<str, _>((from, Bound::Unbounded)).map(|(_, key)| key.clone()))
    }
}
