//! A list of documents that is read as a whole when its version has changed: every change of one of them changes a common
//! document too. Must hold: documents that were changed during the read are found by the next one.

use super::PageLoad;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Document, DocumentKey, Found, Read, Row, RowKey, RowKind, Versioned};

pub(crate) struct DocumentList {
    /// The kind of the documents.
    kind: &'static str,
    /// The common document.
    common: DocumentKey,
    /// Its version when they were read last.
    version: Option<u64>,
    /// Its version before the read in progress.
    reading: u64,
    documents: Vec<Versioned<Document>>,
}

impl DocumentList {
    pub fn new(kind: &'static str, common: DocumentKey) -> DocumentList {
        DocumentList { kind, common, version: None, reading: 0, documents: Vec::new() }
    }

    /// Whether it was read at least once.
    pub fn is_loaded(&self) -> bool {
        self.version.is_some()
    }

    /// Reads all of them again, even if the version is the same.
    pub fn forget(&mut self) {
        self.version = None;
    }

    /// The version first: what is changed while the documents are read is found the next time.
    pub fn begin(&mut self) -> Read {
        // What the last read found may not be taken yet.
        Read::Document(self.common.clone())
    }

    pub fn load(&mut self, found: Found) -> PageLoad {
        match found {
            Found::Document(common) => {
                self.documents.clear();
                self.reading = common.map_or(0, |common| common.version);
                match self.version == Some(self.reading) {
                    true => PageLoad::Complete,
                    // Sorts before every name.
                    false => PageLoad::More(self.after(DocumentKey::new(self.kind, ""))),
                }
            }
            Found::Rows(page) => {
                let mut last = None;
                for Versioned { version, row } in page.rows {
                    let Row::Document(document) = row else { continue };
                    if document.key.kind() != self.kind {
                        return PageLoad::Complete;
                    }
                    last = Some(document.key.clone());
                    self.documents.push(Versioned { version, row: document });
                }
                match last.filter(|_| page.more) {
                    Some(last) => PageLoad::More(self.after(last)),
                    None => PageLoad::Complete,
                }
            }
            _ => PageLoad::Unusable,
        }
    }

    fn after(&self, key: DocumentKey) -> Read {
        Read::Rows { kind: RowKind::Document, after: Some(RowKey::Document(key)), limit: PAGE_ROWS }
    }

    /// The documents that were read. None: the list has not changed.
    pub fn take(&mut self) -> Option<Vec<Versioned<Document>>> {
        let changed = self.version.replace(self.reading) != Some(self.reading);
        changed.then(|| std::mem::take(&mut self.documents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_store::Page;

    #[test]
    fn next_read_may_begin_before_the_documents_are_taken() {
        let common = DocumentKey::new("events", "subscriptions");
        let document = |key: DocumentKey| Document { key, body: Arc::from(&b"{}"[..]) };
        let mut list = DocumentList::new("subscription", common.clone());
        list.begin();
        let version = Found::Document(Some(Versioned { version: 7, row: document(common) }));
        assert!(matches!(list.load(version), PageLoad::More(_)));
        let row = Row::Document(document(DocumentKey::new("subscription", "one")));
        let page = Page { rows: vec![Versioned { version: 3, row }], more: false };
        assert!(matches!(list.load(Found::Rows(page)), PageLoad::Complete));
        list.begin();
        let taken = list.take().expect("the list has changed");
        assert_eq!(taken.iter().map(|found| found.row.key.name()).collect::<Vec<_>>(), ["one"]);
    }
}
