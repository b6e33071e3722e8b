//! Rows as they are read: with their version, and lists in bounded pages.
//! Must hold: a page is bounded by count and by bytes and is never empty while there is more.

use crate::limits;

/// A row as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Versioned<T> {
    pub version: u64,
    pub row: T,
}

/// A bounded part of a list. If `more`, read again after the last row.
#[derive(Clone, Debug, PartialEq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    pub more: bool,
}

impl<T> Versioned<T> {
    /// The same version with another row.
    pub fn map<U>(self, row: impl FnOnce(T) -> U) -> Versioned<U> {
        Versioned { version: self.version, row: row(self.row) }
    }
}

impl<T> Page<T> {
    /// Takes from `rows` until the page is full by count or by bytes.
    pub fn fill<E>(
        limit: u32,
        bytes: impl Fn(&T) -> usize,
        rows: impl Iterator<Item = Result<T, E>>,
    ) -> Result<Page<T>, E> {
        let limit = limit.clamp(1, limits::PAGE_ROWS) as usize;
        let mut page = Page { rows: Vec::new(), more: false };
        let mut room = limits::PAGE_BYTES;
        for row in rows {
            let row = row?;
            let size = bytes(&row);
            if page.rows.len() == limit || (size > room && !page.rows.is_empty()) {
                page.more = true;
                break;
            }
            room = room.saturating_sub(size);
            page.rows.push(row);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_full_by_count_or_by_bytes_and_never_empty() {
        let fill = |limit, sizes: &[usize]| {
            let rows = sizes.iter().map(|&size| Ok::<usize, ()>(size));
            let page = Page::fill(limit, |&size| size, rows).unwrap();
            (page.rows.len(), page.more)
        };
        assert_eq!(fill(2, &[1, 1]), (2, false));
        assert_eq!(fill(2, &[1, 1, 1]), (2, true));
        assert_eq!(fill(0, &[1, 1]), (1, true), "a limit of nothing means one");
        assert_eq!(fill(9, &[limits::PAGE_BYTES + 1, 1]), (1, true), "one too large travels alone");
        assert_eq!(fill(9, &[1, limits::PAGE_BYTES]), (1, true));
    }
}
