//! The log of topics: the tables `events`, `event_log`, `topics` and `event_ids`. Must hold: a transaction that appends or
//! trims holds the one row of `event_log` until COMMIT, so positions become visible in order and no reader skips one; a commit
//! that only appends holds it no longer, although it is not on disk then: it is answered, and read by others, when it is.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::value::{get as column, number, read_number, read_time, text, text_or_none, time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_store::{Commit, LogEnds, LogEntry, LogPage, Page, TopicPage, Trim, limits};
use tokio_postgres::Row;

/// What a batch needs of the log: counts of topics, and ids for deduplication.
#[derive(Default)]
pub(super) struct LogLocks {
    pub topics: BTreeSet<Arc<str>>,
    pub ids: BTreeSet<(Arc<str>, Arc<str>)>,
}

/// The log as a batch has locked it, and what is added.
#[derive(Default)]
pub(super) struct LogChanges {
    head: u64,
    counts: BTreeMap<Arc<str>, u64>,
    ids: BTreeMap<(Arc<str>, Arc<str>), (u64, u64)>,
    added: Vec<LogEntry>,
    trim: Option<Trim>,
}

/// Returns when everything that is visible is as durable as commits are on this server: on disk, and on standbys if commits wait
/// for them. Writes only if something may be missing there: a commit that writes something waits for all before it.
const FLUSH: &str = "SELECT pg_logical_emit_message(true, 'tavern', '') WHERE pg_current_wal_insert_lsn() > pg_current_wal_flush_lsn()
    OR current_setting('synchronous_standby_names') <> ''";

/// Whether all of them only append. Other rows are read without a look at what is durable.
pub(super) fn only_append(commits: &[&Commit]) -> bool {
    commits.iter().all(|commit| {
        let Commit { writer: _, expects: _, appends, erases: _, .. } = commit;
        let Commit { node, puts, deletes, raises, seen, deadlines, takes, restores, trim, .. } = commit;
        let Commit { freed_messages, inbox_messages, history_clears, history, .. } = commit;
        !appends.is_empty()
            && (node.is_none() && trim.is_none() && restores.is_empty())
            && (puts.is_empty() && deletes.is_empty() && raises.is_empty() && seen.is_empty())
            && (deadlines.is_empty() && takes.is_empty() && history_clears.is_empty() && history.is_empty())
            && (freed_messages.is_empty() && inbox_messages.is_empty())
    })
}

/// The end of a transaction that only appends: it is visible, and its locks are free, before it is on disk, so that other
/// writers do not wait for the disk one after the other. The last statement waits for it.
pub(super) fn commit_and_flush() -> [Statement<'static>; 3] {
    ["SET LOCAL synchronous_commit = off", "COMMIT", FLUSH].map(Statement::new)
}

/// Waits until what was read up to this position cannot be lost any more. A client that was told of an event that is lost
/// would take the next one, which has its number, for the same.
async fn wait_until_durable(connection: &PostgresConnection, head: u64) -> Result<(), PostgresError> {
    // Many who read the same event together wait once.
    let mut durable = connection.durable_log.lock().await;
    if head > *durable {
        connection.one(Statement::new(FLUSH)).await?;
        *durable = head;
    }
    Ok(())
}

pub(super) fn lock() -> Statement<'static> {
    Statement::new("SELECT FROM event_log FOR UPDATE")
}

pub(super) fn load(wanted: &LogLocks) -> [Statement<'_>; 3] {
    let topics: Vec<&str> = wanted.topics.iter().map(|topic| &**topic).collect();
    let ids = "SELECT i.topic, i.id, i.position, i.count FROM unnest($1::text[], $2::text[]) AS k (topic, id)
        JOIN event_ids i ON i.topic = k.topic AND i.id = k.id";
    [
        Statement::new("SELECT head FROM event_log"),
        Statement::new("SELECT name, count FROM topics WHERE name = ANY ($1)").with(topics),
        Statement::new(ids)
            .with(wanted.ids.iter().map(|(topic, _)| &**topic).collect::<Vec<_>>())
            .with(wanted.ids.iter().map(|(_, id)| &**id).collect::<Vec<_>>()),
    ]
}

impl LogChanges {
    pub fn load(head: &[Row], topics: &[Row], ids: &[Row]) -> Result<LogChanges, PostgresError> {
        let head = head.first().ok_or(PostgresError::Unexpected("event_log is empty"))?;
        let mut log = LogChanges { head: read_number(head, 0)?, ..LogChanges::default() };
        for row in topics {
            log.counts.insert(text(row, 0)?, read_number(row, 1)?);
        }
        for row in ids {
            log.ids.insert((text(row, 0)?, text(row, 1)?), (read_number(row, 2)?, read_number(row, 3)?));
        }
        Ok(log)
    }

    pub fn head(&self) -> u64 {
        self.head
    }

    pub fn count(&self, topic: &str) -> u64 {
        self.counts.get(topic).copied().unwrap_or(0)
    }

    pub fn known(&self, topic: &Arc<str>, id: &Arc<str>) -> Option<(u64, u64)> {
        self.ids.get(&(topic.clone(), id.clone())).copied()
    }

    pub fn append(&mut self, entry: &LogEntry) {
        self.head = entry.position;
        self.counts.insert(entry.topic.clone(), entry.count);
        if let Some(id) = &entry.id {
            self.ids.insert((entry.topic.clone(), id.clone()), (entry.position, entry.count));
        }
        self.added.push(entry.clone());
    }

    pub fn trim(&mut self, trim: &Trim) {
        self.ids.retain(|_, (position, _)| *position >= trim.ids_before);
        let earlier = self.trim.get_or_insert_default();
        earlier.before = earlier.before.max(trim.before);
        earlier.ids_before = earlier.ids_before.max(trim.ids_before);
    }

    pub fn changes(&self) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        if !self.added.is_empty() {
            self.append_all(&mut statements);
        }
        if let Some(trim) = &self.trim {
            let sql = "WITH gone AS (DELETE FROM events WHERE position < $1 RETURNING length(body) AS bytes)
                UPDATE event_log SET bytes = event_log.bytes - (SELECT coalesce(sum(gone.bytes), 0) FROM gone)";
            statements.push(Statement::new(sql).with(number(trim.before)));
            let sql = "DELETE FROM event_ids WHERE position < $1";
            statements.push(Statement::new(sql).with(number(trim.ids_before)));
        }
        statements
    }

    fn append_all<'a>(&'a self, statements: &mut Vec<Statement<'a>>) {
        let sql = "INSERT INTO events (position, topic, count, at, id, body)
            SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bytea[])";
        statements.push(
            Statement::new(sql)
                .with(self.added.iter().map(|entry| number(entry.position)).collect::<Vec<_>>())
                .with(self.added.iter().map(|entry| &*entry.topic).collect::<Vec<_>>())
                .with(self.added.iter().map(|entry| number(entry.count)).collect::<Vec<_>>())
                .with(self.added.iter().map(|entry| time(entry.at)).collect::<Vec<_>>())
                .with(self.added.iter().map(|entry| entry.id.as_deref()).collect::<Vec<_>>())
                .with(self.added.iter().map(|entry| &*entry.body).collect::<Vec<_>>()),
        );
        let bytes: usize = self.added.iter().map(|entry| entry.body.len()).sum();
        let sql = "UPDATE event_log SET head = $1, bytes = bytes + $2";
        statements.push(Statement::new(sql).with(number(self.head)).with(bytes as i64));
        let sql = "INSERT INTO topics (name, count) SELECT * FROM unnest($1::text[], $2::bigint[])
            ON CONFLICT (name) DO UPDATE SET count = excluded.count";
        statements.push(
            Statement::new(sql)
                .with(self.counts.keys().map(|name| &**name).collect::<Vec<_>>())
                .with(self.counts.values().map(|count| number(*count)).collect::<Vec<_>>()),
        );
        // An id may be accepted, deleted and accepted again within one batch: the last one counts.
        let is_known = |entry: &LogEntry, id: &Arc<str>| {
            self.known(&entry.topic, id).is_some_and(|(position, _)| position == entry.position)
        };
        let named = || {
            self.added.iter().filter_map(|entry| {
                let id = entry.id.as_ref().filter(|id| is_known(entry, id))?;
                Some((entry, &**id))
            })
        };
        if named().next().is_some() {
            let sql = "INSERT INTO event_ids (topic, id, position, count)
                SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[])
                ON CONFLICT (topic, id) DO UPDATE SET position = excluded.position, count = excluded.count";
            statements.push(
                Statement::new(sql)
                    .with(named().map(|(entry, _)| &*entry.topic).collect::<Vec<_>>())
                    .with(named().map(|(_, id)| id).collect::<Vec<_>>())
                    .with(named().map(|(entry, _)| number(entry.position)).collect::<Vec<_>>())
                    .with(named().map(|(entry, _)| number(entry.count)).collect::<Vec<_>>()),
            );
        }
    }
}

const ENDS: &str = "SELECT head, bytes, (SELECT min(position) FROM events) FROM event_log";

fn ends(rows: &[Row]) -> Result<LogEnds, PostgresError> {
    let row = rows.first().ok_or(PostgresError::Unexpected("event_log is empty"))?;
    let (head, bytes) = (read_number(row, 0)?, read_number(row, 1)?);
    let first = column::<Option<i64>>(row, 2)?.map_or(head + 1, |first| first.unsigned_abs());
    Ok(LogEnds { first, head, bytes })
}

/// Each topic is read from its own index, so the cost depends only on what is returned.
pub(super) async fn page(
    connection: &PostgresConnection,
    topics: &[Arc<str>],
    after: u64,
    limit: u32,
) -> Result<LogPage, PostgresError> {
    let all = "SELECT position, topic, count, at, id, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY position) - length(body) AS earlier FROM
                (SELECT * FROM events WHERE position > $1 ORDER BY position LIMIT $2) AS few) AS counted
        WHERE earlier <= $3 ORDER BY position";
    let some = "SELECT position, topic, count, at, id, body FROM
            (SELECT e.*, sum(length(e.body)) OVER (ORDER BY e.position) - length(e.body) AS earlier FROM
                (SELECT DISTINCT p.position FROM unnest($4::text[]) AS t (topic) CROSS JOIN LATERAL
                    (SELECT position FROM events WHERE events.topic = t.topic AND position > $1
                    ORDER BY position LIMIT $2) AS p
                ORDER BY p.position LIMIT $2) AS k
            JOIN events e ON e.position = k.position) AS counted
        WHERE earlier <= $3 ORDER BY position";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement = Statement::new(if topics.is_empty() { all } else { some });
    let statement = statement.with(number(after)).with(i64::from(limit) + 1).with(limits::PAGE_BYTES as i64);
    let statement = match topics {
        [] => statement,
        _ => statement.with(topics.iter().map(|topic| &**topic).collect::<Vec<_>>()),
    };
    let begin = Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    let found =
        connection.run(vec![begin, Statement::new(ENDS), statement, Statement::new("COMMIT")]).await?;
    let log = ends(&found[1])?;
    wait_until_durable(connection, log.head).await?;
    let page = Page::fill(limit, |entry: &LogEntry| entry.body.len(), found[2].iter().map(read))?;
    Ok(LogPage { log, page })
}

fn read(row: &Row) -> Result<LogEntry, PostgresError> {
    Ok(LogEntry {
        position: read_number(row, 0)?,
        topic: text(row, 1)?,
        count: read_number(row, 2)?,
        at: read_time(row, 3)?,
        id: text_or_none(row, 4)?,
        body: column::<&[u8]>(row, 5)?.into(),
    })
}

pub(super) async fn topics(
    connection: &PostgresConnection,
    names: &[Arc<str>],
    after: Option<&str>,
    limit: u32,
) -> Result<TopicPage, PostgresError> {
    let all = "SELECT name, count FROM topics WHERE name > $1 ORDER BY name LIMIT $2";
    let some = "SELECT name, count FROM topics WHERE name > $1 AND name = ANY ($3) ORDER BY name LIMIT $2";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statement = Statement::new(if names.is_empty() { all } else { some });
    let statement = statement.with(after.unwrap_or("")).with(i64::from(limit) + 1);
    let statement = match names {
        [] => statement,
        _ => statement.with(names.iter().map(|name| &**name).collect::<Vec<_>>()),
    };
    let begin = Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    let found =
        connection.run(vec![begin, Statement::new(ENDS), statement, Statement::new("COMMIT")]).await?;
    let log = ends(&found[1])?;
    wait_until_durable(connection, log.head).await?;
    let counts = found[2].iter().map(|row| Ok::<_, PostgresError>((text(row, 0)?, read_number(row, 1)?)));
    Ok(TopicPage { log, page: Page::fill(limit, |_| 64, counts)? })
}
