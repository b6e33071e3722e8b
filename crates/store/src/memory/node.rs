//! Nodes and their leases, in memory.

use super::page::page;
use crate::node::{NodeRow, Writer};
use crate::page::Page;
use std::collections::BTreeMap;
use std::ops::Bound;
use tavern_domain::Epoch;

#[derive(Default)]
pub(super) struct Nodes(BTreeMap<Writer, NodeRow>);

impl Nodes {
    pub fn get(&self, node: &Writer) -> Option<NodeRow> {
        self.0.get(node).cloned()
    }

    pub fn epochs(&self, name: &str) -> Vec<NodeRow> {
        let from = Writer::new(name, Epoch(0));
        self.0
            .range(from..)
            .take_while(|(writer, _)| &*writer.node == name)
            .map(|(_, node)| node.clone())
            .collect()
    }

    pub fn put(&mut self, node: &NodeRow) {
        self.0.insert(node.writer.clone(), node.clone());
    }

    pub fn forget(&mut self, node: &Writer) {
        self.0.remove(node);
    }

    pub fn page(&self, after: Option<&Writer>, limit: u32) -> Page<NodeRow> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        page(limit, |_| 0, self.0.range((from, Bound::Unbounded)).map(|(_, node)| node.clone()))
    }
}
