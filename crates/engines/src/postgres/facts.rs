//! What an operator should know about a Postgres server.

use super::address::PostgresAddress;
use super::bus::of_store;
use super::error::PostgresError;
use super::tls::PostgresTls;
use super::value::get;
use super::{connection, pooler, schema};
use crate::fact::{CheckResult, StoreFacts, encryption};
use tavern_store::{BusError, StoreError};
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Row};

/// The oldest server that has everything needed (`plan_cache_mode`).
const OLDEST: i32 = 120_000;
/// The maximum that one node needs: one that writes, two that read, one of the bus, and one more while one of them is
/// replaced.
const CONNECTIONS: i64 = 5;
/// Above this, somebody does not read their notifications.
const FULL_QUEUE: f64 = 0.1;

pub fn facts(url: &str) -> Result<StoreFacts, StoreError> {
    visit(url, async |address, tls| inspect(address, tls).await)
}

/// The same server, as a bus.
pub fn bus_facts(url: &str) -> Result<Vec<CheckResult>, BusError> {
    visit(url, async |address, tls| inspect_bus(address, tls).await).map_err(of_store)
}

fn visit<T>(
    url: &str,
    look: impl AsyncFnOnce(&PostgresAddress, PostgresTls) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let address = PostgresAddress::parse(url)?;
    let tls = PostgresTls::new(&address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| PostgresError::Connector(error.to_string()))?;
    runtime.block_on(async {
        let looking = tokio::time::timeout(connection::TIMEOUT, look(&address, tls));
        looking.await.unwrap_or(Err(PostgresError::Timeout.into()))
    })
}

async fn inspect_bus(address: &PostgresAddress, tls: PostgresTls) -> Result<Vec<CheckResult>, StoreError> {
    let is_pooled = pooler::is_between(address, &tls).await?;
    let (client, connection) = address.config.connect(tls).await.map_err(PostgresError::from)?;
    let driver = tokio::spawn(connection);
    let sql = "SELECT pg_notification_queue_usage(), pg_is_in_recovery()";
    let found = client.query_one(sql, &[]).await;
    driver.abort();
    let row = found.map_err(PostgresError::from)?;
    let mut facts = vec![pooling(is_pooled), notifications(get::<f64>(&row, 0)?)];
    if get::<bool>(&row, 1)? {
        facts.push(CheckResult::bad(
            "writing",
            "a standby sends no notifications: use the address of the primary",
        ));
    }
    Ok(facts)
}

fn pooling(is_pooled: bool) -> CheckResult {
    match is_pooled {
        true => CheckResult::bad("pooler", PostgresError::Pooler.to_string()),
        false => CheckResult::ok("pooler", "no transaction pooler in between"),
    }
}

fn notifications(usage: f64) -> CheckResult {
    let text = format!("the queue of notifications is {:.0} % full", usage * 100.0);
    match usage {
        FULL_QUEUE.. => CheckResult::doubtful(
            "notifications",
            format!("{text}: a listener does not read; look for old transactions in pg_stat_activity"),
        ),
        _ => CheckResult::ok("notifications", text),
    }
}

async fn inspect(address: &PostgresAddress, tls: PostgresTls) -> Result<StoreFacts, StoreError> {
    // Without the settings of the store: an old server would refuse them, and should still report its version.
    let is_pooled = pooler::is_between(address, &tls).await?;
    let (client, connection) = address.config.connect(tls).await.map_err(PostgresError::from)?;
    let driver = tokio::spawn(connection);
    let found = ask(&client, address).await;
    driver.abort();
    let mut found = found?;
    found.facts.push(pooling(is_pooled));
    found.is_made &= !is_pooled;
    Ok(found)
}

async fn ask(client: &Client, address: &PostgresAddress) -> Result<StoreFacts, StoreError> {
    let sql = "SELECT current_setting('server_version_num')::int, split_part(current_setting('server_version'), ' ', 1),
        coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false),
        pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool,
        current_setting('fsync')::bool, current_setting('full_page_writes')::bool,
        current_setting('synchronous_commit'), current_setting('synchronous_standby_names') <> '',
        current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
        (SELECT sum(numbackends)::bigint FROM pg_stat_database),
        current_setting('default_transaction_isolation')";
    let row = client.query_one(sql, &[]).await.map_err(PostgresError::from)?;
    let hosts: Vec<&str> = address
        .config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) => name.as_str(),
            Host::Unix(_) => "localhost",
        })
        .collect();
    let mut facts = vec![
        version(&row)?,
        encryption(get(&row, 2)?, &hosts, "add ?sslmode=verify-full"),
        durability(&row)?,
        connections(&row)?,
    ];
    facts.extend(isolation(get::<&str>(&row, 10)?));
    if get::<bool>(&row, 3)? {
        let text = "accepts no writes: it is a standby or read-only; use the address of the primary";
        facts.push(CheckResult::bad("writing", text));
    }
    let is_made = tables(client, address, &mut facts).await?;
    Ok(StoreFacts { is_made: is_made && !facts.iter().any(|fact| fact.about == "writing"), facts })
}

fn version(row: &Row) -> Result<CheckResult, PostgresError> {
    let text = format!("Postgres {}", get::<&str>(row, 1)?);
    Ok(match get::<i32>(row, 0)? {
        number if number < OLDEST => CheckResult::bad("version", format!("{text}; 12 or newer is needed")),
        _ => CheckResult::ok("version", text),
    })
}

fn durability(row: &Row) -> Result<CheckResult, PostgresError> {
    let (fsync, pages) = (get::<bool>(row, 4)?, get::<bool>(row, 5)?);
    let (commit, standbys) = (get::<&str>(row, 6)?, get::<bool>(row, 7)?);
    let shown = format!("synchronous_commit={commit}");
    Ok(match (fsync, pages, commit) {
        (false, ..) => CheckResult::doubtful(
            "durability",
            "fsync=off: a crash of the machine may damage the whole database; set fsync=on",
        ),
        (_, false, _) => CheckResult::doubtful(
            "durability",
            "full_page_writes=off: a crash of the machine may damage tables; set it to on",
        ),
        (.., "off") => CheckResult::doubtful(
            "durability",
            format!("{shown}: acknowledged commits may be lost in a crash; set it to on"),
        ),
        (.., "local" | "remote_write") if standbys => CheckResult::doubtful(
            "durability",
            format!("{shown}: a failover may lose acknowledged commits; set it to on"),
        ),
        _ if standbys => CheckResult::ok("durability", format!("{shown}, with synchronous standbys")),
        _ => CheckResult::ok(
            "durability",
            format!("{shown}; a standby, if there is one, may lag at a failover"),
        ),
    })
}

fn connections(row: &Row) -> Result<CheckResult, PostgresError> {
    let (max, used) = (get::<i64>(row, 8)?, get::<Option<i64>>(row, 9)?.unwrap_or(0));
    let text = format!("{used} of {max} in use; a node needs {CONNECTIONS}");
    Ok(match max - used {
        ..CONNECTIONS => CheckResult::bad("connections", format!("{text}: raise max_connections")),
        free if free < 5 * CONNECTIONS => {
            CheckResult::doubtful("connections", format!("{text}; few are left: raise max_connections"))
        }
        _ => CheckResult::ok("connections", text),
    })
}

/// Commits lock the rows that they depend on; with snapshots they would fail where they should wait.
fn isolation(level: &str) -> Option<CheckResult> {
    (level != "read committed").then(|| {
        let text = format!(
            "default_transaction_isolation={level}: commits fail under load; set it to read committed for this login"
        );
        CheckResult::doubtful("isolation", text)
    })
}

/// True: they are as this program creates them.
async fn tables(
    client: &Client,
    address: &PostgresAddress,
    facts: &mut Vec<CheckResult>,
) -> Result<bool, StoreError> {
    let (schema, known) = (&address.schema, schema::VERSION);
    let found = match schema::version(client, schema).await {
        Ok(found) => found,
        Err(StoreError::Corrupt { what, .. }) => {
            facts.push(CheckResult::bad("tables", format!("{what}; choose another with ?schema=")));
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let fact = match found {
        Some(found) if found == known => {
            CheckResult::ok("tables", format!("version {found} in schema {schema}"))
        }
        Some(found) => CheckResult::bad(
            "tables",
            format!(
                "version {found} in schema {schema}, this program uses {known}: start the tavern version that wrote them, or choose another schema with ?schema="
            ),
        ),
        None => {
            let sql = "SELECT CASE count(*) WHEN 0 THEN has_database_privilege(current_database(), 'CREATE')
                ELSE bool_or(has_schema_privilege(oid, 'CREATE')) END FROM pg_namespace WHERE nspname = $1";
            let row = client.query_one(sql, &[schema]).await.map_err(PostgresError::from)?;
            match get::<bool>(&row, 0)? {
                true => CheckResult::doubtful(
                    "tables",
                    format!("none in schema {schema} yet; the first server to start creates them"),
                ),
                false => CheckResult::bad(
                    "tables",
                    format!(
                        "none in schema {schema}, and this user may not create them: see docs/deploy/security.md"
                    ),
                ),
            }
        }
    };
    facts.push(fact);
    Ok(found == Some(known))
}
