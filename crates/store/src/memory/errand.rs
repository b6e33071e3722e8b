//! Errands, in memory: by id and by due time. Must hold: both say the same.

use super::store::page;
use crate::row::{Errand, ErrandId, Page};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tavern_domain::Time;

#[derive(Default)]
pub(super) struct Errands {
    by_id: BTreeMap<ErrandId, Errand>,
    by_due: BTreeSet<(Time, ErrandId)>,
}

impl Errands {
    pub fn version(&self, id: &ErrandId) -> u64 {
        self.by_id.get(id).map_or(0, |errand| errand.due.0)
    }

    pub fn add(&mut self, errand: &Errand) {
        self.delete(&errand.id);
        self.by_due.insert((errand.due, errand.id.clone()));
        self.by_id.insert(errand.id.clone(), errand.clone());
    }

    pub fn delete(&mut self, id: &ErrandId) {
        if let Some(errand) = self.by_id.remove(id) {
            self.by_due.remove(&(errand.due, errand.id));
        }
    }

    pub fn due(&self, by: Time, after: Option<&(Time, ErrandId)>, limit: u32) -> Page<Errand> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let due = self.by_due.range((from, Bound::Unbounded)).take_while(|(due, _)| *due <= by);
        page(
            limit,
            |errand: &Errand| errand.body.len(),
            due.filter_map(|(_, id)| self.by_id.get(id)).cloned(),
        )
    }
}
