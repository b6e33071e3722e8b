//! The tables: one schema, created under a lock, whose version is in `schema_version`.
//! Must hold: a schema of another version, or of another program, is refused and left as it is.

use super::connection::PostgresConnection;
use super::error::PostgresError;
use tavern_store::StoreError;
use tokio_postgres::Client;

const SCHEMA: &str = include_str!("schema.sql");
/// The tables of the bus: younger than the others, and added to a schema that lacks them.
const BUS: &str = include_str!("bus.sql");
/// The functions for applications, likewise.
const PUBLISH: &str = include_str!("publish.sql");
/// Grows with every change of `schema.sql`.
pub(super) const VERSION: u64 = 1;

/// Creates the tables where there are none.
pub(super) async fn create(connection: &PostgresConnection, schema: &str) -> Result<(), StoreError> {
    let outcome = create_locked(connection, schema).await;
    let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = connection.client.batch_execute(end).await.map_err(PostgresError::from);
    outcome?;
    Ok(ended?)
}

async fn create_locked(connection: &PostgresConnection, schema: &str) -> Result<(), StoreError> {
    run(connection, "BEGIN").await?;
    // Nodes that start together are serialised, however long creating the tables takes.
    run(connection, "SET LOCAL statement_timeout = 0").await?;
    // Functions keep it: no temporary table can stand in for one of these.
    run(connection, &format!("SET LOCAL search_path TO {schema}, pg_temp")).await?;
    run(connection, &format!("SELECT pg_advisory_xact_lock(hashtextextended('tavern:{schema}', 0))")).await?;
    match version(&connection.client, schema).await? {
        Some(VERSION) => return add_younger(connection).await,
        Some(found) => return Err(StoreError::SchemaVersion { found, known: VERSION }),
        None => {}
    }
    // CREATE SCHEMA IF NOT EXISTS needs the right to create schemas, which the owner of an existing one may lack.
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let row = connection.client.query_one(sql, &[&schema]).await.map_err(PostgresError::from)?;
    if row.get::<_, i64>(0) == 0 {
        run(connection, &format!("CREATE SCHEMA {schema}")).await?;
    }
    run(connection, SCHEMA).await?;
    run(connection, "CREATE TABLE schema_version (version BIGINT NOT NULL)").await?;
    run(connection, &format!("INSERT INTO schema_version (version) VALUES ({VERSION})")).await?;
    add_younger(connection).await
}

async fn add_younger(connection: &PostgresConnection) -> Result<(), StoreError> {
    for (table, script) in [("bus_turn", BUS), ("sql_calls", PUBLISH)] {
        let sql = "SELECT to_regclass($1) IS NULL";
        let row = connection.client.query_one(sql, &[&table]).await.map_err(PostgresError::from)?;
        if row.get(0) {
            run(connection, script).await?;
        }
    }
    Ok(())
}

/// None: there are no tables yet.
pub(super) async fn version(client: &Client, schema: &str) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT count(*), count(*) FILTER (WHERE relname = 'schema_version')
        FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1";
    let row = client.query_one(sql, &[&schema]).await.map_err(PostgresError::from)?;
    let (things, ours): (i64, i64) = (row.get(0), row.get(1));
    if ours == 0 && things > 0 {
        let what = format!("the schema {schema} belongs to another program");
        return Err(StoreError::Corrupt { what, source: None });
    }
    if ours == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT version FROM {schema}.schema_version");
    let row = client.query_one(&sql, &[]).await.map_err(PostgresError::from)?;
    Ok(Some(row.get::<_, i64>(0).unsigned_abs()))
}

async fn run(connection: &PostgresConnection, sql: &str) -> Result<(), PostgresError> {
    Ok(connection.client.batch_execute(sql).await?)
}
