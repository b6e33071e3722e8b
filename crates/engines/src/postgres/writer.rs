//! Commits, many in one transaction: everything they depend on is locked and loaded in one round trip, the common
//! commit algorithm applies them in memory, and the changes are written with COMMIT in a second round trip. Must
//! hold: a refusal, or a value that the server rejects, affects only its own commit.

use super::connection::{PostgresConnection, Statement};
use super::error::PostgresError;
use super::locks::LockSet;
use super::log;
use super::tables::PostgresTables;
use super::value::{get, number, read_number, read_time, time};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::commit::VersionClock;
use tavern_store::{Clock, Commit, Receipt, StoreError, StoreTotals, commit};

/// How often a batch is tried when another transaction conflicts. Locks are taken in one order, so only other
/// programs can cause this.
const TRIES: usize = 5;

const CLOCK: &str = "SELECT max(time_ms), max(floor), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM store_clock";

pub(super) type CommitResults = Vec<Result<Receipt, StoreError>>;

/// The server's clock, as far as the node's clock trusts it.
#[derive(Clone)]
pub(super) struct PostgresClock {
    /// Instead of the server's clock, for tests.
    pub replaced: Option<Arc<dyn Clock>>,
    /// The node's clock, which bounds the server's.
    pub node: Arc<dyn Clock>,
}

pub(super) struct PostgresWriter<'a> {
    pub connection: &'a PostgresConnection,
    pub clock: &'a PostgresClock,
    /// Of `store_clock`.
    pub lane: i32,
}

/// Round-robin, so that no two stores share a lane while there are enough.
pub(super) async fn choose_lane(connection: &PostgresConnection) -> Result<i32, PostgresError> {
    let sql = "SELECT (nextval('store_lanes') % (SELECT count(*) FROM store_clock))::int";
    let rows = connection.one(Statement::new(sql)).await?;
    get(rows.first().ok_or(PostgresError::Unexpected("store_clock is empty"))?, 0)
}

impl PostgresClock {
    /// The stored time and floor as this connection sees them, and the wall clock.
    fn read(&self, rows: &[tokio_postgres::Row]) -> Result<(VersionClock, Time), PostgresError> {
        let row = rows.first().ok_or(PostgresError::Unexpected("store_clock is empty"))?;
        let stored = VersionClock {
            time: read_time(row, 0)?,
            floor: read_number(row, 1)?,
            // The transaction adds to its lane what it changes.
            totals: StoreTotals::default(),
        };
        let wall = self.replaced.as_ref().map_or_else(|| read_time(row, 2), |clock| Ok(clock.now()))?;
        Ok((stored, wall))
    }

    pub async fn time(&self, connection: &PostgresConnection) -> Result<Time, PostgresError> {
        let (mut stored, wall) = self.read(&connection.one(Statement::new(CLOCK)).await?)?;
        self.node.observe_server(wall);
        Ok(stored.advance(wall.min(self.node.latest())))
    }
}

/// The sum over all lanes, of one moment.
pub(super) async fn totals(connection: &PostgresConnection) -> Result<StoreTotals, PostgresError> {
    let sql = "SELECT sum(users)::bigint, sum(presences)::bigint, sum(parties)::bigint FROM store_clock";
    let rows = connection.one(Statement::new(sql)).await?;
    let row = rows.first().ok_or(PostgresError::Unexpected("store_clock is empty"))?;
    Ok(StoreTotals { users: get(row, 0)?, presences: get(row, 1)?, parties: get(row, 2)? })
}

impl PostgresWriter<'_> {
    /// An error means that nothing of the batch was written, or that the outcome is unknown.
    pub async fn write(&self, commits: &[&Commit]) -> Result<CommitResults, PostgresError> {
        match self.persist(commits).await {
            Err(error) if error.is_refused_value() && commits.len() > 1 => {
                let mut outcomes = Vec::with_capacity(commits.len());
                for commit in commits {
                    match self.persist(&[commit]).await {
                        Ok(outcome) => outcomes.extend(outcome),
                        Err(error) if error.is_refused_value() => outcomes.push(Err(error.into())),
                        Err(error) => return Err(error),
                    }
                }
                Ok(outcomes)
            }
            outcome => outcome,
        }
    }

    async fn persist(&self, commits: &[&Commit]) -> Result<CommitResults, PostgresError> {
        let mut tries = 1;
        loop {
            match self.attempt(commits).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(error) if error.ends_connection() => return Err(error),
                Err(error) => {
                    self.connection.one(Statement::new("ROLLBACK")).await?;
                    if !error.is_contention() || tries == TRIES {
                        return Err(error);
                    }
                    tracing::info!(
                        error = &error as &dyn std::error::Error,
                        tries,
                        "retrying postgres batch"
                    );
                    tries += 1;
                }
            }
        }
    }

    async fn attempt(&self, commits: &[&Commit]) -> Result<CommitResults, PostgresError> {
        let locks = LockSet::of(commits.iter().copied());
        let (locking, nodes) = locks.statements();
        let locked = locking.len();
        let mut statements = vec![Statement::new("BEGIN")];
        statements.extend(locking);
        statements.extend(PostgresTables::loads(&locks));
        statements.push(Statement::new(CLOCK));
        let mut found = self.connection.run(statements).await?;
        let (mut clock, wall) = self.clock.read(&found.pop().unwrap_or_default())?;
        let wall = wall.min(self.clock.node.latest());
        let nodes = nodes.map_or(&[][..], |at| &found[at + 1]);
        let mut tables = PostgresTables::load(&locks, nodes, &found[locked + 1..])?;

        // The tables are in memory and cannot fail: a commit that is not applied was refused.
        let outcomes: CommitResults =
            commits.iter().map(|commit| commit::apply(&mut tables, &mut clock, wall, commit)).collect();
        if outcomes.iter().all(Result::is_err) {
            self.connection.one(Statement::new("ROLLBACK")).await?;
            return Ok(outcomes);
        }
        let mut statements = tables.changes();
        statements.push(self.store_clock(clock));
        if log::only_append(commits) {
            statements.extend(log::commit_and_flush());
        } else {
            statements.push(Statement::new("COMMIT"));
        }
        // When one of them fails, the COMMIT after it does nothing.
        self.connection.run(statements).await?;
        Ok(outcomes)
    }

    fn store_clock(&self, clock: VersionClock) -> Statement<'static> {
        let sql = "UPDATE store_clock SET time_ms = greatest(time_ms, $2), floor = greatest(floor, $3),
            users = users + $4, presences = presences + $5, parties = parties + $6 WHERE lane = $1";
        let StoreTotals { users, presences, parties } = clock.totals;
        let update = Statement::new(sql).with(self.lane).with(time(clock.time)).with(number(clock.floor));
        update.with(users).with(presences).with(parties)
    }
}
