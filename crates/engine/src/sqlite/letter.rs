//! Inboxes: the tables `letters` and `inboxes`.

use super::value::{number, read_number, read_time, time};
use crate::commit::Bag;
use crate::letter::{Letter, Letters};
use crate::row::Page;
use rusqlite::{Connection, Error, OptionalExtension, Row};

pub(super) fn bag(connection: &Connection, user: &str) -> Result<Bag, Error> {
    let Some((last, dropped)) = inbox(connection, user)? else { return Ok(Bag::default()) };
    let sql = "SELECT n, length(body) FROM letters WHERE user_id = ?1 ORDER BY n";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)? as usize));
    let letters = connection.prepare_cached(sql)?.query_map([user], read)?.collect::<Result<_, _>>()?;
    Ok(Bag { last, dropped, letters })
}

/// The highest numbers given and dropped; None: it is empty.
fn inbox(connection: &Connection, user: &str) -> Result<Option<(u64, u64)>, Error> {
    let sql = "SELECT last, dropped FROM inboxes WHERE user_id = ?1";
    let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?));
    connection.prepare_cached(sql)?.query_row([user], read).optional()
}

pub(super) fn add(connection: &Connection, user: &str, letter: &Letter) -> Result<(), Error> {
    let sql = "INSERT INTO letters (user_id, n, at, body) VALUES (?1, ?2, ?3, ?4)";
    let values = (user, number(letter.n), time(letter.at), &*letter.body);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

pub(super) fn remove(connection: &Connection, user: &str, through: u64) -> Result<(), Error> {
    let sql = "DELETE FROM letters WHERE user_id = ?1 AND n <= ?2";
    connection.prepare_cached(sql)?.execute((user, number(through))).map(drop)
}

pub(super) fn set(connection: &Connection, user: &str, last: u64, dropped: u64) -> Result<(), Error> {
    if last == 0 {
        return connection
            .prepare_cached("DELETE FROM inboxes WHERE user_id = ?1")?
            .execute([user])
            .map(drop);
    }
    let sql = "INSERT OR REPLACE INTO inboxes (user_id, last, dropped) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(sql)?.execute((user, number(last), number(dropped))).map(drop)
}

pub(super) fn letters(connection: &Connection, user: &str, after: u64, limit: u32) -> Result<Letters, Error> {
    let moment = connection.unchecked_transaction()?;
    let dropped = inbox(&moment, user)?.map_or(0, |(_, dropped)| dropped);
    let sql = "SELECT n, at, body FROM letters WHERE user_id = ?1 AND n > ?2 ORDER BY n";
    let read =
        |row: &Row<'_>| Ok(Letter { n: read_number(row, 0)?, at: read_time(row, 1)?, body: row.get(2)? });
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((user, number(after)), read)?;
    Ok(Letters { dropped, page: Page::fill(limit, |letter| letter.body.len(), rows)? })
}
