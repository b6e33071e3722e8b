//! Hosts invite a user and cancel the invite repeatedly: commands per second, each one commit with its events.
//! Must hold: only answered commands count, and every event must arrive, or it is a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::compare::peer::Running;
use crate::crowd::{Crowd, Received};
use crate::dial::Dialer;
use crate::process;
use crate::target::Protocol;

pub struct Commands {
    /// Each invites its own user, with one command in flight.
    pub hosts: usize,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct CommandsResult {
    pub per_s: f64,
    /// Of the server, all threads, for one command.
    pub cpu_us: f64,
    pub load_cpu_us: f64,
    pub stored_bytes: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub delivered: u64,
}

/// High enough that no host is rate-limited: each sends a few hundred commands a second at most.
pub const SETTINGS: &str =
    "[limits]\nconnections_per_address = 100000\n[parties]\ninvites_per_minute = 100000\nreinvite_ms = 0\n";
const WARMUP: Duration = Duration::from_secs(1);
const QUIET: Duration = Duration::from_millis(700);
/// An invite and its cancellation: two events for the invited user, and one for the host, whose party ends.
const EVENTS_PER_ROUND: u64 = 3;

pub fn run(program: &Path, store: Option<&str>, commands: &Commands) -> anyhow::Result<CommandsResult> {
    let server = Running::tavern(program, store, SETTINGS)?;
    measure(&server, commands).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure(server: &Running, commands: &Commands) -> anyhow::Result<CommandsResult> {
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    // Hosts first: the number of a client is that of its host.
    for index in 0..commands.hosts {
        crowd.connect(&mut dialer, &format!("host-{index}"))?;
    }
    for index in 0..commands.hosts {
        crowd.connect(&mut dialer, &format!("user-{index}"))?;
    }
    crowd.drain(QUIET)?;
    let command = |op: &str, index: usize| format!(r#"{{"id":1,"op":"party.{op}","user":"user-{index}"}}"#);
    let mut answered = vec![0_u64; commands.hosts];
    let next = |crowd: &mut Crowd, answered: &[u64], host: usize| {
        let op = if answered[host].is_multiple_of(2) { "invite" } else { "cancel_invite" };
        crowd.say(host, command(op, host).as_bytes());
        crowd.flush(host)
    };
    for host in 0..commands.hosts {
        next(&mut crowd, &answered, host)?;
    }
    let (mut delivered, mut received) = (0, Vec::new());
    let mut turns = |crowd: &mut Crowd, answered: &mut [u64], until: Instant| -> anyhow::Result<u64> {
        while Instant::now() < until {
            crowd.turn(Duration::from_millis(20), &mut received)?;
            for &Received { client, replies, events } in &received {
                delivered += events;
                if replies > 0 {
                    answered[client] += replies;
                    next(crowd, answered, client)?;
                }
            }
        }
        Ok(delivered)
    };
    turns(&mut crowd, &mut answered, Instant::now() + WARMUP)?;
    let warm: u64 = answered.iter().sum();
    crowd.latency.reset();
    let (cpu, load) = (process::usage(server.pid())?, process::usage(std::process::id())?);
    let stored = process::stored_bytes(server.pid())?;
    let begun = Instant::now();
    let mut delivered = turns(&mut crowd, &mut answered, begun + Duration::from_secs_f64(commands.seconds))?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = process::usage(server.pid())?.cpu_seconds - cpu.cpu_seconds;
    let load = process::usage(std::process::id())?.cpu_seconds - load.cpu_seconds;
    let stored = process::stored_bytes(server.pid())? - stored;
    let measured = answered.iter().sum::<u64>() - warm;
    ensure!(measured > 0, "nothing was answered");
    let (p50, p99) = (crowd.latency.value_at_quantile(0.5), crowd.latency.value_at_quantile(0.99));
    // The last command of each host is answered too, so every invite is cancelled.
    delivered += crowd.settle()?;
    answered.iter_mut().for_each(|count| *count += 1);
    for host in (0..commands.hosts).filter(|host| !answered[*host].is_multiple_of(2)) {
        next(&mut crowd, &answered, host)?;
    }
    delivered += crowd.settle()? + crowd.drain(QUIET)?;
    let rounds: u64 = answered.iter().map(|count| count.div_ceil(2)).sum();
    ensure!(delivered == rounds * EVENTS_PER_ROUND, "{delivered} events of {}", rounds * EVENTS_PER_ROUND);
    let each = |sum: f64| sum / measured as f64;
    Ok(CommandsResult {
        per_s: measured as f64 / seconds,
        cpu_us: each(cpu * 1e6),
        load_cpu_us: each(load * 1e6),
        stored_bytes: each(stored as f64),
        p50_ms: p50 as f64 / 1e6,
        p99_ms: p99 as f64 / 1e6,
        delivered,
    })
}
