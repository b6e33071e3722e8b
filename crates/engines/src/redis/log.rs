//! The log of topics: the stream `log`, whose ids are positions, its ends in `log-ends`, the list `log-topics` by topic and
//! position, the numbers `topics` with the list `topic-names`, and `event-ids` with the list `event-ids-at` by position.

use super::connection::RedisReply;
use super::encoder::{Encoder, padded};
use super::error::RedisError;
use super::pages::{Pages, SENT_BYTES};
use super::schema::RedisTable;
use super::script::{LOG, TOPICS};
use super::value::{number, text};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Append, LogEnds, LogEntry, LogPage, Page, TopicPage, Trim, limits};

pub(super) fn append(encoder: &mut Encoder, append: &Append) {
    encoder.text("G");
    encoder.text(&append.topic);
    encoder.number(append.id.is_some().into());
    encoder.text(append.id.as_deref().unwrap_or(""));
    encoder.argument(&append.body);
}

pub(super) fn restore(encoder: &mut Encoder, entry: &LogEntry) {
    encoder.text("GR");
    encoder.number(entry.position);
    encoder.text(&entry.topic);
    encoder.number(entry.count);
    encoder.number(entry.at.ms());
    encoder.number(entry.id.is_some().into());
    encoder.text(entry.id.as_deref().unwrap_or(""));
    encoder.argument(&entry.body);
}

pub(super) fn trim(encoder: &mut Encoder, trim: &Trim) {
    encoder.text("M");
    encoder.number(trim.before);
    encoder.text(&padded(trim.ids_before));
}

pub(super) async fn page(
    pages: &Pages<'_>,
    topics: &[Arc<str>],
    after: u64,
    limit: u32,
) -> Result<LogPage, RedisError> {
    let mut arguments = Encoder::default();
    arguments.number(after);
    arguments.text(&padded(after));
    arguments.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
    arguments.number(SENT_BYTES as u64);
    topics.iter().collect::<BTreeSet<_>>().into_iter().for_each(|topic| arguments.text(topic));
    let tables = [RedisTable::LogEnds, RedisTable::Log, RedisTable::LogTopics];
    let parts = pages.pool.ask(&LOG.on(pages.keys, &tables, &arguments)).await?.list()?;
    let [first, head, bytes, more, entries @ ..] = &parts[..] else {
        return Err(RedisError::Unexpected("a short page of the log"));
    };
    let log = LogEnds { first: first.number()?, head: head.number()?, bytes: bytes.number()? };
    let mut page = Page::fill(limit, |entry: &LogEntry| entry.body.len(), entries.iter().map(entry))?;
    page.more |= more.number()? == 1;
    Ok(LogPage { log, page })
}

/// As a stream returns it: the id, then names and values in turn.
fn entry(reply: &RedisReply) -> Result<LogEntry, RedisError> {
    let wrong = RedisError::Unexpected("an event was changed");
    let RedisReply::List(parts) = reply else { return Err(wrong) };
    let [id, RedisReply::List(fields)] = &parts[..] else { return Err(wrong) };
    let position = text(id.text()?)?.split('-').next().unwrap_or_default();
    let [_, topic, _, count, _, at, _, body, given @ ..] = &fields[..] else { return Err(wrong) };
    let given = match given {
        [_, id] => Some(text(id.text()?)?.into()),
        _ => None,
    };
    Ok(LogEntry {
        position: number(position.as_bytes())?,
        topic: text(topic.text()?)?.into(),
        count: count.number()?,
        at: Time(at.number()?),
        id: given,
        body: body.text()?[..].into(),
    })
}

pub(super) async fn topics(
    pages: &Pages<'_>,
    names: &[Arc<str>],
    after: Option<&str>,
    limit: u32,
) -> Result<TopicPage, RedisError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let mut arguments = Encoder::default();
    match after {
        Some(name) => arguments.argument(&[b"(", name.as_bytes()].concat()),
        None => arguments.text("-"),
    }
    arguments.number(u64::from(limit) + 1);
    let wanted: BTreeSet<&Arc<str>> = names.iter().collect();
    let later = wanted.iter().filter(|name| after.is_none_or(|after| &****name > after));
    let mut asked = 0;
    later.take(limit as usize + 1).for_each(|name| {
        arguments.text(name);
        asked += 1;
    });
    if asked == 0 && !names.is_empty() {
        // No topic is left: a name that no topic has returns only the ends of the log.
        arguments.text("");
    }
    let tables = [RedisTable::LogEnds, RedisTable::Topics, RedisTable::TopicNames];
    let parts = pages.pool.ask(&TOPICS.on(pages.keys, &tables, &arguments)).await?.list()?;
    let [first, head, bytes, counts @ ..] = &parts[..] else {
        return Err(RedisError::Unexpected("a short list of topics"));
    };
    let log = LogEnds { first: first.number()?, head: head.number()?, bytes: bytes.number()? };
    let read = |pair: &[RedisReply]| {
        let [name, count] = pair else { return Err(RedisError::Unexpected("a short list of topics")) };
        Ok((Arc::from(text(name.text()?)?), count.number()?))
    };
    Ok(TopicPage { log, page: Page::fill(limit, |_| 64, counts.chunks(2).map(read))? })
}
