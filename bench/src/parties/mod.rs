//! The cost of parties: commands per second with their events, and the latency of an invite to one of many parked polls.
//! Must hold: a refused command or a missing event is a fault.

mod commands;
mod polls;

use crate::cases::{Case, Extent, Options, Section};
use crate::figure::{Figure, number};
use commands::Commands;
use polls::Polls;

/// Measure what parties cost on this machine.
#[derive(Debug, clap::Args)]
pub struct PartiesArgs {
    #[command(flatten)]
    options: Options,
}

const HEADING: &str = "## Parties";

const SECTION: Section = Section {
    name: "parties",
    heading: HEADING,
    explained: "One server. A command is an invite or its cancellation, in turn, by hosts who each invite their own user: \
        one commit each, with an event to the invited user, and every second time with the end of the party to the host. A \
        command counts when its reply was read; every event is counted on arrival over WebSocket, and no client \
        acknowledges, so the inboxes only grow. SQLite with `synchronous=FULL`.",
};

const CASES: &[Case<Extent>] = &[
    ("commands-sqlite", |extent| command_figures(extent, None, 12_000.0)),
    ("commands-memory", |extent| command_figures(extent, Some("memory:"), 20_000.0)),
    ("polls", poll_figures),
];

pub fn run(args: PartiesArgs) -> anyhow::Result<()> {
    args.options.run(&SECTION, CASES, |extent| extent)
}

fn command_figures(extent: &Extent, store: Option<&str>, aim: f64) -> anyhow::Result<Vec<Figure>> {
    let commands = Commands { hosts: 1_000, seconds: if extent.quick { 2.0 } else { 5.0 } };
    let mut outcomes = Vec::new();
    for _ in 0..extent.rounds {
        let outcome = commands::run(&extent.tavern, store, &commands)?;
        eprintln!(
            "{:7} {:7.0} commands/s {:6.1} µs cpu each ({:.1} of the load), p50 {:.2} ms p99 {:.2} ms, {} events",
            store.unwrap_or("sqlite:"),
            outcome.per_s,
            outcome.cpu_us,
            outcome.load_cpu_us,
            outcome.p50_ms,
            outcome.p99_ms,
            outcome.delivered
        );
        outcomes.push(outcome);
    }
    let case = match store {
        None => "commands of 1,000 hosts at once, on SQLite; durable",
        Some(_) => "commands of 1,000 hosts at once, in memory",
    };
    let all = |pick: fn(&commands::CommandsResult) -> f64| outcomes.iter().map(pick).collect::<Vec<f64>>();
    Ok(vec![
        Figure::new(case, "commands/s", all(|o| o.per_s)).at_least(aim),
        Figure::new(case, "server cpu for one, µs", all(|o| o.cpu_us)),
        Figure::new(case, "answer p50, ms", all(|o| o.p50_ms)),
        Figure::new(case, "answer p99, ms", all(|o| o.p99_ms)),
        Figure::new(case, "bytes stored for one", all(|o| o.stored_bytes)),
    ])
}

fn poll_figures(extent: &Extent) -> anyhow::Result<Vec<Figure>> {
    let (waiting, invites) = if extent.quick { (1_000, 300) } else { (10_000, 1_000) };
    let polls = Polls { waiting, invites };
    let outcome = polls::run(&extent.tavern, &polls)?;
    eprintln!("{} polls wait: p50 {:.2} ms p99 {:.2} ms", polls.waiting, outcome.p50_ms, outcome.p99_ms);
    let parked = number(waiting as f64);
    let case =
        format!("{parked} parked polls, one of them invited: from the command to the answer of its poll");
    Ok(vec![
        Figure::new(&case, "p50, ms", vec![outcome.p50_ms]),
        Figure::new(&case, "p99, ms", vec![outcome.p99_ms]).at_most(50.0),
    ])
}
