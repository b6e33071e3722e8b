//! A connection that reconnects after it was lost. Retries run in the background, with backoff, and are logged. Must
//! hold: a caller waits only briefly for a new connection.

use super::address::PostgresAddress;
use super::connection::PostgresConnection;
use super::error::PostgresError;
use super::tls::PostgresTls;
use crate::reconnects::Reconnects;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Between two attempts to connect: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Short: after an outage every node must be back well within its lease.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long work waits for a connection that was just lost: long enough for a restarted server or a broken connection.
const GRACE: Duration = Duration::from_secs(1);

/// Where the database is.
#[derive(Clone)]
pub(super) struct PostgresDatabase {
    pub address: Arc<PostgresAddress>,
    pub tls: PostgresTls,
    /// One connection succeeded: the others retry at once.
    pub reached: Arc<Notify>,
    pub reconnects: Arc<Reconnects>,
}

pub(super) struct Reconnecting {
    database: PostgresDatabase,
    connection: Option<PostgresConnection>,
    /// Retries until there is a new connection.
    retrying: Option<JoinHandle<PostgresConnection>>,
    /// The grace period is over: callers do not wait until the connection is back.
    is_down: bool,
}

impl PostgresDatabase {
    pub async fn connect(&self) -> Result<PostgresConnection, PostgresError> {
        PostgresConnection::open(&self.address, &self.tls).await
    }

    async fn retry(self) -> PostgresConnection {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(connection) => {
                    self.reconnects.note(None);
                    self.reached.notify_waiters();
                    return connection;
                }
                Err(error) => {
                    let (error, retry_ms) = (&error as &dyn std::error::Error, pause.as_millis());
                    tracing::warn!(error, retry_ms, "postgres unreachable");
                }
            }
            if tokio::time::timeout(pause, self.reached.notified()).await.is_err() {
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

impl Reconnecting {
    pub fn new(database: PostgresDatabase, connection: PostgresConnection) -> Reconnecting {
        Reconnecting { database, connection: Some(connection), retrying: None, is_down: false }
    }

    /// The connection. `NotConnected`: there is none, and the grace period is over.
    pub async fn get(&mut self) -> Result<&PostgresConnection, PostgresError> {
        if self.connection.as_ref().is_some_and(|connection| connection.client.is_closed()) {
            self.lose();
        }
        if self.connection.is_none() {
            let database = &self.database;
            let retrying = self.retrying.get_or_insert_with(|| tokio::spawn(database.clone().retry()));
            let wait = if self.is_down { Duration::ZERO } else { GRACE };
            match tokio::time::timeout(wait, &mut *retrying).await {
                Ok(outcome) => {
                    self.retrying = None;
                    self.connection = outcome.ok();
                    self.is_down = false;
                    tracing::info!("postgres reconnected");
                }
                Err(_) => self.is_down = true,
            }
        }
        self.connection.as_ref().ok_or(PostgresError::NotConnected)
    }

    /// Drops the connection.
    pub fn lose(&mut self) {
        if self.connection.take().is_some() {
            tracing::warn!("postgres connection lost");
            self.retrying = Some(tokio::spawn(self.database.clone().retry()));
        }
    }
}

impl Drop for Reconnecting {
    fn drop(&mut self) {
        if let Some(retrying) = self.retrying.take() {
            retrying.abort();
        }
    }
}
