//! Leases, in memory.

use crate::lease::Lease;
use crate::page::Versioned;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Leases(BTreeMap<Arc<str>, Versioned<Lease>>);

impl Leases {
    pub fn version(&self, name: &str) -> u64 {
        self.0.get(name).map_or(0, |lease| lease.version)
    }

    pub fn get(&self, name: &str) -> Option<Versioned<Lease>> {
        self.0.get(name).cloned()
    }

    pub fn put(&mut self, lease: &Lease, version: u64) {
        self.0.insert(lease.name.clone(), Versioned { version, row: lease.clone() });
    }

    pub fn delete(&mut self, name: &str) {
        self.0.remove(name);
    }
}
