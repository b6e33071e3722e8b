//! Commits, many in one transaction: everything they touch is locked and loaded in one round trip, they are decided in
//! memory by the algorithm of all engines, and what they changed is written with COMMIT in a second one.
//! Must hold: a refusal concerns its own commit only; so does a value that the server does not take.

use super::claim::Claim;
use super::link::{Link, Step};
use super::tables::PostgresTables;
use super::value::{Trouble, get, number, read_number, read_time, time};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::clock::Clock;
use tavern_store::commit::{self, VersionClock};
use tavern_store::commit::{Commit, Receipt};
use tavern_store::error::StoreError;

/// How often a batch is tried when another transaction was in the way. Locks are taken in one order, so only programs that
/// are not ours can cause it.
const TRIES: usize = 5;

const MARK: &str = "SELECT max(time_ms), max(floor), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM store_clock";

pub(super) type Outcomes = Vec<Result<Receipt, StoreError>>;

/// Whose time it is: the server's, unless a test brings its own.
#[derive(Clone, Default)]
pub(super) struct Watch(pub Option<Arc<dyn Clock>>);

pub(super) struct Scribe<'a> {
    pub link: &'a Link,
    pub watch: &'a Watch,
    /// Of `store_clock`.
    pub lane: i32,
}

/// In turn, so that as many stores as there are lanes do not meet in one.
pub(super) async fn choose_lane(link: &Link) -> Result<i32, Trouble> {
    let sql = "SELECT (nextval('store_lanes') % (SELECT count(*) FROM store_clock))::int";
    let lines = link.one(Step::new(sql)).await?;
    get(lines.first().ok_or(Trouble::Strange("there is no clock"))?, 0)
}

impl Watch {
    /// The store's time and floor as this connection sees them, and what the clock says.
    fn read(&self, line: &tokio_postgres::Row) -> Result<(VersionClock, Time), Trouble> {
        let mark = VersionClock { time: read_time(line, 0)?, floor: read_number(line, 1)? };
        let wall = self.0.as_ref().map_or_else(|| read_time(line, 2), |clock| Ok(clock.now()))?;
        Ok((mark, wall))
    }

    pub async fn time(&self, link: &Link) -> Result<Time, Trouble> {
        let lines = link.one(Step::new(MARK)).await?;
        let (mut mark, wall) = self.read(lines.first().ok_or(Trouble::Strange("there is no clock"))?)?;
        Ok(mark.advance(wall))
    }
}

impl Scribe<'_> {
    /// An error means that nothing of the batch was written, or that nobody knows.
    pub async fn write(&self, commits: &[&Commit]) -> Result<Outcomes, Trouble> {
        match self.persist(commits).await {
            Err(trouble) if trouble.is_refused_value() && commits.len() > 1 => {
                let mut outcomes = Vec::with_capacity(commits.len());
                for commit in commits {
                    match self.persist(&[commit]).await {
                        Ok(outcome) => outcomes.extend(outcome),
                        Err(trouble) if trouble.is_refused_value() => outcomes.push(Err(trouble.into())),
                        Err(trouble) => return Err(trouble),
                    }
                }
                Ok(outcomes)
            }
            outcome => outcome,
        }
    }

    async fn persist(&self, commits: &[&Commit]) -> Result<Outcomes, Trouble> {
        let mut tries = 1;
        loop {
            match self.attempt(commits).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(trouble) if trouble.ends_connection() => return Err(trouble),
                Err(trouble) => {
                    self.link.one(Step::new("ROLLBACK")).await?;
                    if !trouble.is_rivalry() || tries == TRIES {
                        return Err(trouble);
                    }
                    tracing::info!(
                        error = &trouble as &dyn std::error::Error,
                        tries,
                        "a batch is tried again"
                    );
                    tries += 1;
                }
            }
        }
    }

    async fn attempt(&self, commits: &[&Commit]) -> Result<Outcomes, Trouble> {
        let claim = Claim::of(commits.iter().copied());
        let (locks, nodes) = claim.locks();
        let locked = locks.len();
        let mut steps = vec![Step::new("BEGIN")];
        steps.extend(locks);
        steps.extend(PostgresTables::loads(&claim));
        steps.push(Step::new(MARK));
        let mut found = self.link.run(steps).await?;
        let clock = found.pop().unwrap_or_default();
        let (mut mark, wall) =
            self.watch.read(clock.first().ok_or(Trouble::Strange("there is no clock"))?)?;
        let nodes = nodes.map_or(&[][..], |at| &found[at + 1]);
        let mut tables = PostgresTables::load(&claim, nodes, &found[locked + 1..])?;

        // The tables are in memory and cannot fail: what is not written is refused.
        let outcomes: Outcomes =
            commits.iter().map(|commit| commit::apply(&mut tables, &mut mark, wall, commit)).collect();
        if outcomes.iter().all(Result::is_err) {
            self.link.one(Step::new("ROLLBACK")).await?;
            return Ok(outcomes);
        }
        let mut steps = tables.changes();
        steps.push(self.keep(mark));
        steps.push(Step::new("COMMIT"));
        // When one of them fails, COMMIT behind it does nothing.
        self.link.run(steps).await?;
        Ok(outcomes)
    }

    fn keep(&self, mark: VersionClock) -> Step<'static> {
        let sql = "UPDATE store_clock SET time_ms = greatest(time_ms, $2), floor = greatest(floor, $3) WHERE lane = $1";
        Step::new(sql).with(self.lane).with(time(mark.time)).with(number(mark.floor))
    }
}
