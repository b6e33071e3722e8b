//! Deadlines, in memory: by name and by due time. Must hold: both agree.

use super::page::page;
use crate::deadline::Deadline;
use crate::page::Page;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use tavern_domain::Time;

#[derive(Default)]
pub(super) struct Deadlines {
    by_name: BTreeMap<(Arc<str>, Arc<str>), Time>,
    by_due: BTreeSet<Deadline>,
}

impl Deadlines {
    pub fn version(&self, kind: &Arc<str>, name: &Arc<str>) -> u64 {
        self.by_name.get(&(kind.clone(), name.clone())).map_or(0, |due| due.0)
    }

    pub fn set(&mut self, deadline: &Deadline) {
        self.delete(&deadline.kind, &deadline.name);
        self.by_name.insert((deadline.kind.clone(), deadline.name.clone()), deadline.due);
        self.by_due.insert(deadline.clone());
    }

    pub fn delete(&mut self, kind: &Arc<str>, name: &Arc<str>) {
        if let Some(due) = self.by_name.remove(&(kind.clone(), name.clone())) {
            let (kind, name) = (kind.clone(), name.clone());
            self.by_due.remove(&Deadline { due, kind, name });
        }
    }

    pub fn due(&self, by: Time, after: Option<&Deadline>, limit: u32) -> Page<Deadline> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let due = self.by_due.range((from, Bound::Unbounded)).take_while(|deadline| deadline.due <= by);
        page(limit, |deadline| deadline.name.len(), due.cloned())
    }
}
