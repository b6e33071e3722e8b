//! Pages of maps.

use crate::page::{Page, Versioned};
use crate::row::Row;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;

/// A page of rows that cannot fail.
pub(super) fn page<T>(limit: u32, bytes: impl Fn(&T) -> usize, rows: impl Iterator<Item = T>) -> Page<T> {
    match Page::fill(limit, bytes, rows.map(Ok::<T, Infallible>)) {
        Ok(page) => page,
        Err(never) => match never {},
    }
}

/// A page of a whole map.
pub(super) fn rows<K: Ord, T: Clone>(
    map: &BTreeMap<K, Versioned<T>>,
    after: Option<&K>,
    limit: u32,
    row: impl Fn(T) -> Row,
) -> Page<Versioned<Row>> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let found = map.range((from, Bound::Unbounded));
    page(limit, |found: &Versioned<Row>| found.row.bytes(), found.map(|(_, found)| found.clone().map(&row)))
}
