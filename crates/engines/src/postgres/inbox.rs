//! Inboxes: the tables `inbox_messages` and `inboxes`. Must hold: an inbox changes only under the lock of its row.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::value::{get as column, number, read_number, read_time, text, time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tavern_store::commit::{InboxCounts, RemovedMessages};
use tavern_store::{InboxMessage, InboxPage, Page, limits};
use tokio_postgres::Row;

/// The inboxes that a batch has locked, and how they change.
#[derive(Default)]
pub(super) struct LockedInboxes {
    loaded: BTreeMap<Arc<str>, LockedInbox>,
    removed: BTreeMap<Arc<str>, u64>,
    added: Vec<(Arc<str>, InboxMessage)>,
}

#[derive(Default)]
struct LockedInbox {
    counts: InboxCounts,
    /// Number and length of each message, the oldest first.
    messages: VecDeque<(u64, usize)>,
}

pub(super) fn lock(users: &BTreeSet<Arc<str>>) -> Statement<'_> {
    let sql = "INSERT INTO inboxes (user_id, last, dropped)
        SELECT user_id, 0, 0 FROM unnest($1::text[]) AS k (user_id)
        ON CONFLICT (user_id) DO UPDATE SET last = 0 WHERE false";
    Statement::new(sql).with(users.iter().map(|user| &**user).collect::<Vec<_>>())
}

pub(super) fn load(users: &BTreeSet<Arc<str>>) -> [Statement<'_>; 2] {
    let users: Vec<&str> = users.iter().map(|user| &**user).collect();
    [
        Statement::new("SELECT user_id, last, dropped FROM inboxes WHERE user_id = ANY ($1)").with(users.clone()),
        Statement::new(
            "SELECT user_id, n, length(body)::bigint FROM inbox_messages WHERE user_id = ANY ($1) ORDER BY user_id, n",
        )
        .with(users),
    ]
}

impl LockedInboxes {
    pub fn load(inboxes: &[Row], messages: &[Row]) -> Result<LockedInboxes, PostgresError> {
        let mut loaded = LockedInboxes::default();
        for row in inboxes {
            let counts = InboxCounts {
                last: read_number(row, 1)?,
                dropped: read_number(row, 2)?,
                ..InboxCounts::default()
            };
            loaded.loaded.insert(text(row, 0)?, LockedInbox { counts, ..LockedInbox::default() });
        }
        for row in messages {
            let (n, bytes) = (read_number(row, 1)?, read_number(row, 2)? as usize);
            if let Some(inbox) = loaded.loaded.get_mut(column::<&str>(row, 0)?) {
                inbox.messages.push_back((n, bytes));
                inbox.counts.messages += 1;
                inbox.counts.bytes += bytes;
            }
        }
        Ok(loaded)
    }

    pub fn counts(&self, user: &str) -> InboxCounts {
        self.loaded.get(user).unwrap_or_else(|| panic!("the inbox of {user} is not locked")).counts
    }

    pub fn add(&mut self, user: &Arc<str>, message: &InboxMessage) {
        self.change(user).messages.push_back((message.n, message.body.len()));
        self.added.push((user.clone(), message.clone()));
    }

    pub fn remove(&mut self, user: &Arc<str>, through: u64) -> RemovedMessages {
        let messages = &mut self.change(user).messages;
        let removed = std::iter::from_fn(|| messages.pop_front_if(|(n, _)| *n <= through)).collect();
        self.forget(user, removed)
    }

    pub fn remove_oldest(&mut self, user: &Arc<str>) -> RemovedMessages {
        let removed = self.change(user).messages.pop_front().into_iter().collect();
        self.forget(user, removed)
    }

    fn forget(&mut self, user: &Arc<str>, removed: RemovedMessages) -> RemovedMessages {
        if removed.messages > 0 {
            self.removed.insert(user.clone(), removed.through);
            self.added.retain(|(to, message)| to != user || message.n > removed.through);
        }
        removed
    }

    pub fn set(&mut self, user: &Arc<str>, counts: &InboxCounts) {
        self.change(user).counts = *counts;
    }

    fn change(&mut self, user: &Arc<str>) -> &mut LockedInbox {
        self.loaded.get_mut(user).unwrap_or_else(|| panic!("the inbox of {user} is not locked"))
    }

    /// Deletes rows of inboxes that are empty or were only reserved.
    pub fn changes(&self) -> Vec<Statement<'_>> {
        let mut statements = Vec::new();
        if self.loaded.is_empty() {
            return statements;
        }
        if !self.removed.is_empty() {
            let sql =
                "DELETE FROM inbox_messages l USING unnest($1::text[], $2::bigint[]) AS k (user_id, through)
                WHERE l.user_id = k.user_id AND l.n <= k.through";
            let users: Vec<&str> = self.removed.keys().map(|user| &**user).collect();
            let through: Vec<i64> = self.removed.values().map(|through| number(*through)).collect();
            statements.push(Statement::new(sql).with(users).with(through));
        }
        if !self.added.is_empty() {
            let sql = "INSERT INTO inbox_messages (user_id, n, at, body)
                SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[])";
            statements.push(
                Statement::new(sql)
                    .with(self.added.iter().map(|(user, _)| &**user).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, message)| number(message.n)).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, message)| time(message.at)).collect::<Vec<_>>())
                    .with(self.added.iter().map(|(_, message)| &*message.body).collect::<Vec<_>>()),
            );
        }
        let sql = "UPDATE inboxes i SET last = k.last, dropped = k.dropped
            FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS k (user_id, last, dropped)
            WHERE i.user_id = k.user_id";
        statements.push(
            Statement::new(sql)
                .with(self.loaded.keys().map(|user| &**user).collect::<Vec<_>>())
                .with(self.loaded.values().map(|inbox| number(inbox.counts.last)).collect::<Vec<_>>())
                .with(self.loaded.values().map(|inbox| number(inbox.counts.dropped)).collect::<Vec<_>>()),
        );
        let empty = self.loaded.iter().filter(|(_, inbox)| inbox.counts.last == 0).map(|(user, _)| &**user);
        let sql = "DELETE FROM inboxes WHERE user_id = ANY ($1)";
        statements.push(Statement::new(sql).with(empty.collect::<Vec<_>>()));
        statements
    }
}

pub(super) async fn page(
    connection: &PostgresConnection,
    user: &str,
    after: u64,
    limit: u32,
) -> Result<InboxPage, PostgresError> {
    let limit = limit.clamp(1, limits::PAGE_ROWS);
    let messages = "SELECT n, at, body FROM
            (SELECT *, sum(length(body)) OVER (ORDER BY n) - length(body) AS earlier FROM
                (SELECT * FROM inbox_messages WHERE user_id = $1 AND n > $2 ORDER BY n LIMIT $3) AS few) AS counted
        WHERE earlier <= $4 ORDER BY n";
    let statements = vec![
        Statement::new("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
        Statement::new("SELECT dropped FROM inboxes WHERE user_id = $1").with(user),
        Statement::new(messages)
            .with(user)
            .with(number(after))
            .with(i64::from(limit) + 1)
            .with(limits::PAGE_BYTES as i64),
        Statement::new("COMMIT"),
    ];
    let found = connection.run(statements).await?;
    let dropped = found[1].first().map_or(Ok(0), |row| read_number(row, 0))?;
    let read = |row: &Row| {
        Ok::<_, PostgresError>(InboxMessage {
            n: read_number(row, 0)?,
            at: read_time(row, 1)?,
            body: column::<&[u8]>(row, 2)?.into(),
        })
    };
    Ok(InboxPage {
        dropped,
        page: Page::fill(limit, |message| message.body.len(), found[2].iter().map(read))?,
    })
}
