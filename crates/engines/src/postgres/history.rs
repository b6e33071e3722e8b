//! Channel history: the tables `history_messages` and `histories`. Must hold: a history changes only under the lock of its row.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::value::{get as column, number, read_number, read_time, text, text_or_none, time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_store::commit::{HistoryBounds, HistoryHead};
use tavern_store::{
    HistoryLimits, HistoryList, HistoryMessage, HistoryPage, HistoryPosition, HistorySender, HistorySummary,
    Page, limits,
};
use tokio_postgres::Row;

/// What a batch needs of histories: their heads, and ids for deduplication.
#[derive(Default)]
pub(super) struct HistoryLocks {
    pub channels: BTreeSet<Arc<str>>,
    pub ids: BTreeSet<(Arc<str>, Arc<str>)>,
}

/// The histories that a batch has locked, and how they change.
#[derive(Default)]
pub(super) struct LockedHistories {
    heads: BTreeMap<Arc<str>, LockedHistory>,
    ids: BTreeMap<(Arc<str>, Arc<str>), KnownMessage>,
    added: Vec<(Arc<str>, u64, HistoryMessage)>,
    cleared: BTreeSet<Arc<str>>,
}

#[derive(Clone, Copy, Default)]
struct LockedHistory {
    head: HistoryHead,
    bounds: HistoryBounds,
    changed: bool,
}

#[derive(Clone, Copy)]
struct KnownMessage {
    offset: u64,
    begins_at: u64,
    at: Time,
}

pub(super) fn lock(wanted: &HistoryLocks) -> Statement<'_> {
    let sql = "INSERT INTO histories (channel_name, epoch, message_offset, total, dropped, expires_at)
        SELECT channel_name, 0, 0, 0, 0, 0 FROM unnest($1::text[]) AS k (channel_name)
        ON CONFLICT (channel_name) DO UPDATE SET epoch = 0 WHERE false";
    Statement::new(sql).with(wanted.channels.iter().map(|channel| &**channel).collect::<Vec<_>>())
}

pub(super) fn load(wanted: &HistoryLocks) -> [Statement<'_>; 2] {
    let heads = "SELECT channel_name, epoch, message_offset, total, expires_at FROM histories WHERE channel_name = ANY ($1)";
    let ids = "SELECT m.channel_name, m.id, m.message_offset, m.total, m.at
        FROM unnest($1::text[], $2::text[]) AS k (channel_name, id)
        JOIN history_messages m ON m.channel_name = k.channel_name AND m.id = k.id";
    [
        Statement::new(heads).with(wanted.channels.iter().map(|channel| &**channel).collect::<Vec<_>>()),
        Statement::new(ids)
            .with(wanted.ids.iter().map(|(channel, _)| &**channel).collect::<Vec<_>>())
            .with(wanted.ids.iter().map(|(_, id)| &**id).collect::<Vec<_>>()),
    ]
}

impl LockedHistories {
    pub fn load(heads: &[Row], ids: &[Row]) -> Result<LockedHistories, PostgresError> {
        let mut loaded = LockedHistories::default();
        for row in heads {
            let head = HistoryHead {
                position: HistoryPosition { epoch: read_number(row, 1)?, offset: read_number(row, 2)? },
                bytes: read_number(row, 3)?,
                expires_at: read_time(row, 4)?,
            };
            loaded.heads.insert(text(row, 0)?, LockedHistory { head, ..LockedHistory::default() });
        }
        for row in ids {
            let (offset, begins_at, at) = (read_number(row, 2)?, read_number(row, 3)?, read_time(row, 4)?);
            loaded.ids.insert((text(row, 0)?, text(row, 1)?), KnownMessage { offset, begins_at, at });
        }
        Ok(loaded)
    }

    pub fn head(&self, channel: &str) -> HistoryHead {
        self.locked(channel).head
    }

    fn locked(&self, channel: &str) -> &LockedHistory {
        self.heads.get(channel).unwrap_or_else(|| panic!("the history of {channel} is not locked"))
    }

    pub fn known(&self, channel: &Arc<str>, id: &Arc<str>) -> Option<u64> {
        let known = self.ids.get(&(channel.clone(), id.clone()))?;
        let LockedHistory { head, bounds, .. } = self.locked(channel);
        bounds.keep(head, known.offset, known.begins_at, known.at).then_some(known.offset)
    }

    pub fn append(
        &mut self,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) {
        let history = self.heads.entry(channel.clone()).or_default();
        history.head = *head;
        history.bounds.raise(head, keep, message.at);
        history.changed = true;
        let begins_at = head.bytes - message.stored_bytes();
        if let Some(id) = &message.id {
            let known = KnownMessage { offset: message.offset, begins_at, at: message.at };
            self.ids.insert((channel.clone(), id.clone()), known);
        }
        self.added.push((channel.clone(), begins_at, message.clone()));
    }

    pub fn clear(&mut self, channel: &Arc<str>) {
        self.heads.insert(channel.clone(), LockedHistory::default());
        self.ids.retain(|(known, _), _| known != channel);
        self.added.retain(|(known, ..)| known != channel);
        self.cleared.insert(channel.clone());
    }

    /// Deletes rows of histories that are empty or were only reserved.
    pub fn changes(&self) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        if self.heads.is_empty() {
            return statements;
        }
        if !self.cleared.is_empty() {
            let sql = "DELETE FROM history_messages WHERE channel_name = ANY ($1)";
            let cleared: Vec<&str> = self.cleared.iter().map(|channel| &**channel).collect();
            statements.push(Statement::new(sql).with(cleared));
        }
        if !self.added.is_empty() {
            statements.push(self.insert());
        }
        let changed: Vec<_> = self.heads.iter().filter(|(_, history)| history.changed).collect();
        if !changed.is_empty() {
            statements.push(update(&changed));
        }
        let empty = self.heads.iter().filter(|(_, history)| history.head.position.epoch == 0);
        let empty: Vec<&str> = empty.map(|(channel, _)| &**channel).collect();
        if !empty.is_empty() {
            let sql = "DELETE FROM histories WHERE channel_name = ANY ($1)";
            statements.push(Statement::new(sql).with(empty));
        }
        statements
    }

    fn insert(&self) -> Statement<'_> {
        let sql = "INSERT INTO history_messages
            (channel_name, message_offset, total, at, id, user_id, client, json, body)
            SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],
                $8::boolean[], $9::bytea[])";
        let sender =
            |message: &HistoryMessage| message.sender.as_ref().map(|sender| sender.client.to_string());
        Statement::new(sql)
            .with(self.added.iter().map(|(channel, ..)| &**channel).collect::<Vec<_>>())
            .with(self.added.iter().map(|(.., message)| number(message.offset)).collect::<Vec<_>>())
            .with(self.added.iter().map(|(_, begins_at, _)| number(*begins_at)).collect::<Vec<_>>())
            .with(self.added.iter().map(|(.., message)| time(message.at)).collect::<Vec<_>>())
            .with(self.added.iter().map(|(.., message)| message.id.as_deref()).collect::<Vec<_>>())
            .with(
                self.added
                    .iter()
                    .map(|(.., message)| message.sender.as_ref().and_then(|sender| sender.user.as_deref()))
                    .collect::<Vec<_>>(),
            )
            .with(self.added.iter().map(|(.., message)| sender(message)).collect::<Vec<_>>())
            .with(self.added.iter().map(|(.., message)| message.json).collect::<Vec<_>>())
            .with(self.added.iter().map(|(.., message)| &*message.body).collect::<Vec<_>>())
    }
}

/// Finds the first message that is kept in each history, deletes those before it, and writes the heads.
fn update<'a>(changed: &[(&'a Arc<str>, &'a LockedHistory)]) -> Statement<'a> {
    let sql = "WITH heads AS (SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
                $6::bigint[], $7::bigint[], $8::bigint[])
                AS k (channel_name, epoch, head, total, expires_at, after_offset, from_bytes, after_time)),
            kept AS (SELECT k.*, m.first, m.begins_at FROM heads k CROSS JOIN LATERAL
                (SELECT message_offset AS first, total AS begins_at FROM history_messages
                WHERE channel_name = k.channel_name AND message_offset > k.after_offset
                    AND (message_offset = k.head OR (total >= k.from_bytes AND at > k.after_time))
                ORDER BY message_offset LIMIT 1) AS m),
            gone AS (DELETE FROM history_messages m USING kept k
                WHERE m.channel_name = k.channel_name AND m.message_offset < k.first)
        UPDATE histories h SET epoch = k.epoch, message_offset = k.head, total = k.total, dropped = k.begins_at,
            expires_at = k.expires_at FROM kept k WHERE h.channel_name = k.channel_name";
    let numbers = |number_of: fn(&LockedHistory) -> u64| {
        changed.iter().map(|(_, history)| number(number_of(history))).collect::<Vec<_>>()
    };
    Statement::new(sql)
        .with(changed.iter().map(|(channel, _)| &***channel).collect::<Vec<_>>())
        .with(numbers(|history| history.head.position.epoch))
        .with(numbers(|history| history.head.position.offset))
        .with(numbers(|history| history.head.bytes))
        .with(numbers(|history| history.head.expires_at.0))
        .with(numbers(|history| history.bounds.after_offset.min(history.head.position.offset - 1)))
        .with(numbers(|history| history.bounds.from_bytes))
        .with(numbers(|history| history.bounds.after_time.0))
}

pub(super) async fn page(
    connection: &PostgresConnection,
    channel: &str,
    after: u64,
    before: u64,
    newest: bool,
    limit: u32,
) -> Result<HistoryPage, PostgresError> {
    let forwards = "SELECT message_offset, at, id, user_id, client, json, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY message_offset) - length(body) AS earlier FROM
                (SELECT * FROM history_messages WHERE channel_name = $1 AND message_offset > $2 AND message_offset < $3
                ORDER BY message_offset LIMIT $4) AS few) AS counted
        WHERE earlier <= $5 ORDER BY message_offset";
    let backwards = "SELECT message_offset, at, id, user_id, client, json, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY message_offset DESC) - length(body) AS earlier FROM
                (SELECT * FROM history_messages WHERE channel_name = $1 AND message_offset > $2 AND message_offset < $3
                ORDER BY message_offset DESC LIMIT $4) AS few) AS counted
        WHERE earlier <= $5 ORDER BY message_offset DESC";
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let statements = vec![
        Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Statement::new("SELECT epoch, message_offset FROM histories WHERE channel_name = $1").with(channel),
        Statement::new(if newest { backwards } else { forwards })
            .with(channel)
            .with(number(after))
            .with(number(before))
            .with(i64::from(limit) + 1)
            .with(limits::PAGE_BYTES as i64),
        Statement::new("COMMIT"),
    ];
    let found = connection.run(statements).await?;
    let head = match found[1].first() {
        Some(row) => HistoryPosition { epoch: read_number(row, 0)?, offset: read_number(row, 1)? },
        None => HistoryPosition::default(),
    };
    let mut page =
        Page::fill(limit, |message: &HistoryMessage| message.body.len(), found[2].iter().map(read))?;
    if newest {
        page.rows.reverse();
    }
    Ok(HistoryPage { head, page })
}

fn read(row: &Row) -> Result<HistoryMessage, PostgresError> {
    let sender = match column::<Option<&str>>(row, 4)? {
        Some(client) => {
            let client = ClientId::parse(client).ok_or(PostgresError::Unexpected("not a client id"))?;
            Some(HistorySender { user: text_or_none(row, 3)?, client })
        }
        None => None,
    };
    Ok(HistoryMessage {
        offset: read_number(row, 0)?,
        at: read_time(row, 1)?,
        id: text_or_none(row, 2)?,
        sender,
        json: column(row, 5)?,
        body: column::<&[u8]>(row, 6)?.into(),
    })
}

pub(super) async fn list(
    connection: &PostgresConnection,
    after: Option<&(Time, Arc<str>)>,
    limit: u32,
) -> Result<HistoryList, PostgresError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let sql = "SELECT channel_name, epoch, message_offset, expires_at, total - dropped FROM histories
        WHERE (expires_at, channel_name) > ($1, $2) ORDER BY expires_at, channel_name LIMIT $3";
    let (since, name) = after.map_or((-1, ""), |(since, name)| (time(*since), name));
    let statements = vec![
        Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Statement::new("SELECT coalesce(sum(total - dropped), 0)::bigint FROM histories"),
        Statement::new(sql).with(since).with(name).with(i64::from(limit) + 1),
        Statement::new("COMMIT"),
    ];
    let found = connection.run(statements).await?;
    let bytes = found[1].first().map_or(Ok(0), |row| read_number(row, 0))?;
    let read = |row: &Row| {
        Ok::<_, PostgresError>(HistorySummary {
            channel: text(row, 0)?,
            head: HistoryPosition { epoch: read_number(row, 1)?, offset: read_number(row, 2)? },
            expires_at: read_time(row, 3)?,
            bytes: read_number(row, 4)?,
        })
    };
    Ok(HistoryList { bytes, page: Page::fill(limit, |_| 64, found[2].iter().map(read))? })
}
