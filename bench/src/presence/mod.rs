//! The cost of presence: real servers, real WebSockets, one case after another, each with a fresh server.
//! Must hold: a lost event or a refused command is a fault, not a figure.

pub(crate) mod churn;
mod radar;
mod rest;
mod room;

use std::path::PathBuf;
use std::time::Duration;

use crate::cases::{self, Case, Options, Section};
use crate::figure::Figure;
use churn::Churn;
use rest::Rest;

/// Measure what presence costs on this machine.
#[derive(Debug, clap::Args)]
pub struct PresenceArgs {
    /// A folder whose `node_modules` hold radar and radar_client; without it npm installs them into a temporary one
    #[arg(long, value_name = "FOLDER")]
    radar: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// More connections from one address, and more channels per session, than any case uses.
pub(crate) const SETTINGS: &str =
    "[limits]\nconnections_per_address = 100000\nchannels_per_session = 100000\n";

pub(crate) const HEADING: &str = "## Presence";

const SECTION: Section = Section {
    name: "presence",
    heading: HEADING,
    explained: "A change is a join or a leave that was answered: one commit each, equal numbers of both. \
        Processor time is of the server, all its threads.",
};

const CASES: &[Case<Extent>] = &[
    ("churn", churn_figures),
    ("rest", rest_figures),
    ("memory", memory_figures),
    ("arrivals", arrival_figures),
    ("who", who_figures),
    ("radar", radar_figures),
];

/// How thorough a run is, and on what.
struct Extent {
    tavern: PathBuf,
    radar: Option<PathBuf>,
    quick: bool,
    rounds: usize,
}

pub fn run(args: PresenceArgs) -> anyhow::Result<()> {
    let PresenceArgs { radar, options } = args;
    options.run(&SECTION, CASES, |cases::Extent { tavern, quick, rounds }| Extent {
        tavern,
        radar,
        quick,
        rounds,
    })
}

/// The stores that a node can be alone on, with the rate that is aimed at.
const STORES: [(&str, Option<&str>, f64); 2] =
    [("SQLite, durable", None, 40_000.0), ("memory", Some("memory:"), 100_000.0)];

fn churn(extent: &Extent) -> Churn {
    Churn { connections: 50, depth: 16, channels: 16, seconds: if extent.quick { 2.0 } else { 4.0 } }
}

fn churn_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let churn = churn(extent);
    let mut outcomes = [const { Vec::new() }; STORES.len()];
    // Interleaved, so that other load on the machine affects both.
    for _ in 0..extent.rounds {
        for ((name, store, _), outcomes) in STORES.iter().zip(&mut outcomes) {
            let outcome = churn::run(&extent.tavern, *store, &churn)?;
            eprintln!(
                "churn {name:16} {:8.0} changes/s {:6.1} µs cpu {:5.1} µs load cpu {:6.0} B stored p50 {:.1} ms p99 {:.1} ms",
                outcome.changes_per_s,
                outcome.cpu_us,
                outcome.load_cpu_us,
                outcome.stored_bytes,
                outcome.p50_us / 1e3,
                outcome.p99_us / 1e3
            );
            outcomes.push(outcome);
        }
    }
    let mut figures = Vec::new();
    for ((name, _, aim), outcomes) in STORES.iter().zip(&outcomes) {
        let case = format!("50 connections, 16 in flight, one watcher; {name}");
        let all = |pick: fn(&churn::ChurnResult) -> f64| outcomes.iter().map(pick).collect::<Vec<f64>>();
        figures.push(Figure::new(&case, "changes/s", all(|o| o.changes_per_s)).at_least(*aim));
        figures.push(Figure::new(&case, "joins/s among them", all(|o| o.changes_per_s / 2.0)));
        figures.push(Figure::new(&case, "server cpu per change, µs", all(|o| o.cpu_us)));
        figures.push(Figure::new(&case, "p50, ms", all(|o| o.p50_us / 1e3)));
        figures.push(Figure::new(&case, "p99, ms", all(|o| o.p99_us / 1e3)));
    }
    Ok(figures)
}

/// Writes of presences that do not change.
fn rest_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let idle = Duration::from_secs(if extent.quick { 6 } else { 30 });
    let rest = Rest { sessions: 100, channels: 1000, watched: false, idle: Some(idle) };
    let outcome = rest::run(&extent.tavern, None, &rest)?;
    let case = format!("100,000 presences at rest for {} s; SQLite", idle.as_secs());
    let more = outcome.full_bytes_per_s / outcome.empty_bytes_per_s.max(1.0);
    Ok(vec![
        Figure::new(&case, "stored/s, KiB", vec![outcome.full_bytes_per_s / 1024.0]),
        Figure::new(&case, "stored/s ÷ of the same server without presences", vec![more]).at_most(1.2),
        Figure::new(&case, "server cpu, ms/s", vec![outcome.full_cpu_ms_per_s]),
        Figure::new("100,000 presences, 1,000 channels; SQLite", "bytes each", vec![outcome.bytes_each])
            .at_most(BYTES_EACH),
    ])
}

/// Limit of server memory for a present client.
const BYTES_EACH: f64 = 400.0;

fn memory_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let many = Rest { sessions: 100, channels: 1000, watched: false, idle: None };
    let outcome = rest::run(&extent.tavern, Some("memory:"), &many)?;
    let case = "100,000 presences, 1,000 channels; memory";
    let mut figures = vec![Figure::new(case, "bytes each", vec![outcome.bytes_each]).at_most(BYTES_EACH)];
    let sessions = if extent.quick { 2000 } else { 10_000 };
    let room = Rest { sessions, channels: 1, watched: true, idle: None };
    let outcome = rest::run(&extent.tavern, None, &room)?;
    let case = format!("{sessions} users in one room; SQLite");
    figures.push(Figure::new(&case, "bytes each", vec![outcome.bytes_each]).at_most(BYTES_EACH));
    let watched = vec![outcome.watched_bytes_each];
    figures.push(Figure::new(&case, "bytes each once it is watched", watched).at_most(BYTES_EACH));
    Ok(figures)
}

fn arrival_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let arrivals = room::arrivals(&extent.tavern, 1000, 1000, Duration::from_secs(10))?;
    let case = "1,000 arrivals in 10 s, 1,000 watchers, coalesced";
    Ok(vec![
        Figure::new(case, "frames", vec![arrivals.frames as f64]).at_most(60_000.0),
        Figure::new(case, "server cpu, s", vec![arrivals.cpu_seconds]),
    ])
}

fn who_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let times = if extent.quick { 100 } else { 400 };
    let mut figures = Vec::new();
    for (name, store, _) in STORES {
        let question = room::who(&extent.tavern, store, 2000, times)?;
        let case = format!("who of 2,000 users, two parts; {name}");
        figures.push(Figure::new(&case, "server cpu, ms", vec![question.cpu_ms]).at_most(2.0));
        figures.push(Figure::new(&case, "over loopback, ms", vec![question.ms]));
    }
    Ok(figures)
}

/// The same churn on the original, in turn with ours.
fn radar_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let packages = radar::Packages::find(extent.radar.as_deref())?;
    let churn = churn(extent);
    let (mut rates, mut cpus, mut savings) = (Vec::new(), Vec::new(), Vec::new());
    let mut ratios = [const { Vec::new() }; STORES.len()];
    for _ in 0..extent.rounds {
        let theirs = radar::run(&packages, &churn)?;
        eprintln!(
            "radar                  {:8.0} changes/s {:6.1} µs cpu {:.2} events each",
            theirs.changes_per_s, theirs.cpu_us, theirs.events_each
        );
        for ((name, store, _), ratios) in STORES.iter().zip(&mut ratios) {
            let ours = churn::run(&extent.tavern, *store, &churn)?;
            eprintln!("radar {name:16} {:8.0} changes/s {:6.1} µs cpu", ours.changes_per_s, ours.cpu_us);
            ratios.push(ours.changes_per_s / theirs.changes_per_s);
            if store.is_none() {
                savings.push(theirs.cpu_us / ours.cpu_us);
            }
        }
        rates.push(theirs.changes_per_s);
        cpus.push(theirs.cpu_us);
    }
    let case = "the same churn on Radar 0.43.1 with Redis";
    let [durable, memory] = ratios;
    Ok(vec![
        Figure::new(case, "changes/s", rates),
        Figure::new(case, "cpu of Radar and Redis per change, µs", cpus),
        Figure::new(case, "our rate in memory ÷ its rate, which keeps nothing on disk either", memory)
            .at_least(20.0),
        Figure::new(case, "our rate on SQLite, durable ÷ its rate", durable).at_least(20.0),
        Figure::new(case, "its cpu ÷ ours on SQLite", savings),
    ])
}
