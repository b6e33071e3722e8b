//! Churn: clients that join and leave the same channels continuously, and one watcher of all.
//! Must hold: only answered commands count, and the watcher must receive every change, or it is a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use crate::compare::peer::Running;
use crate::crowd::{Crowd, Received};
use crate::dial::Dialer;
use crate::process;
use crate::target::Protocol;

/// The connections that join and leave.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    pub connections: usize,
    /// Commands of one connection in flight.
    pub depth: usize,
    /// Channels that each connection joins, then leaves, in turn.
    pub channels: usize,
    pub seconds: f64,
}

/// A change is a join or a leave that was answered: one commit each, equal numbers of both.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChurnResult {
    pub changes: u64,
    pub seconds: f64,
    pub changes_per_s: f64,
    /// Processor time of the server, all threads, for one change.
    pub cpu_us: f64,
    pub load_cpu_us: f64,
    /// Bytes given to storage for one change.
    pub stored_bytes: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Events that the watcher received.
    pub events: u64,
}

const WARMUP: Duration = Duration::from_millis(700);
/// Events per change in a small channel: one for the client and one for its user.
const EVENTS_PER_CHANGE: u64 = 2;
const QUIET: Duration = Duration::from_millis(500);

/// One connection's place in its round: first every channel is joined, then every channel is left.
struct Walker {
    client: usize,
    step: usize,
}

pub fn run(program: &Path, store: Option<&str>, churn: &Churn) -> anyhow::Result<ChurnResult> {
    run_on(&Running::tavern(program, store, super::SETTINGS)?, churn)
}

/// On a server that runs already.
pub fn run_on(server: &Running, churn: &Churn) -> anyhow::Result<ChurnResult> {
    measure(server, churn).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure(server: &Running, churn: &Churn) -> anyhow::Result<ChurnResult> {
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    let watcher = crowd.connect(&mut dialer, "watcher")?;
    for channel in 0..churn.channels {
        let watch = format!(r#"{{"id":1,"op":"subscribe","channel":"room#{channel}","presence":true}}"#);
        crowd.say(watcher, watch.as_bytes());
    }
    crowd.settle()?;
    let commands = commands(churn.channels);
    let mut walkers = Vec::new();
    for index in 0..churn.connections {
        let client = crowd.connect(&mut dialer, &format!("walker-{index}"))?;
        walkers.push(Walker { client, step: 0 });
    }
    for walker in &mut walkers {
        walk(&mut crowd, walker, &commands, churn.depth)?;
    }
    let (mut changes, mut events) = (0, 0);
    let mut received = Vec::new();
    let mut count = |crowd: &mut Crowd, until: Instant| -> anyhow::Result<(u64, u64)> {
        while Instant::now() < until {
            crowd.turn(Duration::from_millis(20), &mut received)?;
            for &Received { client, replies, events: received_events } in &received {
                changes += replies;
                events += received_events;
                if replies > 0 && client != watcher {
                    walk(crowd, &mut walkers[client - 1], &commands, churn.depth)?;
                }
            }
        }
        Ok((changes, events))
    };
    let (warm, _) = count(&mut crowd, Instant::now() + WARMUP)?;
    crowd.latency.reset();
    let (cpu, load_cpu) = (process::usage(server.pid())?, process::usage(std::process::id())?);
    let stored = process::stored_bytes(server.pid())?;
    let begun = Instant::now();
    let (all, _) = count(&mut crowd, begun + Duration::from_secs_f64(churn.seconds))?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = process::usage(server.pid())?.cpu_seconds - cpu.cpu_seconds;
    let load_cpu = process::usage(std::process::id())?.cpu_seconds - load_cpu.cpu_seconds;
    let stored = process::stored_bytes(server.pid())? - stored;
    let measured = all - warm;
    ensure!(measured > 0, "nothing was answered");
    let (p50, p99) = (crowd.latency.value_at_quantile(0.5), crowd.latency.value_at_quantile(0.99));
    let rest: u64 = walkers.iter().map(|walker| crowd.pending(walker.client) as u64).sum();
    events += crowd.settle()? + crowd.drain(QUIET)?;
    let expected = (all + rest) * EVENTS_PER_CHANGE;
    ensure!(events == expected, "the watcher received {events} of {expected} events");
    let each = |sum: f64| sum / measured as f64;
    Ok(ChurnResult {
        changes: measured,
        seconds,
        changes_per_s: measured as f64 / seconds,
        cpu_us: each(cpu * 1e6),
        load_cpu_us: each(load_cpu * 1e6),
        stored_bytes: each(stored as f64),
        p50_us: p50 as f64 / 1e3,
        p99_us: p99 as f64 / 1e3,
        events,
    })
}

fn commands(channels: usize) -> Vec<Vec<u8>> {
    let command = |op: &str, channel: usize| {
        format!(r#"{{"id":1,"op":"{op}","channel":"room#{channel}"}}"#).into_bytes()
    };
    let joins = (0..channels).map(|channel| command("join", channel));
    joins.chain((0..channels).map(|channel| command("leave", channel))).collect()
}

/// Fills up what a walker has in flight.
fn walk(crowd: &mut Crowd, walker: &mut Walker, commands: &[Vec<u8>], depth: usize) -> anyhow::Result<()> {
    while crowd.pending(walker.client) < depth {
        crowd.say(walker.client, &commands[walker.step]);
        walker.step = (walker.step + 1) % commands.len();
    }
    crowd.flush(walker.client)
}
