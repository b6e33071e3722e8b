//! The comparison: Tavern, Redis and NATS, one after another on the same machine with the same workloads, round
//! after round, so that what disturbs the machine disturbs all of them.
//! Must hold: one server runs at a time; each measurement has a fresh one.

mod grid;
pub(crate) mod machine;
pub(crate) mod peer;
pub(crate) mod plan;
mod plot;
mod results;
mod verdict;

use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};

use crate::load::LoadResult;
use crate::run::{self, Silent};
use crate::table;
use crate::target::Protocol;
use machine::{Date, Machine};
use peer::{Programs, Running};
use plan::{Case, Extent, Kind, Peer};
use results::Run;
use verdict::{Sample, Samples, checks, faults};

/// Compare Tavern with Redis and NATS on this machine.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// The program under test; without it the `tavern` that was built beside this program
    #[arg(long)]
    tavern: Option<PathBuf>,
    #[arg(long, default_value = "redis-server")]
    redis: PathBuf,
    #[arg(long, default_value = "nats-server")]
    nats: PathBuf,
    /// Sockudo's program, which is left out without it
    #[arg(long, value_name = "PROGRAM")]
    sockudo: Option<PathBuf>,
    /// One round of the main workloads, about two minutes; writes no page unless asked
    #[arg(long)]
    quick: bool,
    /// Only workloads whose name contains one of these parts, such as `idle,ws-`; see --list
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave servers out: tavern, redis, nats
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    without: Vec<String>,
    /// How often each server is measured on each workload, memory excepted
    #[arg(long)]
    rounds: Option<usize>,
    /// Where the results go: out/*.json, RESULTS.md, plots/*.svg
    #[arg(long, default_value = "bench")]
    folder: PathBuf,
    /// Write RESULTS.md and the plots after a quick or partial run too
    #[arg(long)]
    page: bool,
    /// Fail when a target is missed
    #[arg(long)]
    strict: bool,
    /// Name the workloads and stop
    #[arg(long)]
    list: bool,
}

const ROUNDS_MAX: usize = 100;

pub fn run(args: CompareArgs) -> anyhow::Result<()> {
    let extent = if args.quick { Extent::Quick } else { Extent::Full };
    let mut cases = chosen(plan::plan(extent), &args);
    if let Some(rounds) = args.rounds {
        ensure!((1..=ROUNDS_MAX).contains(&rounds), "rounds: 1 to {ROUNDS_MAX}");
        let repeated = |case: &&mut Case| !matches!(case.kind, Kind::Idle | Kind::Parked);
        cases.iter_mut().filter(repeated).for_each(|case| case.rounds = rounds);
    }
    if args.list {
        cases.iter().for_each(|case| println!("{:28} {}", case.name, case.label));
        return Ok(());
    }
    ensure!(!cases.is_empty(), "no workload is left");
    let programs = found(&args)?;
    let versions = versions(&cases, &programs)?;
    let date = Date::now();
    let samples = measure(&cases, &programs);
    let checks = checks(&cases, Samples(&samples));
    let run = Run { date: date.day(), extent, machine: Machine::here(), versions, cases, samples, checks };
    show(&run);
    println!("samples: {}", run.write_json(&args.folder, date)?.display());
    if args.page || (extent == Extent::Full && args.only.is_empty() && args.without.is_empty()) {
        run.write_page(&args.folder)?;
        println!("page:    {}", args.folder.join("RESULTS.md").display());
    }
    if args.strict && run.checks.iter().any(|check| !check.pass) {
        bail!("a target was missed");
    }
    Ok(())
}

/// The workloads and servers that were asked for.
fn chosen(mut cases: Vec<Case>, args: &CompareArgs) -> Vec<Case> {
    cases.retain(|case| {
        args.only.is_empty() || args.only.iter().any(|part| case.name.contains(part.as_str()))
    });
    for case in &mut cases {
        let left_out = |peer: &Peer| match peer {
            Peer::Sockudo => args.sockudo.is_none(),
            Peer::Redis | Peer::Nats => args.without.iter().any(|name| name == peer.name()),
            _ => args.without.iter().any(|name| name == "tavern"),
        };
        case.peers.retain(|peer| !left_out(peer));
    }
    cases.retain(|case| !case.peers.is_empty());
    cases
}

/// The programs by paths that hold from any folder: servers run in folders of their own.
fn found(args: &CompareArgs) -> anyhow::Result<Programs> {
    let absolute = |path: &PathBuf| match path.components().count() {
        1 => Ok(path.clone()),
        _ => path.canonicalize().with_context(|| format!("no program at {}", path.display())),
    };
    let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("tavern"));
    let mut tavern = args.tavern.clone().map_or_else(beside, Ok)?;
    if !args.without.iter().any(|name| name == "tavern") {
        tavern = absolute(&tavern)?;
    }
    let sockudo = args.sockudo.as_ref().map(absolute).transpose()?;
    Ok(Programs { tavern, redis: absolute(&args.redis)?, nats: absolute(&args.nats)?, sockudo })
}

fn versions(cases: &[Case], programs: &Programs) -> anyhow::Result<Vec<(String, String)>> {
    let mut versions = Vec::new();
    for peer in [Peer::Tavern, Peer::OneShard, Peer::Redis, Peer::Nats] {
        let (name, wanted) = (peer.name(), cases.iter().any(|case| case.peers.contains(&peer)));
        if wanted && (peer != Peer::OneShard || versions.is_empty()) {
            let name = if peer == Peer::OneShard { Peer::Tavern.name() } else { name };
            let version = programs.version(peer).with_context(|| format!("{name} is not installed"))?;
            versions.push((name.to_owned(), version));
        }
    }
    Ok(versions)
}

fn measure(cases: &[Case], programs: &Programs) -> Vec<Sample> {
    let total: usize = cases.iter().map(|case| case.peers.len() * case.rounds).sum();
    let rounds = cases.iter().map(|case| case.rounds).max().unwrap_or(0);
    let bar = ProgressBar::new(total as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:40} {wide_bar} {pos}/{len} {eta:>5} left") {
        bar.set_style(style);
    }
    let mut samples = Vec::with_capacity(total);
    for round in 0..rounds {
        for case in cases.iter().filter(|case| round < case.rounds) {
            for turn in 0..case.peers.len() {
                // Another server begins in each round: none is always the first after a pause.
                let peer = case.peers[(turn + round) % case.peers.len()];
                bar.set_message(format!("{} {}", case.name, peer.name()));
                let sample = sample(case, peer, round, programs);
                bar.suspend(|| eprintln!("{}", line(&sample)));
                bar.inc(1);
                samples.push(sample);
            }
        }
    }
    bar.finish_and_clear();
    samples
}

fn sample(case: &Case, peer: Peer, round: usize, programs: &Programs) -> Sample {
    let (outcome, fault) = match once(case, peer, programs) {
        Ok(outcome) => (Some(outcome), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    Sample { case: case.name.clone(), peer, round, outcome, fault }
}

fn once(case: &Case, peer: Peer, programs: &Programs) -> anyhow::Result<LoadResult> {
    let server = Running::start(peer, programs)?;
    let protocol = match peer {
        Peer::Redis => Protocol::Redis,
        Peer::Nats => Protocol::Nats,
        Peer::Tavern | Peer::OneShard | Peer::TwoShards | Peer::Sockudo => case.protocol,
    };
    let target = server.target(protocol);
    let load = case.load(target.clone(), case.publishing(&target), server.pid());
    // The cause comes first: its line alone is shown, the full server log stays with the samples.
    run::run(&load, &mut Silent).map_err(|error| anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

/// One measurement on one line, as it happens.
fn line(sample: &Sample) -> String {
    let head = format!("{:26} {:10} {}", sample.case, sample.peer.name(), sample.round + 1);
    let Some(outcome) = &sample.outcome else {
        let fault = sample.fault.as_deref().and_then(|fault| fault.lines().next());
        return format!("{head}  FAULT {}", fault.unwrap_or("no outcome"));
    };
    let mut parts = vec![head];
    if let Some(bytes) = outcome.bytes_per_connection {
        parts.push(format!("{:6.2} KiB each", bytes / 1024.0));
    }
    if outcome.delivered > 0 {
        let cpu = outcome.server.as_ref().map_or(0.0, |server| server.cpu_per_million);
        let rate = table::count(outcome.deliveries_per_s);
        parts.push(format!("{cpu:7.3} cpu/M {rate:>7}/s"));
        parts.push(format!("p99 {:>7}", table::time(outcome.p99_us)));
        parts.push(format!("load {:6.3} cpu/M", outcome.load_cpu_per_million));
    }
    if outcome.lost != 0 {
        parts.push(format!("LOST {}", outcome.lost));
    }
    parts.join("  ")
}

fn show(run: &Run) {
    let samples = Samples(&run.samples);
    for grid in
        [grid::peers(&run.cases, samples, &run.checks), grid::others(&run.cases, samples, &run.checks)]
    {
        if !grid.rows.is_empty() {
            println!("\n{}\n{}", grid.heading, grid.terminal());
        }
    }
    if let Some(line) = run.machine.write_cost() {
        println!("{line}");
    }
    let passed = run.checks.iter().filter(|check| check.pass).count();
    println!("targets reached: {passed} of {}", run.checks.len());
    for fault in faults(&run.samples) {
        println!("fault: {}", fault.lines().next().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn args(line: &str) -> CompareArgs {
        Program::try_parse_from(line.split(' ')).unwrap().args
    }

    #[test]
    fn parts_of_names_choose_workloads() {
        let cases = chosen(plan::plan(Extent::Full), &args("compare --only idle,ws-1x5000"));
        let names: Vec<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["ws-1x5000", "idle-ws", "idle-redis"]);
    }

    #[test]
    fn servers_can_be_left_out() {
        let cases = chosen(plan::plan(Extent::Full), &args("compare --without tavern"));
        assert!(
            cases.iter().all(|case| case.peers.iter().all(|peer| [Peer::Redis, Peer::Nats].contains(peer)))
        );
        assert!(cases.iter().any(|case| case.name == "idle-redis"));
        assert!(!cases.iter().any(|case| case.name.starts_with("ws")));
    }

    /// Loads a real server for a moment, if it is installed here.
    fn check(name: &str, peer: Peer, change: fn(&mut Case)) {
        let programs = Programs {
            tavern: "".into(),
            redis: "redis-server".into(),
            nats: "nats-server".into(),
            sockudo: None,
        };
        if programs.version(peer).is_none() {
            eprintln!("{} is not installed: not tried", peer.name());
            return;
        }
        let mut case = plan::plan(Extent::Full).into_iter().find(|case| case.name == name).unwrap();
        case.seconds = 0.2;
        change(&mut case);
        let outcome = once(&case, peer, &programs).unwrap();
        assert!(outcome.delivered > 0);
        assert_eq!((outcome.lost, outcome.misordered, outcome.short_replies), (0, 0, 0));
        assert!(outcome.p50_us > 0.0 && outcome.p50_us <= outcome.p99_us);
    }

    #[test]
    fn real_servers_lose_nothing_and_keep_the_order() {
        for peer in [Peer::Redis, Peer::Nats] {
            check("redis-1x1-16b-d1", peer, |_| {});
            check("redis-10x10-16b-d16", peer, |_| {});
            check("redis-1x1000-256b-d16", peer, |case| case.subscribers = 150);
        }
    }

    #[test]
    fn a_paced_load_sends_what_it_promises() {
        check("redis-1x10-256b-d16", Peer::Redis, |case| case.rate = Some(500.0));
    }
}
