//! Reading the last events of a large log: the cost must depend on the events read, not on the size of the log.
//! Must hold: the same events are read in the same way at every size.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::endpoint::Endpoints;
use super::line::{Line, number_after};
use super::site::Site;
use crate::process;

#[derive(Clone, Debug)]
pub struct Backlog {
    /// Events that are stored, in the order in which they are reached.
    pub sizes: Vec<u64>,
    /// How often the end is pulled.
    pub times: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct BacklogResult {
    pub stored: u64,
    /// The median of pulls of the last thousand.
    pub pull_ms: f64,
    pub pull_cpu_ms: f64,
    /// From enabling a subscription until its endpoint has the last thousand.
    pub deliver_ms: f64,
    /// Going back to the last thousand in a subscription of everything.
    pub replay_ms: f64,
    /// Events in a second, for who pulls and acknowledges all that came since the smaller log.
    pub through_per_s: f64,
}

const TOPICS: usize = 4;
/// Subscriptions that are delivered the end, one after another.
const HOOKS: usize = 5;
const TAIL: u64 = 1000;
const EVERYTHING: &str = "/v1/subscriptions/everything";
const NEXT: &[u8] = b"\"next_after\":";
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(program: &Path, backlog: &Backlog) -> anyhow::Result<Vec<BacklogResult>> {
    let endpoints = Endpoints::open(backlog.sizes.len() * HOOKS)?;
    let site = Site::start(program)?;
    measure(&site, &endpoints, backlog)
        .map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", site.server.log()))
}

fn measure(site: &Site, endpoints: &Endpoints, backlog: &Backlog) -> anyhow::Result<Vec<BacklogResult>> {
    let topics: Vec<String> = (0..TOPICS).map(|index| format!("store-{index}")).collect();
    let listed = serde_json::to_string(&topics)?;
    let mut line = site.line()?;
    let pulling = format!(r#"{{"topics":{listed},"pull":true}}"#);
    line.must("PUT", EVERYTHING, &pulling)?;
    let (mut stored, mut outcomes) = (0, Vec::new());
    for (at, &size) in backlog.sizes.iter().enumerate() {
        let begun = Instant::now();
        site.fill(&topics, size - TAIL - stored)?;
        // Filling may take longer than the server keeps an idle connection.
        line = site.line()?;
        eprintln!("backlog: {size} events, filled in {:.1} s", begun.elapsed().as_secs_f64());
        let tail = format!("/v1/subscriptions/tail-{at}");
        line.must("PUT", &tail, &pulling)?;
        let hooks = at * HOOKS..(at + 1) * HOOKS;
        for hook in hooks.clone() {
            let url = endpoints.url(hook);
            let calling = format!(r#"{{"topics":{listed},"callback":"{url}","timeout_ms":0}}"#);
            line.must("PUT", &hook_path(hook), &calling)?;
            line.must("POST", &format!("{}/disable", hook_path(hook)), "")?;
        }
        site.fill(&topics, TAIL)?;
        let (pull_ms, pull_cpu_ms) = pull(site, &mut line, &tail, backlog.times)?;
        let mut delivered = Vec::new();
        for hook in hooks.clone() {
            let begun = Instant::now();
            line.must("POST", &format!("{}/enable", hook_path(hook)), "")?;
            endpoints.wait_for((hook as u64 + 1) * TAIL, PATIENCE)?;
            delivered.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        // Else they are delivered what comes next, while its end is read.
        for hook in hooks {
            line.must("DELETE", &hook_path(hook), "")?;
        }
        let begun = Instant::now();
        read_through(&mut line, stored, size)?;
        let through_per_s = (size - stored) as f64 / begun.elapsed().as_secs_f64();
        let replay_ms = go_back(&mut line, size - TAIL + 1, backlog.times)?;
        stored = size;
        outcomes.push(BacklogResult {
            stored,
            pull_ms,
            pull_cpu_ms,
            deliver_ms: median(delivered),
            replay_ms,
            through_per_s,
        });
    }
    Ok(outcomes)
}

/// The time and the processor time of a pull of everything that a subscription has, which is what is called the end.
fn pull(site: &Site, line: &mut Line, path: &str, times: usize) -> anyhow::Result<(f64, f64)> {
    let (mut took, cpu) = (Vec::new(), process::on_cpu(site.pid())?);
    let path = format!("{path}/events?after=0&limit={TAIL}");
    for _ in 0..times {
        let begun = Instant::now();
        let last = number_after(line.must("GET", &path, "")?, NEXT);
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        ensure!(last == Some(TAIL), "a pull of {TAIL} events ended at {last:?}");
    }
    let cpu = process::on_cpu(site.pid())?.saturating_sub(cpu);
    Ok((median(took), cpu.as_secs_f64() * 1e3 / times as f64))
}

/// Pulls and acknowledges all events from one number to another.
fn read_through(line: &mut Line, from: u64, to: u64) -> anyhow::Result<()> {
    let mut at = from;
    while at < to {
        let path = format!("{EVERYTHING}/events?after={at}&limit={TAIL}");
        let next = number_after(line.must("GET", &path, "")?, NEXT);
        ensure!(next == Some(at + TAIL), "a pull after {at} ended at {next:?}");
        at += TAIL;
    }
    line.must("GET", &format!("{EVERYTHING}/events?after={to}"), "").map(drop)
}

/// The time of a replay from an event, by its number. The subscription is moved forward again afterwards.
fn go_back(line: &mut Line, to: u64, times: usize) -> anyhow::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        let reply = line.must("POST", &format!("{EVERYTHING}/replay"), &format!(r#"{{"from_seq":{to}}}"#))?;
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        let reply = String::from_utf8_lossy(reply).into_owned();
        ensure!(reply.contains(&format!("\"from_seq\":{to}")) && reply.contains("true"), "replay: {reply}");
        line.must("GET", &format!("{EVERYTHING}/events?after={}", to + TAIL - 1), "")?;
    }
    Ok(median(took))
}

fn hook_path(hook: usize) -> String {
    format!("/v1/subscriptions/hook-{hook}")
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
