//! Reading the last events of a log that holds many: the cost must be that of what is read, however much is stored.
//! Must hold: the same events are read in the same way at every size.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::endpoint::Endpoints;
use super::line::number_after;
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
pub struct Outcome {
    pub stored: u64,
    /// The median of pulls of the last thousand.
    pub pull_ms: f64,
    pub pull_cpu_ms: f64,
    /// From enabling a subscription until its endpoint has the last thousand.
    pub deliver_ms: f64,
    /// Going back to the last thousand in a subscription of everything.
    pub replay_ms: f64,
}

const TOPICS: usize = 4;
const TAIL: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(program: &Path, backlog: &Backlog) -> anyhow::Result<Vec<Outcome>> {
    let endpoints = Endpoints::open(backlog.sizes.len())?;
    let site = Site::start(program)?;
    measure(&site, &endpoints, backlog)
        .map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", site.server.log()))
}

fn measure(site: &Site, endpoints: &Endpoints, backlog: &Backlog) -> anyhow::Result<Vec<Outcome>> {
    let topics: Vec<String> = (0..TOPICS).map(|index| format!("store-{index}")).collect();
    let listed = serde_json::to_string(&topics)?;
    let mut line = site.line()?;
    let pulling = format!(r#"{{"topics":{listed},"pull":true}}"#);
    line.must("PUT", "/v1/subscriptions/everything", &pulling)?;
    let (mut stored, mut outcomes) = (0, Vec::new());
    for (at, &size) in backlog.sizes.iter().enumerate() {
        let begun = Instant::now();
        site.fill(&topics, size - TAIL - stored)?;
        eprintln!(
            "backlog {size}: filled by {} in {:.1} s",
            size - TAIL - stored,
            begun.elapsed().as_secs_f64()
        );
        let (tail, hook) = (format!("/v1/subscriptions/tail-{at}"), format!("/v1/subscriptions/hook-{at}"));
        let calling = format!(r#"{{"topics":{listed},"callback":"{}","timeout_ms":0}}"#, endpoints.url(at));
        line.must("PUT", &tail, &pulling)?;
        line.must("PUT", &hook, &calling)?;
        line.must("POST", &format!("{hook}/disable"), "")?;
        site.fill(&topics, TAIL)?;
        stored = size;
        let (mut times, cpu) = (Vec::new(), process::on_cpu(site.pid())?);
        for _ in 0..backlog.times {
            let begun = Instant::now();
            let last = number_after(
                line.must("GET", &format!("{tail}/events?after=0&limit={TAIL}"), "")?,
                b"\"next_after\":",
            );
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            ensure!(last == Some(TAIL), "a pull of {TAIL} events ended at {last:?}");
        }
        let cpu = process::on_cpu(site.pid())?.saturating_sub(cpu);
        times.sort_by(f64::total_cmp);
        let begun = Instant::now();
        line.must("POST", &format!("{hook}/enable"), "")?;
        endpoints.wait_for((at as u64 + 1) * TAIL, PATIENCE)?;
        let deliver_ms = begun.elapsed().as_secs_f64() * 1e3;
        let from = size - TAIL + 1;
        // Whoever goes back must have come further first.
        line.must("GET", &format!("/v1/subscriptions/everything/events?after={size}"), "")?;
        let begun = Instant::now();
        let told =
            line.must("POST", "/v1/subscriptions/everything/replay", &format!(r#"{{"from_seq":{from}}}"#))?;
        let replay_ms = begun.elapsed().as_secs_f64() * 1e3;
        ensure!(number_after(told, b"\"from_seq\":") == Some(from), "{}", String::from_utf8_lossy(told));
        outcomes.push(Outcome {
            stored: size,
            pull_ms: times[times.len() / 2],
            pull_cpu_ms: cpu.as_secs_f64() * 1e3 / backlog.times as f64,
            deliver_ms,
            replay_ms,
        });
    }
    Ok(outcomes)
}
