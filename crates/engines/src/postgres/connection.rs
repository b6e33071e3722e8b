//! One connection to the server, and statements that are sent together. Must hold: the statements of one `run` follow each
//! other on the connection without those of another `run` between them, so a transaction may share its connection.

use super::address::PostgresAddress;
use super::bus::Notices;
use super::error::PostgresError;
use super::tls::PostgresTls;
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Row};

/// Longer than the server's own statement timeout: a connection that exceeds it is closed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct PostgresConnection {
    pub client: Client,
    prepared: RefCell<HashMap<&'static str, tokio_postgres::Statement>>,
    /// The log of topics is known to be durable up to here.
    pub durable_log: Mutex<u64>,
    driver: JoinHandle<()>,
}

/// One statement with its values.
pub(super) struct Statement<'a> {
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync + 'a>>,
}

impl<'a> Statement<'a> {
    pub fn new(sql: &'static str) -> Statement<'a> {
        Statement { sql, values: Vec::new() }
    }

    pub fn with(mut self, value: impl ToSql + Sync + 'a) -> Statement<'a> {
        self.values.push(Box::new(value));
        self
    }
}

impl PostgresConnection {
    pub async fn open(
        address: &PostgresAddress,
        tls: &PostgresTls,
    ) -> Result<PostgresConnection, PostgresError> {
        PostgresConnection::open_listening(address, tls, Arc::default()).await
    }

    /// With a place for the notifications that the server sends.
    pub async fn open_listening(
        address: &PostgresAddress,
        tls: &PostgresTls,
        notices: Arc<Notices>,
    ) -> Result<PostgresConnection, PostgresError> {
        let (client, driver) = connect(address, tls, notices).await?;
        Ok(PostgresConnection { client, prepared: RefCell::default(), durable_log: Mutex::default(), driver })
    }

    /// Sends all of them at once; returns the rows that each of them found, or the first error.
    pub async fn run(&self, statements: Vec<Statement<'_>>) -> Result<Vec<Vec<Row>>, PostgresError> {
        let mut prepared = Vec::with_capacity(statements.len());
        for statement in &statements {
            prepared.push(self.prepare(statement.sql).await?);
        }
        let values: Vec<Vec<&(dyn ToSql + Sync)>> = statements
            .iter()
            .map(|statement| statement.values.iter().map(|value| &**value).collect())
            .collect();
        let sent = prepared.iter().zip(&values).map(|(prepared, values)| self.client.query(prepared, values));
        // Each is written to the connection when it is first polled, which happens in this order without a pause.
        let found = join_all(sent).await;
        Ok(found.into_iter().collect::<Result<_, _>>()?)
    }

    pub async fn one(&self, statement: Statement<'_>) -> Result<Vec<Row>, PostgresError> {
        Ok(self.run(vec![statement]).await?.pop().unwrap_or_default())
    }

    async fn prepare(&self, sql: &'static str) -> Result<tokio_postgres::Statement, PostgresError> {
        if let Some(prepared) = self.prepared.borrow().get(sql) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(sql).await?;
        self.prepared.borrow_mut().insert(sql, prepared.clone());
        Ok(prepared)
    }
}

impl Drop for PostgresConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Connects, and reads the connection until it ends.
pub(super) async fn connect(
    address: &PostgresAddress,
    tls: &PostgresTls,
    notices: Arc<Notices>,
) -> Result<(Client, JoinHandle<()>), PostgresError> {
    let opening = async {
        let (client, mut io) = address.config.connect(tls.clone()).await?;
        let driver = tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| io.poll_message(context)).await {
                match message {
                    Ok(AsyncMessage::Notification(notice)) => {
                        notices.push(notice.channel().to_owned(), notice.payload().to_owned());
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "postgres connection ended");
                        break;
                    }
                }
            }
            notices.close();
        });
        client.batch_execute(&settings(&address.schema)).await?;
        Ok((client, driver))
    };
    tokio::time::timeout(TIMEOUT, opening).await.map_err(|_| PostgresError::Timeout)?
}

/// Every query is planned as a key lookup, even if the tables were small when it was planned. A node that is paused
/// inside a transaction must not keep its locks for long.
fn settings(schema: &str) -> String {
    format!(
        "SET search_path TO {schema};
        SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
        SET plan_cache_mode = force_generic_plan; SET jit = off;
        SET statement_timeout = '10s'; SET idle_in_transaction_session_timeout = '10s';
        SET client_min_messages = warning;"
    )
}
