//! Detects a transaction pooler between the node and the database: one that gives a session another connection for each
//! transaction. Session settings, prepared statements and LISTEN do not survive that, and each fails in its own strange way.

use super::address::PostgresAddress;
use super::connection::TIMEOUT;
use super::error::PostgresError;
use super::tls::PostgresTls;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A pooler hands out its connections in turn or the last one first: a few rounds show both.
const ROUNDS: usize = 3;
/// A pool that has only one connection lets the second session wait.
const PATIENCE: Duration = Duration::from_secs(3);

/// An error when there is a pooler.
pub(super) async fn refuse(address: &PostgresAddress, tls: &PostgresTls) -> Result<(), PostgresError> {
    if is_between(address, tls).await? { Err(PostgresError::Pooler) } else { Ok(()) }
}

/// While one session is in a transaction, another one must keep its own connection.
pub(super) async fn is_between(address: &PostgresAddress, tls: &PostgresTls) -> Result<bool, PostgresError> {
    let looking = async {
        let (one, other) = (ProbeSession::open(address, tls).await?, ProbeSession::open(address, tls).await?);
        let own = one.process().await?;
        for _ in 0..ROUNDS {
            other.0.batch_execute("BEGIN").await?;
            let its = other.process().await?;
            let again = tokio::time::timeout(PATIENCE, one.process()).await;
            if its == own || again.is_err() || again.is_ok_and(|again| again.is_ok_and(|now| now != own)) {
                return Ok(true);
            }
            other.0.batch_execute("ROLLBACK").await?;
        }
        Ok(false)
    };
    tokio::time::timeout(TIMEOUT, looking).await.map_err(|_| PostgresError::Timeout)?
}

struct ProbeSession(Client, JoinHandle<()>);

impl ProbeSession {
    async fn open(address: &PostgresAddress, tls: &PostgresTls) -> Result<ProbeSession, PostgresError> {
        let (client, io) = address.config.connect(tls.clone()).await?;
        Ok(ProbeSession(client, tokio::spawn(async move { drop(io.await) })))
    }

    /// The server process of its connection. Without a prepared statement, which some poolers refuse.
    async fn process(&self) -> Result<Option<String>, PostgresError> {
        let found = self.0.simple_query("SELECT pg_backend_pid()").await?;
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(found.iter().find_map(row))
    }
}

impl Drop for ProbeSession {
    fn drop(&mut self) {
        self.1.abort();
    }
}
