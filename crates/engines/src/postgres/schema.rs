//! The migrations: one file each, applied in order under a lock, counted in `schema_version`.
//! Must hold: a migration that was released never changes; a database of a newer version is left as it is.

use super::link::Link;
use super::value::Trouble;
use tavern_store::store::StoreError;
use tokio_postgres::Client;

const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first_rows.sql"),
    include_str!("migrations/0002_presence.sql"),
    include_str!("migrations/0003_people.sql"),
    include_str!("migrations/0004_log_letters_leases.sql"),
    include_str!("migrations/0005_parties_as_tables.sql"),
];

/// The version that this program makes.
pub(super) fn known() -> u64 {
    MIGRATIONS.len() as u64
}

pub(super) async fn migrate(link: &Link, schema: &str) -> Result<(), StoreError> {
    let outcome = bring_up_to_date(link, schema).await;
    let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = link.client.batch_execute(end).await.map_err(Trouble::from);
    outcome?;
    Ok(ended?)
}

async fn bring_up_to_date(link: &Link, schema: &str) -> Result<(), StoreError> {
    run(link, "BEGIN").await?;
    // Nodes that start together take turns, however long a change of the tables takes.
    run(link, "SET LOCAL statement_timeout = 0").await?;
    run(link, &format!("SELECT pg_advisory_xact_lock(hashtextextended('tavern:{schema}', 0))")).await?;
    let found = version(&link.client, schema).await?;
    let known = known();
    if found.is_some_and(|found| found > known) {
        return Err(StoreError::Newer { found: found.unwrap_or_default(), known });
    }
    if found.is_none() {
        // Even IF NOT EXISTS needs a right that whoever was given a schema may not have.
        let sql = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
        let row = link.client.query_one(sql, &[&schema]).await.map_err(Trouble::from)?;
        if row.get::<_, i64>(0) == 0 {
            run(link, &format!("CREATE SCHEMA {schema}")).await?;
        }
        run(link, "CREATE TABLE schema_version (version BIGINT NOT NULL)").await?;
        run(link, "INSERT INTO schema_version (version) VALUES (0)").await?;
    }
    let found = found.unwrap_or_default() as usize;
    for migration in &MIGRATIONS[found..] {
        run(link, migration).await?;
    }
    if found < MIGRATIONS.len() {
        run(link, &format!("UPDATE schema_version SET version = {known}")).await?;
    }
    Ok(())
}

/// None: there is nothing yet.
pub(super) async fn version(client: &Client, schema: &str) -> Result<Option<u64>, StoreError> {
    let sql = "SELECT count(*), count(*) FILTER (WHERE relname = 'schema_version')
        FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1";
    let row = client.query_one(sql, &[&schema]).await.map_err(Trouble::from)?;
    let (things, ours): (i64, i64) = (row.get(0), row.get(1));
    if ours == 0 && things > 0 {
        let what = format!("the schema {schema} was made by another program");
        return Err(StoreError::Corrupt { what, source: None });
    }
    if ours == 0 {
        return Ok(None);
    }
    let sql = format!("SELECT version FROM {schema}.schema_version");
    let row = client.query_one(&sql, &[]).await.map_err(Trouble::from)?;
    Ok(Some(row.get::<_, i64>(0).unsigned_abs()))
}

async fn run(link: &Link, sql: &str) -> Result<(), Trouble> {
    Ok(link.client.batch_execute(sql).await?)
}
