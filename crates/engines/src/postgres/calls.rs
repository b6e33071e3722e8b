//! The queue of calls of `publish()` and `emit()` (`publish.sql`), as the servers use it. One of them, the mover, takes the calls
//! of committed transactions; the others stand by.
//! Must hold: calls come in the order of their ids, and none is skipped, however long its transaction was open; a mover
//! that sleeps is woken by the next commit with a call, and one that is frozen is replaced.
//!
//! Two advisory locks: the mover holds the one of its role, and holds the other alone while it sleeps. Transactions that call
//! share that one until they end, so the mover cannot go to sleep before them; who does not get it sends a notification.

use super::address::PostgresAddress;
use super::bus::{Notices, ReceivedNotice};
use super::connection;
use super::error::PostgresError;
use super::tls::PostgresTls;
use super::value::get;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_store::StoreError;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// Calls in one page.
const PAGE: i64 = 1_000;
/// The locks, with the oid of the queue as the second number. `publish.sql` has the first one too.
const AWAKE: i32 = 1_413_564_464;
const MOVER: i32 = AWAKE + 1;
/// A mover that does nothing for this long after it was woken, or while it is awake, is frozen.
const FROZEN: Duration = Duration::from_secs(15);
/// How often a standby asks whether the role is free: a mover that dies cannot tell. Half a lease of a server.
const STANDBY: Duration = Duration::from_secs(5);

const SNAPSHOT: &str = "SELECT txid_snapshot_xmax(now), ARRAY (SELECT txid_snapshot_xip(now))
    FROM (SELECT txid_current_snapshot() AS now) AS current";
const CALLS: &str = "SELECT xid, id, at, name, event_type, event_id, data FROM sql_calls
    WHERE xid >= $1 OR xid = ANY ($2) ORDER BY id LIMIT $3";
/// More than a page waits: their keys are read and sorted once, then the calls by key, so that a call costs the same
/// however many wait.
const KEYS: &str = "SELECT xid, id FROM sql_calls WHERE xid >= $1 OR xid = ANY ($2) ORDER BY id LIMIT $3";
const BACKLOG_KEYS: i64 = 1_000_000;
const CALLS_BY_KEY: &str = "SELECT xid, id, at, name, event_type, event_id, data
    FROM unnest($1::bigint[], $2::bigint[]) AS key (xid, id) JOIN sql_calls USING (xid, id) ORDER BY id";
const REMOVE: &str = "DELETE FROM sql_calls USING unnest($1::bigint[], $2::bigint[]) AS done (xid, id)
    WHERE sql_calls.xid = done.xid AND sql_calls.id = done.id";
const REFUSE: &str = "WITH gone AS (
        DELETE FROM sql_calls USING unnest($1::bigint[], $2::bigint[]) AS done (xid, id)
        WHERE sql_calls.xid = done.xid AND sql_calls.id = done.id RETURNING sql_calls.*
    )
    INSERT INTO sql_refused (id, at, name, event_type, event_id, data, reason)
    SELECT gone.id, at, name, event_type, event_id, data, reason
    FROM unnest($3::bigint[], $4::text[]) AS refused (id, reason) JOIN gone ON gone.id = refused.id";

pub struct SqlCalls {
    client: Client,
    driver: JoinHandle<()>,
    notices: Arc<Notices>,
    /// The statements.
    snapshot: Statement,
    calls: Statement,
    keys: Statement,
    calls_by_key: Statement,
    remove: Statement,
    /// The table, as the second number of the locks.
    queue: i32,
    /// What the last look that found everything could not see: transactions from the first number on, and these.
    unseen: (i64, Vec<i64>),
    /// The last look found a full page.
    has_more: bool,
    /// Keys of visible calls, in the order of their ids.
    backlog: VecDeque<(i64, i64)>,
    is_asleep: bool,
    /// When a standby heard that the mover was called.
    called_at: Option<Instant>,
}

/// A call of `publish` or `emit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlCall {
    xid: i64,
    pub id: i64,
    pub at_ms: u64,
    /// The channel, or the topic.
    pub name: String,
    pub event: Option<SqlEvent>,
    /// JSON.
    pub data: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlEvent {
    pub kind: String,
    pub id: Option<String>,
}

impl SqlCalls {
    /// Whether a store has such a queue.
    pub fn has(url: &str) -> bool {
        url.starts_with("postgres")
    }

    pub async fn open(url: &str) -> Result<SqlCalls, StoreError> {
        let address = PostgresAddress::parse(url)?;
        let tls = PostgresTls::new(&address)?;
        let notices = Arc::new(Notices::default());
        let (client, driver) = connection::connect(&address, &tls, notices.clone()).await?;
        let asked = tokio::try_join!(
            client.prepare(SNAPSHOT),
            client.prepare(CALLS),
            client.prepare(KEYS),
            client.prepare(CALLS_BY_KEY),
            client.prepare(REMOVE),
            client.query_one("SELECT 'sql_calls'::regclass::oid::int", &[])
        );
        let (snapshot, calls, keys, calls_by_key, remove, row) = asked.map_err(PostgresError::from)?;
        let queue: i32 = get(&row, 0)?;
        // By the key always: a plan from when the queue was small would read the remains of deleted rows.
        let listen = format!("SET enable_seqscan = off; LISTEN tavern_sql_{}", queue.cast_unsigned());
        client.batch_execute(&listen).await.map_err(PostgresError::from)?;
        Ok(SqlCalls {
            client,
            driver,
            notices,
            snapshot,
            calls,
            keys,
            calls_by_key,
            remove,
            queue,
            unseen: (0, Vec::new()),
            has_more: false,
            backlog: VecDeque::new(),
            is_asleep: false,
            called_at: None,
        })
    }

    /// Waits until this server is the mover. Then the limits that the functions check are these.
    pub async fn lead(&mut self, message_bytes: usize, event_bytes: usize) -> Result<(), StoreError> {
        let mut looked = Instant::now();
        while !self.ask("SELECT pg_try_advisory_lock($1, $2)", MOVER).await? {
            let until = tokio::time::Instant::now() + STANDBY;
            while let Ok(arrived) = tokio::time::timeout_at(until, self.notices.next()).await {
                if matches!(arrived, ReceivedNotice::Closed) {
                    return Err(PostgresError::NotConnected.into());
                }
                self.called_at.get_or_insert_with(Instant::now);
            }
            if looked.elapsed() > FROZEN || self.called_at.is_some_and(|at| at.elapsed() > FROZEN) {
                self.end_frozen_mover().await?;
                looked = Instant::now();
            }
        }
        let limits = [message_bytes, event_bytes].map(|bytes| i32::try_from(bytes).unwrap_or(i32::MAX));
        let sql = "UPDATE sql_limits SET message_bytes = $1, event_bytes = $2
            WHERE (message_bytes, event_bytes) <> ($1, $2)";
        self.client.execute(sql, &[&limits[0], &limits[1]]).await.map_err(PostgresError::from)?;
        self.unseen = (0, Vec::new());
        Ok(())
    }

    /// A mover whose process is stopped keeps its connection and so its role.
    async fn end_frozen_mover(&mut self) -> Result<(), PostgresError> {
        let frozen_ms = FROZEN.as_millis() as i64;
        let called_ms = self.called_at.map(|at| i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX));
        let sql = "SELECT pg_terminate_backend(mover.pid) FROM pg_locks mover JOIN pg_stat_activity doing USING (pid)
            WHERE mover.locktype = 'advisory' AND mover.classid = $1::bigint::oid AND mover.objid = $3::int::oid AND mover.granted
                AND doing.state_change < clock_timestamp() - $4::bigint * interval '1 millisecond'
                AND ($5::bigint > $4::bigint AND doing.state_change < clock_timestamp() - $5::bigint * interval '1 millisecond'
                    OR NOT EXISTS (SELECT FROM pg_locks asleep WHERE asleep.locktype = 'advisory' AND asleep.pid = mover.pid
                        AND asleep.classid = $2::bigint::oid AND asleep.objid = mover.objid AND asleep.granted))";
        let (mover, awake) = (i64::from(MOVER), i64::from(AWAKE));
        let ended = self.client.query(sql, &[&mover, &awake, &self.queue, &frozen_ms, &called_ms]).await?;
        if !ended.is_empty() {
            tracing::warn!("the server that moves calls from SQL does not react; taking over");
        }
        if called_ms.is_some_and(|ms| ms > frozen_ms) {
            self.called_at = None;
        }
        Ok(())
    }

    /// The next calls of committed transactions. Those of the page before must be removed.
    pub async fn page(&mut self) -> Result<Vec<SqlCall>, StoreError> {
        if self.backlog.is_empty() && self.has_more {
            let keys = self.keys.clone();
            let rows = self.look(&keys, BACKLOG_KEYS).await?;
            let keys = rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?)));
            self.backlog = keys.collect::<Result<_, PostgresError>>()?;
        }
        while !self.backlog.is_empty() {
            let calls = self.backlog_page().await?;
            if !calls.is_empty() {
                return Ok(calls);
            }
        }
        let calls = self.calls.clone();
        let rows = self.look(&calls, PAGE).await?;
        Ok(rows.iter().map(call).collect::<Result<_, PostgresError>>()?)
    }

    /// More calls than the last page were there.
    pub fn has_more(&self) -> bool {
        self.has_more || !self.backlog.is_empty()
    }

    /// The first rows of what the last look could not see.
    async fn look(&mut self, sql: &Statement, most: i64) -> Result<Vec<Row>, PostgresError> {
        // The snapshot is taken first: what commits between the two statements is seen twice, and not missed.
        let unseen: [&(dyn ToSql + Sync); 3] = [&self.unseen.0, &self.unseen.1, &most];
        let (next, rows) =
            tokio::try_join!(self.client.query_one(&self.snapshot, &[]), self.client.query(sql, &unseen))?;
        self.has_more = rows.len() as i64 == most;
        if !self.has_more {
            self.unseen = (get(&next, 0)?, get(&next, 1)?);
        }
        Ok(rows)
    }

    async fn backlog_page(&mut self) -> Result<Vec<SqlCall>, PostgresError> {
        let size = self.backlog.len().min(PAGE as usize);
        let (xids, ids): (Vec<i64>, Vec<i64>) = self.backlog.drain(..size).unzip();
        let rows = self.client.query(&self.calls_by_key, &[&xids, &ids]).await?;
        rows.iter().map(call).collect()
    }

    /// These calls are done. Those with a reason were refused for good.
    pub async fn remove(&mut self, done: &[&SqlCall], refused: &[(i64, String)]) -> Result<(), StoreError> {
        let (xids, ids): (Vec<i64>, Vec<i64>) = done.iter().map(|call| (call.xid, call.id)).unzip();
        let removed = if refused.is_empty() {
            self.client.execute(&self.remove, &[&xids, &ids]).await
        } else {
            let (refused, reasons): (Vec<i64>, Vec<&str>) =
                refused.iter().map(|(id, reason)| (*id, &**reason)).unzip();
            self.client.execute(REFUSE, &[&xids, &ids, &refused, &reasons]).await
        };
        removed.map_err(PostgresError::from)?;
        Ok(())
    }

    /// Goes to sleep, unless a transaction with calls is open. True: from now on a call wakes this server.
    pub async fn sleep(&mut self) -> Result<bool, StoreError> {
        self.is_asleep = self.is_asleep || self.ask("SELECT pg_try_advisory_lock($1, $2)", AWAKE).await?;
        Ok(self.is_asleep)
    }

    /// Waits for a call, then wakes up.
    pub async fn wait(&mut self) -> Result<(), StoreError> {
        if matches!(self.notices.next().await, ReceivedNotice::Closed) {
            return Err(PostgresError::NotConnected.into());
        }
        self.wake().await
    }

    pub async fn wake(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.is_asleep) {
            self.ask("SELECT pg_advisory_unlock($1, $2)", AWAKE).await?;
        }
        Ok(())
    }

    pub fn is_asleep(&self) -> bool {
        self.is_asleep
    }

    async fn ask(&self, sql: &str, lock: i32) -> Result<bool, PostgresError> {
        get(&self.client.query_one(sql, &[&lock, &self.queue]).await?, 0)
    }
}

impl Drop for SqlCalls {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn call(row: &Row) -> Result<SqlCall, PostgresError> {
    let (kind, id) = (get::<Option<String>>(row, 4)?, get::<Option<String>>(row, 5)?);
    Ok(SqlCall {
        xid: get(row, 0)?,
        id: get(row, 1)?,
        at_ms: get::<i64>(row, 2)?.max(0).cast_unsigned(),
        name: get(row, 3)?,
        event: kind.map(|kind| SqlEvent { kind, id }),
        data: get(row, 6)?,
    })
}
