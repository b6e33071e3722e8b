//! One connection to the server, and statements that are sent together. Must hold: the statements of one `run` follow each
//! other on the connection with nothing of another `run` between them, so a transaction may share its connection.

use super::address::Address;
use super::tls::Tls;
use super::value::Trouble;
use futures_util::future::join_all;
use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

/// Longer than the server lets a statement run: what is late here has no connection any more.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

pub(super) struct Link {
    pub client: Client,
    statements: RefCell<HashMap<&'static str, Statement>>,
    driver: JoinHandle<()>,
}

/// One statement with its values.
pub(super) struct Step<'a> {
    sql: &'static str,
    values: Vec<Box<dyn ToSql + Sync + 'a>>,
}

impl<'a> Step<'a> {
    pub fn new(sql: &'static str) -> Step<'a> {
        Step { sql, values: Vec::new() }
    }

    pub fn with(mut self, value: impl ToSql + Sync + 'a) -> Step<'a> {
        self.values.push(Box::new(value));
        self
    }
}

impl Link {
    pub async fn connect(address: &Address, tls: &Tls) -> Result<Link, Trouble> {
        let opening = async {
            let (client, connection) = address.config.connect(tls.clone()).await?;
            let driver = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the database ended");
                }
            });
            let link = Link { client, statements: RefCell::default(), driver };
            link.client.batch_execute(&settings(&address.schema)).await?;
            Ok(link)
        };
        tokio::time::timeout(PATIENCE, opening).await.map_err(|_| Trouble::Late)?
    }

    /// Sends all of them at once; what each of them found, or the first thing that went wrong.
    pub async fn run(&self, steps: Vec<Step<'_>>) -> Result<Vec<Vec<Row>>, Trouble> {
        let mut statements = Vec::with_capacity(steps.len());
        for step in &steps {
            statements.push(self.statement(step.sql).await?);
        }
        let values: Vec<Vec<&(dyn ToSql + Sync)>> =
            steps.iter().map(|step| step.values.iter().map(|value| &**value).collect()).collect();
        let sent =
            statements.iter().zip(&values).map(|(statement, values)| self.client.query(statement, values));
        // Each is put on the wire when it is first polled, which happens in this order without a pause.
        let found = join_all(sent).await;
        Ok(found.into_iter().collect::<Result<_, _>>()?)
    }

    pub async fn one(&self, step: Step<'_>) -> Result<Vec<Row>, Trouble> {
        Ok(self.run(vec![step]).await?.pop().unwrap_or_default())
    }

    async fn statement(&self, sql: &'static str) -> Result<Statement, Trouble> {
        if let Some(statement) = self.statements.borrow().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.borrow_mut().insert(sql, statement.clone());
        Ok(statement)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Everything is looked up by its key, however small the tables were when a statement was planned. A node that is paused
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
