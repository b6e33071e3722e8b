//! The log of topics: the stream `log`, whose ids are positions, its ends in `log-ends`, the list `log-topics` by topic and
//! position, the numbers `topics` with the list `topic-names`, and `event-ids` with the list `event-ids-at` by position.

use super::link::Reply;
use super::reader::{Pages, SENT_BYTES};
use super::script::{LOG, TOPICS};
use super::sheet::{Sheet, padded};
use super::table::Table;
use super::value::{Trouble, number, text};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::limits;
use tavern_store::log::{Append, LogEnds, LogEntry, LogPage, TopicPage, Trim};
use tavern_store::page::Page;

pub(super) fn append(sheet: &mut Sheet, append: &Append) {
    sheet.text("G");
    sheet.text(&append.topic);
    sheet.number(append.id.is_some().into());
    sheet.text(append.id.as_deref().unwrap_or(""));
    sheet.word(&append.body);
}

pub(super) fn restore(sheet: &mut Sheet, entry: &LogEntry) {
    sheet.text("GR");
    sheet.number(entry.position);
    sheet.text(&entry.topic);
    sheet.number(entry.count);
    sheet.number(entry.at.ms());
    sheet.number(entry.id.is_some().into());
    sheet.text(entry.id.as_deref().unwrap_or(""));
    sheet.word(&entry.body);
}

pub(super) fn trim(sheet: &mut Sheet, trim: &Trim) {
    sheet.text("M");
    sheet.number(trim.before);
    sheet.text(&padded(trim.ids_before));
}

pub(super) async fn stretch(
    pages: &Pages<'_>,
    topics: &[Arc<str>],
    after: u64,
    limit: u32,
) -> Result<LogPage, Trouble> {
    let mut words = Sheet::default();
    words.number(after);
    words.text(&padded(after));
    words.number(u64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1);
    words.number(SENT_BYTES as u64);
    topics.iter().collect::<BTreeSet<_>>().into_iter().for_each(|topic| words.text(topic));
    let tables = [Table::LogEnds, Table::Log, Table::LogTopics];
    let parts = pages.way.ask(&LOG.on(pages.keys, &tables, &words)).await?.list()?;
    let [first, head, bytes, more, entries @ ..] = &parts[..] else {
        return Err(Trouble::Strange("a log is cut off"));
    };
    let log = LogEnds { first: first.number()?, head: head.number()?, bytes: bytes.number()? };
    let mut page = Page::fill(limit, |entry: &LogEntry| entry.body.len(), entries.iter().map(entry))?;
    page.more |= more.number()? == 1;
    Ok(LogPage { log, page })
}

/// As a stream gives it: the id, then names and values in turn.
fn entry(reply: &Reply) -> Result<LogEntry, Trouble> {
    let wrong = Trouble::Strange("an event is not as it was made");
    let Reply::List(parts) = reply else { return Err(wrong) };
    let [id, Reply::List(fields)] = &parts[..] else { return Err(wrong) };
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
) -> Result<TopicPage, Trouble> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let mut words = Sheet::default();
    match after {
        Some(name) => words.word(&[b"(", name.as_bytes()].concat()),
        None => words.text("-"),
    }
    words.number(u64::from(limit) + 1);
    let wanted: BTreeSet<&Arc<str>> = names.iter().collect();
    let later = wanted.iter().filter(|name| after.is_none_or(|after| &****name > after));
    let mut asked = 0;
    later.take(limit as usize + 1).for_each(|name| {
        words.text(name);
        asked += 1;
    });
    if asked == 0 && !names.is_empty() {
        // None of them comes later: a name that no topic has asks for nothing but the ends of the log.
        words.text("");
    }
    let tables = [Table::LogEnds, Table::Topics, Table::TopicNames];
    let parts = pages.way.ask(&TOPICS.on(pages.keys, &tables, &words)).await?.list()?;
    let [first, head, bytes, counts @ ..] = &parts[..] else {
        return Err(Trouble::Strange("a list of topics is cut off"));
    };
    let log = LogEnds { first: first.number()?, head: head.number()?, bytes: bytes.number()? };
    let read = |pair: &[Reply]| {
        let [name, count] = pair else { return Err(Trouble::Strange("a list of topics is cut off")) };
        Ok((Arc::from(text(name.text()?)?), count.number()?))
    };
    Ok(TopicPage { log, page: Page::fill(limit, |_| 64, counts.chunks(2).map(read))? })
}
