//! Inboxes: the tables `inbox_messages` and `inboxes`.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_store::commit::{InboxCounts, RemovedMessages};
use tavern_store::{InboxMessage, InboxPage, Page};

pub(super) fn counts(connection: &Connection, user: &str) -> Result<InboxCounts, Error> {
    let sql = "SELECT last, dropped, messages, bytes FROM inboxes WHERE user_id = ?1";
    let read = |row: &Row<'_>| {
        Ok(InboxCounts {
            last: read_number(row, 0)?,
            dropped: read_number(row, 1)?,
            messages: read_number(row, 2)? as usize,
            bytes: read_number(row, 3)? as usize,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_row([user], read).optional()?.unwrap_or_default())
}

pub(super) fn add(connection: &Connection, user: &str, message: &InboxMessage) -> Result<(), Error> {
    let sql = "INSERT INTO inbox_messages (user_id, n, at, body) VALUES (?1, ?2, ?3, ?4)";
    let values = (user, number(message.n), time(message.at), &*message.body);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn remove(connection: &Connection, user: &str, through: u64) -> Result<RemovedMessages, Error> {
    let sql = "SELECT coalesce(max(n), 0), count(*), coalesce(sum(length(body)), 0) FROM inbox_messages \
        WHERE user_id = ?1 AND n <= ?2";
    let read = |row: &Row<'_>| {
        let (messages, bytes) = (read_number(row, 1)? as usize, read_number(row, 2)? as usize);
        Ok(RemovedMessages { through: read_number(row, 0)?, messages, bytes })
    };
    let removed = connection.prepare_cached(sql)?.query_row((user, number(through)), read)?;
    if removed.messages > 0 {
        let sql = "DELETE FROM inbox_messages WHERE user_id = ?1 AND n <= ?2";
        connection.prepare_cached(sql)?.execute((user, number(through)))?;
    }
    Ok(removed)
}

pub(super) fn remove_oldest(connection: &Connection, user: &str) -> Result<RemovedMessages, Error> {
    let sql = "DELETE FROM inbox_messages WHERE user_id = ?1 AND n = (SELECT min(n) FROM inbox_messages WHERE user_id = ?1) \
        RETURNING n, length(body)";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)? as usize));
    connection.prepare_cached(sql)?.query_map([user], read)?.collect()
}

pub(super) fn set(connection: &Connection, user: &str, counts: &InboxCounts) -> Result<(), Error> {
    if counts.last == 0 {
        return connection
            .prepare_cached("DELETE FROM inboxes WHERE user_id = ?1")?
            .execute([user])
            .map(drop);
    }
    let sql = "INSERT OR REPLACE INTO inboxes (user_id, last, dropped, messages, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (messages, bytes) = (number(counts.messages as u64), number(counts.bytes as u64));
    let values = (user, number(counts.last), number(counts.dropped), messages, bytes);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn page(connection: &Connection, user: &str, after: u64, limit: u32) -> Result<InboxPage, Error> {
    let moment = connection.unchecked_transaction()?;
    let dropped = counts(&moment, user)?.dropped;
    let sql = "SELECT n, at, body FROM inbox_messages WHERE user_id = ?1 AND n > ?2 ORDER BY n";
    let read = |row: &Row<'_>| {
        Ok(InboxMessage { n: read_number(row, 0)?, at: read_time(row, 1)?, body: row.get(2)? })
    };
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((user, number(after)), read)?;
    Ok(InboxPage { dropped, page: Page::fill(limit, |message| message.body.len(), rows)? })
}
