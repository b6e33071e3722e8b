//! Inboxes: the tables `inbox_messages` and `inboxes`.

use super::value::{number, read_number, read_time, time};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use tavern_store::commit::{Bag, Gone};
use tavern_store::letter::{Letter, Letters};
use tavern_store::row::Page;

pub(super) fn bag(connection: &Connection, user: &str) -> Result<Bag, Error> {
    let sql = "SELECT last, dropped, messages, bytes FROM inboxes WHERE user_id = ?1";
    let read = |row: &Row<'_>| {
        Ok(Bag {
            last: read_number(row, 0)?,
            dropped: read_number(row, 1)?,
            letters: read_number(row, 2)? as usize,
            bytes: read_number(row, 3)? as usize,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_row([user], read).optional()?.unwrap_or_default())
}

pub(super) fn add(connection: &Connection, user: &str, letter: &Letter) -> Result<(), Error> {
    let sql = "INSERT INTO inbox_messages (user_id, n, at, body) VALUES (?1, ?2, ?3, ?4)";
    let values = (user, number(letter.n), time(letter.at), &*letter.body);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn take(connection: &Connection, user: &str, through: u64) -> Result<Gone, Error> {
    let sql = "SELECT coalesce(max(n), 0), count(*), coalesce(sum(length(body)), 0) FROM inbox_messages \
        WHERE user_id = ?1 AND n <= ?2";
    let read = |row: &Row<'_>| {
        let (letters, bytes) = (read_number(row, 1)? as usize, read_number(row, 2)? as usize);
        Ok(Gone { through: read_number(row, 0)?, letters, bytes })
    };
    let gone = connection.prepare_cached(sql)?.query_row((user, number(through)), read)?;
    if gone.letters > 0 {
        let sql = "DELETE FROM inbox_messages WHERE user_id = ?1 AND n <= ?2";
        connection.prepare_cached(sql)?.execute((user, number(through)))?;
    }
    Ok(gone)
}

pub(super) fn take_oldest(connection: &Connection, user: &str) -> Result<Gone, Error> {
    let sql = "DELETE FROM inbox_messages WHERE user_id = ?1 AND n = (SELECT min(n) FROM inbox_messages WHERE user_id = ?1) \
        RETURNING n, length(body)";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)? as usize));
    connection.prepare_cached(sql)?.query_map([user], read)?.collect()
}

pub(super) fn set(connection: &Connection, user: &str, bag: &Bag) -> Result<(), Error> {
    if bag.last == 0 {
        return connection
            .prepare_cached("DELETE FROM inboxes WHERE user_id = ?1")?
            .execute([user])
            .map(drop);
    }
    let sql = "INSERT OR REPLACE INTO inboxes (user_id, last, dropped, messages, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";
    let (letters, bytes) = (number(bag.letters as u64), number(bag.bytes as u64));
    let values = (user, number(bag.last), number(bag.dropped), letters, bytes);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn letters(connection: &Connection, user: &str, after: u64, limit: u32) -> Result<Letters, Error> {
    let moment = connection.unchecked_transaction()?;
    let dropped = bag(&moment, user)?.dropped;
    let sql = "SELECT n, at, body FROM inbox_messages WHERE user_id = ?1 AND n > ?2 ORDER BY n";
    let read =
        |row: &Row<'_>| Ok(Letter { n: read_number(row, 0)?, at: read_time(row, 1)?, body: row.get(2)? });
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((user, number(after)), read)?;
    Ok(Letters { dropped, page: Page::fill(limit, |letter| letter.body.len(), rows)? })
}
