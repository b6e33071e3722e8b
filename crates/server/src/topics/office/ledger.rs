//! The office's way to the store: documents as records, edits that are decided anew when somebody else was quicker.
//! Must hold: a commit names every version from which it was decided; what the store does not answer is not taken for done.

use crate::random::random_bits;
use crate::store_client::StoreClientError;
use crate::topics::TopicsApi;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{
    Append, Commit, Document, DocumentKey, Expect, Found, Page, Read, Receipt, Row, RowKey, RowKind,
    StoreError, TopicPage, Trim, Versioned, Writer,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{self, RecordError};

/// How often an edit is decided anew before its author is asked to come again.
const TRIES: u32 = 8;

/// Counts how often an edit was decided.
#[derive(Default)]
pub struct Tries(u32);

impl Tries {
    /// Another one, if there are not too many. Whoever lost waits a little, so that two do not meet each time.
    pub async fn another(&mut self) -> Result<(), Refusal> {
        self.0 += 1;
        if self.0 > TRIES {
            let message = "others change the same thing all the time; try again";
            return Err(Refusal::new(Code::Unavailable, message).retry_after(RETRY_AFTER_MS));
        }
        if self.0 > 1 {
            let most_us = 1_000 << self.0;
            tokio::time::sleep(Duration::from_micros(random_bits() as u64 % most_us)).await;
        }
        Ok(())
    }
}

/// What one request changes, all or nothing.
pub struct Edit {
    commit: Commit,
}

impl Edit {
    pub fn new(api: &TopicsApi) -> Edit {
        let writer = Writer::new(&api.node.settings.node, api.node.epoch());
        Edit { commit: Commit { writer: Some(writer), ..Commit::default() } }
    }

    /// It was decided from this version; 0: there was none.
    pub fn expect(&mut self, kind: &str, name: &str, version: u64) {
        self.commit.expects.push(Expect { key: key(kind, name), version });
    }

    pub fn put(&mut self, kind: &str, name: &str, body: impl Into<Arc<[u8]>>) {
        let document = Document { key: DocumentKey::new(kind, name), body: body.into() };
        self.commit.puts.push(Row::Document(document));
    }

    pub fn delete(&mut self, kind: &str, name: &str) {
        self.commit.deletes.push(key(kind, name));
    }

    pub fn append(&mut self, appends: impl IntoIterator<Item = Append>) {
        self.commit.appends.extend(appends);
    }

    /// The log is cut.
    pub fn trim(&mut self, trim: Trim) {
        self.commit.trim = Some(trim);
    }

    /// The couriers of all nodes look at the subscriptions anew.
    pub fn raise(&mut self) {
        self.put(record::EVENTS, record::SUBSCRIPTIONS, *b"{}");
    }

    /// None: somebody else was quicker; read again.
    pub async fn commit(self, api: &TopicsApi) -> Result<Option<Receipt>, Refusal> {
        match api.store.commit(self.commit).await {
            Ok(receipt) => Ok(Some(receipt)),
            Err(StoreClientError::Store(StoreError::Conflict { .. })) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }
}

fn key(kind: &str, name: &str) -> RowKey {
    RowKey::Document(DocumentKey::new(kind, name))
}

/// A record with its version.
pub type Kept<T> = Versioned<T>;

pub async fn record<T: DeserializeOwned>(
    api: &TopicsApi,
    kind: &str,
    name: &str,
) -> Result<Option<Kept<T>>, Refusal> {
    found(document(api, kind, name).await?, |bytes| record::read(bytes))
}

/// A record that is read by a function of its own.
pub fn found<T>(
    found: Option<Versioned<Document>>,
    read: impl FnOnce(&[u8]) -> Result<T, RecordError>,
) -> Result<Option<Kept<T>>, Refusal> {
    let Some(found) = found else { return Ok(None) };
    let row = read(&found.row.body).map_err(|error| strange(&error, &found.row.key))?;
    Ok(Some(Versioned { version: found.version, row }))
}

fn strange(error: &RecordError, key: &DocumentKey) -> Refusal {
    tracing::error!(%error, kind = key.kind(), name = key.name(), "a record cannot be read");
    Refusal::new(Code::Internal, "a record in the store cannot be read; the server's log says which")
}

pub async fn document(
    api: &TopicsApi,
    kind: &str,
    name: &str,
) -> Result<Option<Versioned<Document>>, Refusal> {
    match read(api, Read::Document(DocumentKey::new(kind, name))).await? {
        Found::Document(found) => Ok(found),
        _ => Err(unexpected()),
    }
}

/// Documents of one kind by name, beginning with `prefix`, after `after`.
pub async fn list(
    api: &TopicsApi,
    kind: &str,
    prefix: &str,
    after: &str,
    limit: u32,
) -> Result<Page<Versioned<Document>>, Refusal> {
    // Whatever begins with the prefix comes after it.
    let after = DocumentKey::new(kind, if after.is_empty() { prefix } else { after });
    let after = Some(RowKey::Document(after));
    let asked = Read::Rows { kind: RowKind::Document, after, limit: limit.min(PAGE_ROWS) };
    let Found::Rows(page) = read(api, asked).await? else { return Err(unexpected()) };
    let (mut rows, mut more) = (Vec::new(), page.more);
    for Versioned { version, row } in page.rows {
        match row {
            Row::Document(row) if row.key.kind() == kind && row.key.name().starts_with(prefix) => {
                rows.push(Versioned { version, row });
            }
            _ => {
                more = false;
                break;
            }
        }
    }
    Ok(Page { rows, more })
}

/// All documents of a kind.
pub async fn all(api: &TopicsApi, kind: &str) -> Result<Vec<Versioned<Document>>, Refusal> {
    let mut rows: Vec<Versioned<Document>> = Vec::new();
    loop {
        let after = rows.last().map_or(String::new(), |last| last.row.key.name().to_owned());
        let page = list(api, kind, "", &after, PAGE_ROWS).await?;
        rows.extend(page.rows);
        if !page.more {
            return Ok(rows);
        }
    }
}

/// How many events these topics have had, and the log at the same moment. No more than a page of them.
pub async fn counts(api: &TopicsApi, names: Vec<Arc<str>>) -> Result<TopicPage, Refusal> {
    match read(api, Read::Topics { names, after: None, limit: PAGE_ROWS }).await? {
        Found::Topics(topics) => Ok(topics),
        _ => Err(unexpected()),
    }
}

pub async fn read(api: &TopicsApi, read: Read) -> Result<Found, Refusal> {
    api.store.read(read).await.map_err(refused)
}

pub fn unexpected() -> Refusal {
    Refusal::new(Code::Internal, "the store answered another question")
}

fn refused(error: StoreClientError) -> Refusal {
    match error {
        StoreClientError::Store(StoreError::TooLarge { what, found, limit }) => {
            Refusal::new(Code::TooLarge, format!("{what}: {found}, at most {limit}"))
        }
        error => {
            tracing::warn!(%error, "the store could not be asked about topics");
            Refusal::new(Code::Unavailable, "the store does not answer; try again")
                .retry_after(RETRY_AFTER_MS)
        }
    }
}

/// The time as the records have it.
pub fn now_ms(api: &TopicsApi) -> u64 {
    let Time(ms) = api.now();
    ms
}
