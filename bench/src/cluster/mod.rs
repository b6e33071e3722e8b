//! The cost of several nodes and their engines: real servers on real Redis, Postgres and NATS, one case after another.
//! Must hold: a lost event or a refused command is a fault, not a figure.

mod baseline;
mod engine;
mod failover;
mod fanout;

use anyhow::Context;

use crate::cases::{Case, Extent, Options, Section};
use crate::compare::peer::Running;
use crate::figure::Figure;
use crate::presence::SETTINGS;
use crate::presence::churn::{self, Churn};
use engine::Engine;
use fanout::Fanout;

/// Measure what several nodes and their engines cost on this machine.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    options: Options,
}

pub(crate) const HEADING: &str = "## Several nodes";

const SECTION: Section = Section {
    name: "cluster",
    heading: HEADING,
    explained: "A change is a join or a leave that was answered: one commit each, equal numbers of both. \
        Postgres runs with `synchronous_commit` and `fsync` on, Redis with a log that is synced every second. \
        Processor time of a fan-out is of all nodes and of the bus.",
};

const CASES: &[Case<Extent>] = &[
    ("joins-redis", joins_on_redis),
    ("joins-postgres", joins_on_postgres),
    ("fanout-sqlite", |extent| fanout_figures(extent, Combination::Sqlite)),
    ("fanout-redis", |extent| fanout_figures(extent, Combination::Redis)),
    ("fanout-postgres-nats", |extent| fanout_figures(extent, Combination::PostgresNats)),
    ("fanout-postgres-redis", |extent| fanout_figures(extent, Combination::PostgresRedis)),
    ("death-sqlite", |extent| death_figures(extent, Combination::Sqlite)),
    ("death-redis", |extent| death_figures(extent, Combination::Redis)),
    ("death-postgres-nats", |extent| death_figures(extent, Combination::PostgresNats)),
    ("death-postgres-redis", |extent| death_figures(extent, Combination::PostgresRedis)),
];

pub fn run(args: ClusterArgs) -> anyhow::Result<()> {
    args.options.run(&SECTION, CASES, |extent| extent)
}

/// Engines that nodes can share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combination {
    Sqlite,
    Redis,
    PostgresNats,
    PostgresRedis,
}

/// The engines of one combination while they run.
struct Shared {
    store: Option<Engine>,
    bus: Option<Engine>,
    folder: tempfile::TempDir,
    combination: Combination,
}

impl Combination {
    fn name(self) -> &'static str {
        match self {
            Combination::Sqlite => "SQLite and the local bus",
            Combination::Redis => "Redis",
            Combination::PostgresNats => "Postgres and NATS",
            Combination::PostgresRedis => "Postgres and Redis",
        }
    }

    fn start(self) -> anyhow::Result<Shared> {
        let (store, bus) = match self {
            Combination::Sqlite => (None, None),
            Combination::Redis => (Some(Engine::redis()?), None),
            Combination::PostgresNats => (Some(Engine::postgres()?), Some(Engine::nats()?)),
            Combination::PostgresRedis => (Some(Engine::postgres()?), Some(Engine::redis()?)),
        };
        Ok(Shared { store, bus, folder: tempfile::tempdir()?, combination: self })
    }
}

impl Shared {
    /// One more node of the cluster.
    fn node(&self, program: &std::path::Path, settings: &str) -> anyhow::Result<Running> {
        let store = match &self.store {
            Some(store) => store.url("cluster"),
            None => format!("sqlite:{}", self.folder.path().display()),
        };
        let bus = match (&self.bus, &self.store) {
            (Some(bus), _) => bus.url(""),
            (None, Some(store)) => store.url(""),
            (None, None) => "local".to_owned(),
        };
        let mut options = vec!["--store", &store, "--bus", &bus];
        let folder = self.folder.path().display().to_string();
        if self.combination == Combination::Sqlite {
            // The local bus lives in the folder that the nodes share.
            options.extend(["--data", &folder]);
        }
        Running::tavern_with(program, &options, settings)
    }

    fn bus_cpu_seconds(&self) -> anyhow::Result<f64> {
        let carrier = match self.combination {
            Combination::Sqlite => None,
            Combination::Redis => self.store.as_ref(),
            Combination::PostgresNats | Combination::PostgresRedis => self.bus.as_ref(),
        };
        carrier.map_or(Ok(0.0), Engine::cpu_seconds)
    }
}

fn joins_on_redis(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let (mut rivals, mut outcomes) = (Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        rivals.push(baseline::lua_joins(extent.quick)?);
        outcomes.push(joins(extent, Combination::Redis)?);
    }
    join_figures(
        "Redis",
        40_000.0,
        &outcomes,
        ("the same joins by redis-benchmark and a script of one line", rivals),
    )
}

fn joins_on_postgres(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let (mut rivals, mut outcomes) = (Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        rivals.push(baseline::upserts(extent.quick)?);
        outcomes.push(joins(extent, Combination::PostgresNats)?);
    }
    join_figures("Postgres", 12_000.0, &outcomes, ("upserts of one row by pgbench", rivals))
}

/// Joins and leaves on one node, with the processor time of its engine.
struct Joins {
    churn: churn::ChurnResult,
    engine_cpu_us: f64,
}

fn joins(extent: &Extent, combination: Combination) -> anyhow::Result<Joins> {
    let shared = combination.start()?;
    let node = shared.node(&extent.tavern, SETTINGS)?;
    let engine = shared.store.as_ref().context("it has an engine")?;
    let seconds = if extent.quick { 3.0 } else { 6.0 };
    let churn = Churn { connections: 50, depth: 16, channels: 16, seconds };
    let before = engine.cpu_seconds()?;
    let outcome = churn::run_on(&node, &churn)?;
    // The warm-up counts too: the engine's share is over everything that was answered.
    let cpu = engine.cpu_seconds()? - before;
    let all = outcome.events as f64 / 2.0;
    eprintln!(
        "joins {:20} {:8.0} changes/s {:6.1} µs cpu {:6.1} µs of its engine p50 {:.1} ms p99 {:.1} ms",
        combination.name(),
        outcome.changes_per_s,
        outcome.cpu_us,
        cpu * 1e6 / all,
        outcome.p50_us / 1e3,
        outcome.p99_us / 1e3
    );
    Ok(Joins { engine_cpu_us: cpu * 1e6 / all, churn: outcome })
}

fn join_figures(
    engine: &str,
    aim: f64,
    outcomes: &[Joins],
    (baseline, rates): (&str, Vec<f64>),
) -> anyhow::Result<Vec<Figure>> {
    let case = format!("50 connections, 16 in flight, one watcher; {engine}");
    let all = |pick: fn(&Joins) -> f64| outcomes.iter().map(pick).collect::<Vec<f64>>();
    Ok(vec![
        Figure::new(&case, "changes/s", all(|o| o.churn.changes_per_s)).at_least(aim),
        Figure::new(&case, "joins/s among them", all(|o| o.churn.changes_per_s / 2.0)),
        Figure::new(&case, "server cpu per change, µs", all(|o| o.churn.cpu_us)),
        Figure::new(&case, "engine cpu per change, µs", all(|o| o.engine_cpu_us)),
        Figure::new(&case, "p50, ms", all(|o| o.churn.p50_us / 1e3)),
        Figure::new(&case, "p99, ms", all(|o| o.churn.p99_us / 1e3)),
        Figure::new(&format!("beside it: {baseline}, 50 connections"), "each/s", rates),
    ])
}

fn fanout_figures(extent: &Extent, combination: Combination) -> anyhow::Result<Vec<Figure>> {
    let fanout = Fanout { subscribers: 1000, window: 256, seconds: if extent.quick { 2.0 } else { 5.0 } };
    let (mut alone, mut spread, mut idle) = (Vec::new(), Vec::new(), Vec::new());
    // Interleaved, so that other load on the machine affects both.
    for _ in 0..extent.rounds {
        let single = fanout::alone(&extent.tavern, &fanout)?;
        let outcome = fanout::spread(&extent.tavern, combination, &fanout)?;
        let ratio = outcome.per_cpu_s / single.per_cpu_s;
        eprintln!(
            "fanout {:24} {:9.0} deliveries/s ({:9.0} on one node), {ratio:.2} of one node's per second of cpu",
            combination.name(),
            outcome.per_s,
            single.per_s,
        );
        alone.push(single.per_cpu_s);
        spread.push(ratio);
        idle.push(outcome.received_without_subscribers as f64);
    }
    let case = format!("one publisher, 1,000 WebSocket subscribers over three nodes; {}", combination.name());
    Ok(vec![
        Figure::new(&case, "deliveries per second of cpu when all are on one node", alone),
        Figure::new(&case, "deliveries per second of cpu ÷ that", spread).at_least(0.7),
        Figure::new(&case, "messages received by a fourth node without subscribers", idle).at_most(0.0),
    ])
}

fn death_figures(extent: &Extent, combination: Combination) -> anyhow::Result<Vec<Figure>> {
    let outcome = failover::run(&extent.tavern, combination, 100, 100)?;
    let case = format!("a node with 10,000 presences dies, two others watch; {}", combination.name());
    let aim = failover::LEASE_MS as f64 / 1e3 + 2.0;
    Ok(vec![
        Figure::new(&case, "until the first event, s", vec![outcome.first_s]),
        Figure::new(&case, "until the last event on every node, s", vec![outcome.last_s]).at_most(aim),
    ])
}
