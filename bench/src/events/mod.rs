//! The cost of topics and subscriptions: a real server on its SQLite store, real endpoints, one case after another.
//! Must hold: a gap, a lost event or a refused request is a fault, not a figure.

pub(crate) mod accept;
mod backlog;
mod baseline;
mod deliver;
mod endpoint;
mod idle;
pub(crate) mod line;
pub(crate) mod site;

use std::path::PathBuf;
use std::time::Duration;

use crate::cases::{self, Case, Options, Section};
use crate::figure::{Figure, number};
use accept::Accept;
use backlog::Backlog;
use deliver::{Deliver, Paced};
use idle::Idle;

/// Measure what topics and their subscriptions cost on this machine.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// Events in the larger of the two logs whose ends are read
    #[arg(long, value_name = "EVENTS", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(200_000..=100_000_000))]
    stored: u64,
    #[command(flatten)]
    options: Options,
}

pub(crate) const HEADING: &str = "## Events";

const SECTION: Section = Section {
    name: "events",
    heading: HEADING,
    explained: "One server on SQLite, `synchronous=FULL`; an event carries a hundred bytes and no id; it counts as \
        accepted when its 202 was read, as delivered when an endpoint had read it and its seqs had no gap. \
        Processor time is of the server, all its threads, in seconds per million events.",
};

const CASES: &[Case<Extent>] = &[
    ("disk", disk_figures),
    ("redis", redis_figures),
    ("accept-lists", |extent| accept_figures(extent, 50, 60_000.0)),
    ("accept-single", |extent| accept_figures(extent, 1, 5_000.0)),
    ("deliver", deliver_figures),
    ("latency", latency_figures),
    ("idle", idle_figures),
    ("backlog", backlog_figures),
];

/// How thorough a run is, and on what.
struct Extent {
    tavern: PathBuf,
    stored: u64,
    quick: bool,
    rounds: usize,
}

pub fn run(args: EventsArgs) -> anyhow::Result<()> {
    let EventsArgs { stored, options } = args;
    options.run(&SECTION, CASES, |cases::Extent { tavern, quick, rounds }| Extent {
        tavern,
        stored,
        quick,
        rounds,
    })
}

const CPU: &str = "server cpu, s per million events";

fn disk_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let rate = baseline::syncs(if extent.quick { 1.0 } else { 3.0 })?;
    Ok(vec![Figure::new(
        "beside it: the disk, 4 KiB written and synced, one at a time",
        "each/s",
        vec![rate],
    )])
}

fn redis_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let count = if extent.quick { 500_000 } else { 2_000_000 };
    let commands = ["lpush", "rpop"];
    let found = baseline::redis(&commands, count)?;
    let figures = commands.iter().zip(found).flat_map(|(command, found)| {
        let name = command.to_uppercase();
        let case =
            format!("beside it: {name} by redis-benchmark, 16 connections, pipelines of 50, nothing on disk");
        [
            Figure::new(&case, "each/s", vec![found.per_s]),
            Figure::new(&case, "Redis cpu, s per million", vec![found.cpu_per_million]),
        ]
    });
    Ok(figures.collect())
}

fn accept_figures(extent: &Extent, events: usize, aim: f64) -> anyhow::Result<Vec<Figure>> {
    let accept = Accept { publishers: 16, events, seconds: if extent.quick { 2.0 } else { 5.0 } };
    let mut outcomes = Vec::new();
    for _ in 0..extent.rounds {
        let outcome = accept::run(&extent.tavern, &accept)?;
        eprintln!(
            "accept by {events:2} {:8.0} events/s {:6.1} s cpu per million, p50 {:.2} ms p99 {:.2} ms, {:.0} bytes stored each",
            outcome.per_s, outcome.cpu_per_million, outcome.p50_ms, outcome.p99_ms, outcome.stored_bytes
        );
        outcomes.push(outcome);
    }
    let case = match events {
        1 => "accepted from 16 publishers, one by one; durable".to_owned(),
        _ => format!("accepted from 16 publishers, in lists of {events}; durable"),
    };
    let all = |pick: fn(&accept::AcceptResult) -> f64| outcomes.iter().map(pick).collect::<Vec<f64>>();
    Ok(vec![
        Figure::new(&case, "events/s", all(|o| o.per_s)).at_least(aim),
        Figure::new(&case, CPU, all(|o| o.cpu_per_million)),
        Figure::new(&case, "request p50, ms", all(|o| o.p50_ms)),
        Figure::new(&case, "request p99, ms", all(|o| o.p99_ms)),
        Figure::new(&case, "bytes stored for each event", all(|o| o.stored_bytes)),
    ])
}

fn deliver_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let seconds = if extent.quick { 2.0 } else { 6.0 };
    let deliver = Deliver { endpoints: 10, batch: 100, backlog: 1_000_000, pace: 4_000, seconds };
    let mut outcomes = Vec::new();
    for _ in 0..extent.rounds {
        let outcome = deliver::run(&extent.tavern, &deliver)?;
        eprintln!(
            "deliver {:8.0} events/s, {:.1} in a batch, {:6.1} s cpu per million ({:.1} of the load), {:.0} accepted/s, {} again",
            outcome.per_s,
            outcome.events_per_batch,
            outcome.cpu_per_million,
            outcome.load_cpu_per_million,
            outcome.accepted_per_s,
            outcome.again
        );
        outcomes.push(outcome);
    }
    let case = "delivered from a backlog to 10 endpoints in batches of 100, while 4,000/s are accepted";
    let all = |pick: fn(&deliver::DeliverResult) -> f64| outcomes.iter().map(pick).collect::<Vec<f64>>();
    Ok(vec![
        Figure::new(case, "events/s, together", all(|o| o.per_s)).at_least(40_000.0),
        Figure::new(case, CPU, all(|o| o.cpu_per_million)),
        Figure::new(
            case,
            "cpu of endpoints and publisher, s per million events",
            all(|o| o.load_cpu_per_million),
        ),
        Figure::new(case, "accepted/s meanwhile", all(|o| o.accepted_per_s)).at_least(3_900.0),
        Figure::new(case, "events in a batch", all(|o| o.events_per_batch)),
        Figure::new(case, "batches that came twice", all(|o| o.again)).at_most(0.0),
    ])
}

fn latency_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let events = if extent.quick { 400 } else { 1000 };
    let outcome = deliver::latency(&extent.tavern, &Paced { events, every: Duration::from_millis(5) })?;
    let case = "one subscription without a wait, 200 events/s, from publishing to the endpoint";
    Ok(vec![
        Figure::new(case, "p50, ms", vec![outcome.p50_ms]),
        Figure::new(case, "p99, ms", vec![outcome.p99_ms]),
        Figure::new(case, CPU, vec![outcome.cpu_per_million]),
    ])
}

/// Limit of server memory for an idle subscription.
const BYTES_EACH: f64 = 2048.0;

fn idle_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let time = Duration::from_secs(if extent.quick { 4 } else { 20 });
    let idle = Idle { subscriptions: if extent.quick { 2_000 } else { 10_000 }, topics: 100, time };
    let outcome = idle::run(&extent.tavern, &idle)?;
    let case = format!("{} idle subscriptions to 100 topics for {} s", idle.subscriptions, time.as_secs());
    let more = outcome.full_cpu_ms_per_s - outcome.empty_cpu_ms_per_s;
    Ok(vec![
        Figure::new(&case, "bytes each", vec![outcome.bytes_each]).at_most(BYTES_EACH),
        Figure::new(&case, "bytes each, private pages alone", vec![outcome.private_bytes_each]),
        Figure::new(&case, "server cpu with none, ms/s", vec![outcome.empty_cpu_ms_per_s]),
        Figure::new(&case, "server cpu with all, ms/s", vec![outcome.full_cpu_ms_per_s]),
        Figure::new(&case, "server cpu that they add, ms/s", vec![more]).at_most(1.0),
        Figure::new(&case, "made by 8 connections, each/s", vec![outcome.puts_per_s]),
    ])
}

/// The smaller of the logs.
const FEW: u64 = 100_000;

fn backlog_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let stored = if extent.quick { 2 * FEW } else { extent.stored };
    let backlog = Backlog { sizes: vec![FEW, stored], times: 51 };
    let outcomes = backlog::run(&extent.tavern, &backlog)?;
    let mut figures = Vec::new();
    for outcome in &outcomes {
        let case = format!("the last 1,000 of {} stored events", number(outcome.stored as f64));
        figures.extend([
            Figure::new(&case, "pulled, ms", vec![outcome.pull_ms]),
            Figure::new(&case, "pulled, server cpu, s per million events", vec![outcome.pull_cpu_ms]),
            Figure::new(&case, "delivered, ms", vec![outcome.deliver_ms]),
            Figure::new(&case, "gone back to, ms", vec![outcome.replay_ms]),
            Figure::new(
                &case,
                "all before them pulled and acknowledged in turn, events/s",
                vec![outcome.through_per_s],
            ),
        ]);
    }
    if let [few, many] = &outcomes[..] {
        let case = "the last 1,000 of the larger log ÷ of the smaller";
        figures.extend([
            Figure::new(case, "pulled", vec![many.pull_ms / few.pull_ms]).at_most(1.3),
            Figure::new(case, "delivered", vec![many.deliver_ms / few.deliver_ms]).at_most(1.5),
            Figure::new(case, "gone back to", vec![many.replay_ms / few.replay_ms]).at_most(1.5),
        ]);
    }
    Ok(figures)
}
