//! Channel history: the tables `history_messages` and `histories`.

use super::value::{number, read_number, read_time, time, unexpected};
use rusqlite::{Connection, Error, OptionalExtension, Row};
use std::collections::HashMap;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_store::commit::{HistoryBounds, HistoryHead};
use tavern_store::{
    HistoryLimits, HistoryList, HistoryMessage, HistoryPage, HistoryPosition, HistorySender, HistorySummary,
    Page,
};

/// The heads of the channels that a batch appends to. Written once, at the end of its transaction, and trimmed then.
#[derive(Default)]
pub(super) struct HistoryHeads(HashMap<Arc<str>, CachedHead>);

#[derive(Clone, Copy, Default)]
struct CachedHead {
    head: HistoryHead,
    bounds: HistoryBounds,
    changed: bool,
}

impl HistoryHeads {
    pub fn head(&mut self, connection: &Connection, channel: &Arc<str>) -> Result<HistoryHead, Error> {
        self.cached(connection, channel).map(|cached| cached.head)
    }

    fn cached(&mut self, connection: &Connection, channel: &Arc<str>) -> Result<&mut CachedHead, Error> {
        if !self.0.contains_key(channel) {
            let cached = CachedHead { head: head(connection, channel)?, ..CachedHead::default() };
            self.0.insert(channel.clone(), cached);
        }
        Ok(self.0.get_mut(channel).expect("it was just inserted"))
    }

    pub fn known(
        &mut self,
        connection: &Connection,
        channel: &Arc<str>,
        id: &str,
    ) -> Result<Option<u64>, Error> {
        // The newest: an earlier one of the same id may not be trimmed yet.
        let sql = "SELECT message_offset, total, at FROM history_messages \
            WHERE channel_name = ?1 AND id = ?2 ORDER BY message_offset DESC LIMIT 1";
        let read = |row: &Row<'_>| Ok((read_number(row, 0)?, read_number(row, 1)?, read_time(row, 2)?));
        let found = connection.prepare_cached(sql)?.query_row((channel, id), read).optional()?;
        let Some((offset, begins_at, at)) = found else { return Ok(None) };
        let CachedHead { head, bounds, .. } = self.cached(connection, channel)?;
        Ok(bounds.keep(head, offset, begins_at, at).then_some(offset))
    }

    pub fn append(
        &mut self,
        connection: &Connection,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) -> Result<(), Error> {
        let sql = "INSERT INTO history_messages \
            (channel_name, message_offset, total, at, id, user_id, client, json, body) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let sender = message.sender.as_ref();
        connection.prepare_cached(sql)?.execute((
            channel,
            number(message.offset),
            number(head.bytes - message.stored_bytes()),
            time(message.at),
            &message.id,
            sender.and_then(|sender| sender.user.as_ref()),
            sender.map(|sender| sender.client.to_string()),
            message.json,
            &*message.body,
        ))?;
        let cached = self.cached(connection, channel)?;
        cached.head = *head;
        cached.bounds.raise(head, keep, message.at);
        cached.changed = true;
        Ok(())
    }

    pub fn clear(&mut self, connection: &Connection, channel: &Arc<str>) -> Result<(), Error> {
        let sql = "DELETE FROM history_messages WHERE channel_name = ?1";
        connection.prepare_cached(sql)?.execute([channel])?;
        let sql = "DELETE FROM histories WHERE channel_name = ?1";
        connection.prepare_cached(sql)?.execute([channel])?;
        self.0.insert(channel.clone(), CachedHead::default());
        Ok(())
    }

    pub fn write(self, connection: &Connection) -> Result<(), Error> {
        for (channel, cached) in self.0.into_iter().filter(|(_, cached)| cached.changed) {
            cached.write(connection, &channel)?;
        }
        Ok(())
    }
}

impl CachedHead {
    fn write(&self, connection: &Connection, channel: &str) -> Result<(), Error> {
        let (position, bounds) = (self.head.position, &self.bounds);
        let sql = "SELECT message_offset, total FROM history_messages \
            WHERE channel_name = ?1 AND message_offset > ?2 \
            AND (message_offset = ?5 OR (total >= ?3 AND at > ?4)) ORDER BY message_offset LIMIT 1";
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        let after = bounds.after_offset.min(position.offset - 1);
        let values = (
            channel,
            number(after),
            number(bounds.from_bytes),
            time(bounds.after_time),
            number(position.offset),
        );
        let (first, dropped) = connection.prepare_cached(sql)?.query_row(values, read)?;
        if first > 1 {
            let sql = "DELETE FROM history_messages WHERE channel_name = ?1 AND message_offset < ?2";
            connection.prepare_cached(sql)?.execute((channel, first))?;
        }
        let sql = "INSERT OR REPLACE INTO histories (channel_name, epoch, message_offset, total, dropped, expires_at) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (epoch, offset, total) =
            (number(position.epoch), number(position.offset), number(self.head.bytes));
        let values = (channel, epoch, offset, total, dropped, time(self.head.expires_at));
        connection.prepare_cached(sql)?.execute(values).map(drop)
    }
}

fn head(connection: &Connection, channel: &str) -> Result<HistoryHead, Error> {
    let sql = "SELECT epoch, message_offset, total, expires_at FROM histories WHERE channel_name = ?1";
    let read = |row: &Row<'_>| {
        Ok(HistoryHead {
            position: HistoryPosition { epoch: read_number(row, 0)?, offset: read_number(row, 1)? },
            bytes: read_number(row, 2)?,
            expires_at: read_time(row, 3)?,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_row([channel], read).optional()?.unwrap_or_default())
}

pub(super) fn page(
    connection: &Connection,
    channel: &str,
    after: u64,
    before: u64,
    newest: bool,
    limit: u32,
) -> Result<HistoryPage, Error> {
    let moment = connection.unchecked_transaction()?;
    let head = head(&moment, channel)?.position;
    let forwards = "SELECT message_offset, at, id, user_id, client, json, body FROM history_messages \
        WHERE channel_name = ?1 AND message_offset > ?2 AND message_offset < ?3 ORDER BY message_offset";
    let backwards = "SELECT message_offset, at, id, user_id, client, json, body FROM history_messages \
        WHERE channel_name = ?1 AND message_offset > ?2 AND message_offset < ?3 ORDER BY message_offset DESC";
    let mut statement = moment.prepare_cached(if newest { backwards } else { forwards })?;
    let rows = statement.query_map((channel, number(after), number(before)), read)?;
    let mut page = Page::fill(limit, |message: &HistoryMessage| message.body.len(), rows)?;
    if newest {
        page.rows.reverse();
    }
    Ok(HistoryPage { head, page })
}

fn read(row: &Row<'_>) -> Result<HistoryMessage, Error> {
    let client: Option<String> = row.get(4)?;
    let sender = match client {
        Some(client) => {
            let client = ClientId::parse(&client).ok_or_else(|| unexpected(4, "not a client id"))?;
            Some(HistorySender { user: row.get(3)?, client })
        }
        None => None,
    };
    Ok(HistoryMessage {
        offset: read_number(row, 0)?,
        at: read_time(row, 1)?,
        id: row.get(2)?,
        sender,
        json: row.get(5)?,
        body: row.get(6)?,
    })
}

pub(super) fn list(
    connection: &Connection,
    after: Option<&(Time, Arc<str>)>,
    limit: u32,
) -> Result<HistoryList, Error> {
    let moment = connection.unchecked_transaction()?;
    let sql = "SELECT coalesce(sum(total - dropped), 0) FROM histories";
    let bytes = moment.prepare_cached(sql)?.query_row([], |row| read_number(row, 0))?;
    let sql = "SELECT channel_name, epoch, message_offset, expires_at, total - dropped FROM histories \
        WHERE (expires_at, channel_name) > (?1, ?2) ORDER BY expires_at, channel_name";
    let read = |row: &Row<'_>| {
        Ok(HistorySummary {
            channel: row.get(0)?,
            head: HistoryPosition { epoch: read_number(row, 1)?, offset: read_number(row, 2)? },
            expires_at: read_time(row, 3)?,
            bytes: read_number(row, 4)?,
        })
    };
    let (since, name) = after.map_or((-1, ""), |(since, name)| (time(*since), name));
    let mut statement = moment.prepare_cached(sql)?;
    let rows = statement.query_map((since, name), read)?;
    Ok(HistoryList { bytes, page: Page::fill(limit, |_| 64, rows)? })
}
