//! Reads of topic commands as typed values, from the facts of their transaction.
//! Must hold: the marks of a subscription are as new as its progress, or newer: a change of topics writes both, and
//! events read by marks older than the progress would be misnumbered.

use super::command::TopicCaller;
use super::reading::{LogReading, ReadEvents};
use crate::transaction::{Facts, Need};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::delivery::DeliveryProgress;
use tavern_domain::topic::SubscriptionMarks;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{
    Document, DocumentKey, Found, LogEnds, LogPage, Read, Row, RowKey, RowKind, StoreAnswer, StoreError,
    TopicPage, Versioned,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{
    self, DELETED_TOPICS, DELIVERY, EVENTS, MARKS, RecordError, SUBSCRIPTION, SubscriptionSettings, TOPIC,
    TopicRecord, read_marks, read_progress,
};

const NAME_BYTES: usize = 64;

/// Why a decision cannot continue.
pub(super) enum LoadStop {
    /// Something was not loaded.
    Need(Vec<Need>),
    /// The loaded rows are inconsistent.
    Again,
    Refuse(Refusal),
    Fail(Box<StoreAnswer>),
}

impl From<Refusal> for LoadStop {
    fn from(refusal: Refusal) -> LoadStop {
        LoadStop::Refuse(refusal)
    }
}

fn corrupt(what: String) -> LoadStop {
    LoadStop::Fail(Box::new(StoreAnswer::Failed(StoreError::Corrupt { what, source: None })))
}

fn unexpected() -> LoadStop {
    corrupt("the store returned an unexpected answer".to_owned())
}

/// Loads all of these in one round trip.
pub(super) fn documents(facts: &Facts, keys: impl Iterator<Item = DocumentKey>) -> Result<(), LoadStop> {
    let missing: Vec<Need> = keys.filter(|key| facts.document(key).is_none()).map(Need::Document).collect();
    if missing.is_empty() { Ok(()) } else { Err(LoadStop::Need(missing)) }
}

/// A document that the commit expects as it is.
pub(super) fn document<'a>(
    facts: &'a Facts,
    kind: &str,
    name: &str,
) -> Result<Option<&'a Versioned<Document>>, LoadStop> {
    let key = DocumentKey::new(kind, name);
    facts.document(&key).ok_or_else(|| LoadStop::Need(vec![Need::Document(key)]))
}

/// A document that may change during the transaction: the commit does not expect it.
pub(super) fn peek<'a>(
    facts: &'a Facts,
    kind: &str,
    name: &str,
) -> Result<Option<&'a Versioned<Document>>, LoadStop> {
    match read(facts, Read::Document(DocumentKey::new(kind, name)))? {
        Found::Document(found) => Ok(found.as_ref()),
        _ => Err(unexpected()),
    }
}

fn read(facts: &Facts, read: Read) -> Result<&Found, LoadStop> {
    facts.read(&read).ok_or_else(|| LoadStop::Need(vec![Need::Read(read)]))
}

/// The version of a document; 0 if it does not exist.
pub(super) fn version<T>(found: Option<&Versioned<T>>) -> u64 {
    found.map_or(0, |found| found.version)
}

pub(super) fn parse<T>(
    found: &Versioned<Document>,
    read: impl FnOnce(&[u8]) -> Result<T, RecordError>,
) -> Result<Versioned<T>, LoadStop> {
    let Versioned { version, row } = found;
    match read(&row.body) {
        Ok(row) => Ok(Versioned { version: *version, row }),
        Err(error) => Err(corrupt(format!("{} {:?}: {error}", row.key.kind(), row.key.name()))),
    }
}

/// These topics, each if it exists.
pub(super) fn topics(
    facts: &Facts,
    names: &[Arc<str>],
) -> Result<Vec<Option<Versioned<TopicRecord>>>, LoadStop> {
    documents(facts, names.iter().map(|name| DocumentKey::new(TOPIC, name)))?;
    let parsed = names.iter().map(|name| match document(facts, TOPIC, name)? {
        Some(found) => parse(found, |bytes| record::read(bytes)).map(Some),
        None => Ok(None),
    });
    parsed.collect()
}

pub(super) fn topic(facts: &Facts, name: &Arc<str>) -> Result<Option<Versioned<TopicRecord>>, LoadStop> {
    Ok(topics(facts, std::slice::from_ref(name))?.pop().flatten())
}

pub(super) fn parse_subscription(
    found: &Versioned<Document>,
) -> Result<Versioned<SubscriptionSettings>, LoadStop> {
    parse(found, |bytes| record::read(bytes))
}

/// How many events these topics have had, and the end of the log at the same moment. At most a page of topics.
pub(super) fn counts(facts: &Facts, names: Vec<Arc<str>>) -> Result<&TopicPage, LoadStop> {
    match read(facts, Read::Topics { names, after: None, limit: PAGE_ROWS })? {
        Found::Topics(topics) => Ok(topics),
        _ => Err(unexpected()),
    }
}

/// Before the events of a topic that does not exist are counted: if it is created and deleted again before the commit,
/// that is then a conflict.
pub(super) fn expect_no_deletion(facts: &Facts) -> Result<(), LoadStop> {
    document(facts, EVENTS, DELETED_TOPICS).map(|_| ())
}

/// How many events deleted topics of this name have had.
pub(super) fn past_events(facts: &Facts, name: &Arc<str>) -> Result<u64, LoadStop> {
    expect_no_deletion(facts)?;
    let counts = counts(facts, vec![name.clone()])?;
    Ok(counts.page.rows.first().map_or(0, |(_, count)| *count))
}

/// Asks for all of these counts in one round trip.
pub(super) fn all_counts(facts: &Facts, sets: Vec<Vec<Arc<str>>>) -> Result<Vec<&TopicPage>, LoadStop> {
    let asked = |names: &Vec<Arc<str>>| Read::Topics { names: names.clone(), after: None, limit: PAGE_ROWS };
    let missing: Vec<Need> =
        sets.iter().map(asked).filter(|read| facts.read(read).is_none()).map(Need::Read).collect();
    if !missing.is_empty() {
        return Err(LoadStop::Need(missing));
    }
    sets.into_iter().map(|names| counts(facts, names)).collect()
}

pub(super) fn log_ends(facts: &Facts) -> Result<&LogEnds, LoadStop> {
    Ok(&counts(facts, Vec::new())?.log)
}

pub(super) fn by_name(topics: &TopicPage) -> BTreeMap<Arc<str>, u64> {
    topics.page.rows.iter().cloned().collect()
}

/// A short part of the log.
pub(super) fn log(
    facts: &Facts,
    topics: Vec<Arc<str>>,
    after: u64,
    limit: u32,
) -> Result<&LogPage, LoadStop> {
    log_read(facts, Read::Log { topics, after, limit })
}

/// A read of the log that is kept until the decision ends.
pub(super) fn log_read(facts: &Facts, wanted: Read) -> Result<&LogPage, LoadStop> {
    match read(facts, wanted)? {
        Found::Log(page) => Ok(page),
        _ => Err(unexpected()),
    }
}

/// A page of the log, from which the decision keeps what it needs.
pub(super) fn log_page(facts: &Facts, after: u64) -> Result<&LogPage, LoadStop> {
    one_page(facts, Read::Log { topics: Vec::new(), after, limit: PAGE_ROWS })
}

/// A page of the events of one topic.
pub(super) fn topic_page<'a>(
    facts: &'a Facts,
    topic: &Arc<str>,
    after: u64,
    limit: u32,
) -> Result<&'a LogPage, LoadStop> {
    one_page(facts, Read::Log { topics: vec![topic.clone()], after, limit })
}

fn one_page(facts: &Facts, read: Read) -> Result<&LogPage, LoadStop> {
    match facts.page(&read) {
        Some(Found::Log(page)) => Ok(page),
        Some(_) => Err(unexpected()),
        None => Err(LoadStop::Need(vec![Need::Page(read)])),
    }
}

/// Reads on in a subscription's queue, and returns the state of the log at that moment. None: no event can follow,
/// whatever is published.
pub(super) fn read_on(
    facts: &Facts,
    reading: &mut LogReading,
    limit: u32,
) -> Result<Option<(LogEnds, ReadEvents)>, LoadStop> {
    let Some(read) = reading.read(limit) else { return Ok(None) };
    match facts.page(&read) {
        Some(Found::Log(page)) => Ok(Some((page.log.clone(), reading.take(page.clone())))),
        Some(_) => Err(unexpected()),
        None => Err(LoadStop::Need(vec![Need::Page(read)])),
    }
}

/// Documents of one kind by name, page by page.
#[derive(Clone)]
pub(super) struct Listing {
    kind: &'static str,
    prefix: String,
    after: String,
    limit: u32,
    done: bool,
}

impl Listing {
    pub fn all(kind: &'static str) -> Listing {
        Listing::new(kind, String::new(), String::new(), PAGE_ROWS)
    }

    /// Those that begin with `prefix` and come after `after`.
    pub fn new(kind: &'static str, prefix: String, after: String, limit: u32) -> Listing {
        Listing { kind, prefix, after, limit: limit.min(PAGE_ROWS), done: false }
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    /// The next page; none after the last.
    pub fn next(&mut self, facts: &Facts) -> Result<Option<Vec<Versioned<Document>>>, LoadStop> {
        if self.done {
            return Ok(None);
        }
        // Every name with the prefix sorts after it.
        let after = if self.after.is_empty() { &self.prefix } else { &self.after };
        let after = Some(RowKey::Document(DocumentKey::new(self.kind, after)));
        let read = Read::Rows { kind: RowKind::Document, after, limit: self.limit };
        let page = match facts.page(&read) {
            Some(Found::Rows(page)) => page,
            Some(_) => return Err(unexpected()),
            None => return Err(LoadStop::Need(vec![Need::Page(read)])),
        };
        let mut rows = Vec::with_capacity(page.rows.len());
        self.done = !page.more;
        for found in &page.rows {
            match &found.row {
                Row::Document(row)
                    if row.key.kind() == self.kind && row.key.name().starts_with(&self.prefix) =>
                {
                    rows.push(Versioned { version: found.version, row: row.clone() });
                }
                _ => {
                    self.done = true;
                    break;
                }
            }
        }
        if let Some(last) = rows.last() {
            self.after = last.row.key.name().to_owned();
        }
        Ok(Some(rows))
    }
}

/// The stored rows of one subscription.
pub(super) struct SubscriptionRows {
    pub subscription: Versioned<SubscriptionSettings>,
    pub delivery: Versioned<DeliveryProgress>,
    pub marks: Versioned<Arc<SubscriptionMarks>>,
}

impl SubscriptionRows {
    /// The caller's own, or any for an admin.
    pub fn open(facts: &Facts, caller: &TopicCaller, name: &str) -> Result<SubscriptionRows, LoadStop> {
        let Some(rows) = SubscriptionRows::find(facts, name)? else {
            let message =
                format!("there is no subscription {name:?}; create it with PUT /v1/subscriptions/{name}");
            return Err(Refusal::new(Code::NotFound, message).into());
        };
        allow(caller, &rows.subscription.row)?;
        Ok(rows)
    }

    pub fn find(facts: &Facts, name: &str) -> Result<Option<SubscriptionRows>, LoadStop> {
        check_subscription_name(name)?;
        Ok(SubscriptionRows::find_all(facts, &[name.into()])?.pop().flatten())
    }

    /// Several of them. None for one that is being created or deleted.
    pub fn find_all(facts: &Facts, names: &[Arc<str>]) -> Result<Vec<Option<SubscriptionRows>>, LoadStop> {
        documents(facts, names.iter().map(|name| DocumentKey::new(DELIVERY, name)))?;
        let others = |name: &Arc<str>| [MARKS, SUBSCRIPTION].map(|kind| DocumentKey::new(kind, name));
        documents(facts, names.iter().flat_map(others))?;
        names.iter().map(|name| SubscriptionRows::of(facts, name)).collect()
    }

    fn of(facts: &Facts, name: &str) -> Result<Option<SubscriptionRows>, LoadStop> {
        let (delivery, marks) = (document(facts, DELIVERY, name)?, document(facts, MARKS, name)?);
        let (Some(subscription), Some(delivery), Some(marks)) =
            (document(facts, SUBSCRIPTION, name)?, delivery, marks)
        else {
            return Ok(None);
        };
        Ok(Some(SubscriptionRows {
            subscription: parse_subscription(subscription)?,
            delivery: parse(delivery, read_progress)?,
            marks: parse(marks, |bytes| read_marks(bytes).map(Arc::new))?,
        }))
    }

    pub fn name(&self) -> &Arc<str> {
        &self.subscription.row.name
    }

    pub fn topics(&self) -> Vec<Arc<str>> {
        self.marks.row.topics().cloned().collect()
    }
}

pub(super) fn allow(caller: &TopicCaller, subscription: &SubscriptionSettings) -> Result<(), Refusal> {
    if caller.may(&subscription.owner) {
        return Ok(());
    }
    let message =
        "this subscription belongs to another key; choose another name, or use that key or an admin key";
    Err(Refusal::new(Code::NotAllowed, message))
}

pub(super) fn check_subscription_name(name: &str) -> Result<(), Refusal> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_path = name == "." || name == "..";
    if (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(allowed) && !is_path {
        return Ok(());
    }
    let message = format!(
        "{name:?} is not a subscription name: use 1 to {NAME_BYTES} of a-z, A-Z, 0-9, `_`, `.` and `-`"
    );
    Err(Refusal::new(Code::BadRequest, message))
}
