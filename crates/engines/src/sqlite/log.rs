//! The log of topics: the tables `events`, `event_log`, `topics` and `event_ids`.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row, Rows};
use std::collections::HashMap;
use std::sync::Arc;
use tavern_store::{LogEnds, LogEntry, LogPage, Page, TopicPage, Trim, limits};

/// The counts of the log during a batch. Written once, at the end of its transaction.
#[derive(Default)]
pub(super) struct LogCounts {
    head: u64,
    bytes: u64,
    topics: HashMap<Arc<str>, (u64, bool)>,
}

impl LogCounts {
    pub fn read(connection: &Connection) -> Result<LogCounts, Error> {
        let (head, bytes) = ends(connection)?;
        Ok(LogCounts { head, bytes, topics: HashMap::new() })
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn count(&mut self, connection: &Connection, topic: &Arc<str>) -> Result<u64, Error> {
        if let Some((count, _)) = self.topics.get(topic) {
            return Ok(*count);
        }
        let count = count(connection, topic)?;
        self.topics.insert(topic.clone(), (count, false));
        Ok(count)
    }

    pub fn append(&mut self, connection: &Connection, entry: &LogEntry) -> Result<(), Error> {
        append(connection, entry)?;
        (self.head, self.bytes) = (entry.position, self.bytes + entry.body.len() as u64);
        self.topics.insert(entry.topic.clone(), (entry.count, true));
        Ok(())
    }

    pub fn trim(&mut self, connection: &Connection, trim: &Trim) -> Result<(), Error> {
        let sql = "SELECT coalesce(sum(length(body)), 0) FROM events WHERE position < ?1";
        let gone =
            connection.prepare_cached(sql)?.query_row([number(trim.before)], |row| read_number(row, 0))?;
        self.bytes -= gone;
        let events = "DELETE FROM events WHERE position < ?1";
        connection.prepare_cached(events)?.execute([number(trim.before)])?;
        let ids = "DELETE FROM event_ids WHERE position < ?1";
        connection.prepare_cached(ids)?.execute([number(trim.ids_before)]).map(drop)
    }

    pub fn write(&self, connection: &Connection) -> Result<(), Error> {
        let sql = "UPDATE event_log SET head = ?1, bytes = ?2";
        connection.prepare_cached(sql)?.execute((number(self.head), number(self.bytes)))?;
        for (topic, (count, _)) in self.topics.iter().filter(|(_, (_, changed))| *changed) {
            let sql = "INSERT OR REPLACE INTO topics (name, count) VALUES (?1, ?2)";
            connection.prepare_cached(sql)?.execute((topic, number(*count)))?;
        }
        Ok(())
    }
}

fn append(connection: &Connection, entry: &LogEntry) -> Result<(), Error> {
    let sql = "INSERT INTO events (position, topic, count, at, id, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (position, count) = (number(entry.position), number(entry.count));
    let values = (position, &entry.topic, count, time(entry.at), &entry.id, &*entry.body);
    connection.prepare_cached(sql)?.execute(values)?;
    if let Some(id) = &entry.id {
        let sql = "INSERT OR REPLACE INTO event_ids (topic, id, position, count) VALUES (?1, ?2, ?3, ?4)";
        connection.prepare_cached(sql)?.execute((&entry.topic, id, position, count))?;
    }
    Ok(())
}

fn count(connection: &Connection, topic: &str) -> Result<u64, Error> {
    let sql = "SELECT count FROM topics WHERE name = ?1";
    let found = connection.prepare_cached(sql)?.query_row([topic], |row| read_number(row, 0)).optional()?;
    Ok(found.unwrap_or(0))
}

/// Position and count of the event that a publisher gave this id.
pub(super) fn known(connection: &Connection, topic: &str, id: &str) -> Result<Option<(u64, u64)>, Error> {
    let sql = "SELECT position, count FROM event_ids WHERE topic = ?1 AND id = ?2";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?));
    connection.prepare_cached(sql)?.query_row((topic, id), read).optional()
}

/// The head and the stored bytes.
fn ends(connection: &Connection) -> Result<(u64, u64), Error> {
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?));
    connection.prepare_cached("SELECT head, bytes FROM event_log")?.query_row([], read)
}

fn log(connection: &Connection) -> Result<LogEnds, Error> {
    let (head, bytes) = ends(connection)?;
    let first =
        |row: &Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.map_or(head + 1, |first| first.unsigned_abs()));
    let first = connection.prepare_cached("SELECT min(position) FROM events")?.query_row([], first)?;
    Ok(LogEnds { first, head, bytes })
}

/// Each topic is read from its own index, so the cost depends only on what is returned.
pub(super) fn page(
    connection: &Connection,
    topics: &[Arc<str>],
    after: u64,
    limit: u32,
) -> Result<LogPage, Error> {
    let moment = connection.unchecked_transaction()?;
    let log = log(&moment)?;
    let bytes = |entry: &LogEntry| entry.body.len();
    if topics.is_empty() {
        let sql =
            "SELECT position, topic, count, at, id, body FROM events WHERE position > ?1 ORDER BY position";
        let mut statement = moment.prepare_cached(sql)?;
        let rows = statement.query_map([number(after)], read)?;
        return Ok(LogPage { log, page: Page::fill(limit, bytes, rows)? });
    }
    if let [topic] = topics {
        // The index is named: by primary key it would scan the events of all topics.
        let sql = "SELECT position, topic, count, at, id, body FROM events INDEXED BY events_by_topic \
                   WHERE topic = ?1 AND position > ?2 ORDER BY position";
        let mut statement = moment.prepare_cached(sql)?;
        let rows = statement.query_map((topic, number(after)), read)?;
        return Ok(LogPage { log, page: Page::fill(limit, bytes, rows)? });
    }
    let max = i64::from(limit.clamp(1, limits::PAGE_ROWS)) + 1;
    let mut positions = Vec::new();
    let sql = "SELECT position FROM events WHERE topic = ?1 AND position > ?2 ORDER BY position LIMIT ?3";
    for topic in topics {
        let mut statement = moment.prepare_cached(sql)?;
        for position in statement.query_map((topic, number(after), max), |row| read_number(row, 0))? {
            positions.push(position?);
        }
    }
    positions.sort_unstable();
    positions.dedup();
    // One topic may have more than fits in the page.
    positions.truncate(max as usize);
    if let (Some(&first), Some(&last)) = (positions.first(), positions.last())
        && last - first < 2 * positions.len() as u64
    {
        // Most events between them are needed: one scan is cheaper than one lookup each.
        let sql = "SELECT position, topic, count, at, id, body FROM events \
                   WHERE position BETWEEN ?1 AND ?2 ORDER BY position";
        let mut statement = moment.prepare_cached(sql)?;
        let mut rows = statement.query((number(first), number(last)))?;
        let entries = std::iter::from_fn(|| next_among(&mut rows, &positions).transpose());
        return Ok(LogPage { log, page: Page::fill(limit, bytes, entries)? });
    }
    let sql = "SELECT position, topic, count, at, id, body FROM events WHERE position = ?1";
    let mut statement = moment.prepare_cached(sql)?;
    let entries = positions.iter().map(|position| statement.query_row([number(*position)], read));
    Ok(LogPage { log, page: Page::fill(limit, bytes, entries)? })
}

/// The next event whose position is among these.
fn next_among(rows: &mut Rows<'_>, positions: &[u64]) -> Result<Option<LogEntry>, Error> {
    while let Some(row) = rows.next()? {
        if positions.binary_search(&read_number(row, 0)?).is_ok() {
            return read(row).map(Some);
        }
    }
    Ok(None)
}

fn read(row: &Row<'_>) -> Result<LogEntry, Error> {
    Ok(LogEntry {
        position: read_number(row, 0)?,
        topic: row.get(1)?,
        count: read_number(row, 2)?,
        at: read_time(row, 3)?,
        id: row.get(4)?,
        body: row.get(5)?,
    })
}

pub(super) fn topics(
    connection: &Connection,
    names: &[Arc<str>],
    after: Option<&str>,
    limit: u32,
) -> Result<TopicPage, Error> {
    let moment = connection.unchecked_transaction()?;
    let log = log(&moment)?;
    let after = after.unwrap_or("");
    if names.is_empty() {
        let sql = "SELECT name, count FROM topics WHERE name > ?1 ORDER BY name";
        let mut statement = moment.prepare_cached(sql)?;
        let rows = statement.query_map([after], |row| Ok((row.get(0)?, read_number(row, 1)?)))?;
        return Ok(TopicPage { log, page: Page::fill(limit, |_| 64, rows)? });
    }
    let mut names: Vec<&Arc<str>> = names.iter().filter(|name| &***name > after).collect();
    names.sort_unstable();
    names.dedup();
    let counts = names.into_iter().map(|name| Ok((name.clone(), count(&moment, name)?)));
    let known = counts.filter(|found: &Result<_, Error>| !matches!(found, Ok((_, 0))));
    Ok(TopicPage { log, page: Page::fill(limit, |_| 64, known)? })
}
