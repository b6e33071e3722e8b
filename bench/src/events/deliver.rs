//! Deliveries to endpoints: from a backlog that does not end while others publish, and one event at a time.
//! Must hold: a missing seq at an endpoint is a fault, and so is an endpoint that has caught up.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::endpoint::{Endpoints, SENT};
use super::site::{Publisher, Site, joined};
use crate::process;

#[derive(Clone, Debug)]
pub struct Deliver {
    pub endpoints: usize,
    /// Events in one batch.
    pub batch: u32,
    /// Events that wait when the deliveries begin.
    pub backlog: u64,
    /// Events that are accepted in a second meanwhile.
    pub pace: u64,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct DeliverResult {
    pub per_s: f64,
    /// Of the server, all threads, for deliveries and for what it accepts meanwhile.
    pub cpu_per_million: f64,
    pub load_cpu_per_million: f64,
    pub accepted_per_s: f64,
    pub events_per_batch: f64,
    /// Batches that came again.
    pub again: f64,
}

const WARMUP: Duration = Duration::from_secs(1);
const TOPIC: &str = "orders";
/// Events in one request of the paced publisher.
const PACED: u64 = 40;

pub fn run(program: &Path, deliver: &Deliver) -> anyhow::Result<DeliverResult> {
    // The endpoints outlive the server that calls them.
    let endpoints = Endpoints::open(deliver.endpoints)?;
    let site = Site::start(program)?;
    measure(&site, &endpoints, deliver)
        .map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", site.server.log()))
}

fn measure(site: &Site, endpoints: &Endpoints, deliver: &Deliver) -> anyhow::Result<DeliverResult> {
    let mut line = site.line()?;
    for index in 0..deliver.endpoints {
        let (path, url, batch) = (path(index), endpoints.url(index), deliver.batch);
        let settings = format!(r#"{{"topics":["{TOPIC}"],"callback":"{url}","max_events":{batch}}}"#);
        line.must("PUT", &path, &settings)?;
        line.must("POST", &format!("{path}/disable"), "")?;
    }
    site.fill(&[TOPIC.to_owned()], deliver.backlog)?;
    for index in 0..deliver.endpoints {
        line.must("POST", &format!("{}/enable", path(index)), "")?;
    }
    let (accepted, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let outcome = thread::scope(|scope| {
        let paced = scope.spawn(|| pace(site, deliver.pace, &accepted, &ends));
        let outcome = watch(site, endpoints, deliver, &accepted);
        ends.store(true, Ordering::Relaxed);
        joined(paced)?;
        outcome
    })?;
    endpoints.check()?;
    Ok(outcome)
}

fn path(index: usize) -> String {
    format!("/v1/subscriptions/endpoint-{index}")
}

/// Publishes at a constant rate until stopped; catches up when late.
fn pace(site: &Site, pace: u64, accepted: &AtomicU64, ends: &AtomicBool) -> anyhow::Result<()> {
    let mut publisher = Publisher::open(site, TOPIC, PACED as usize)?;
    let begun = Instant::now();
    for turn in 0u64.. {
        let due = begun + Duration::from_secs_f64((turn * PACED) as f64 / pace as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if ends.load(Ordering::Relaxed) {
            break;
        }
        accepted.fetch_add(publisher.publish()?, Ordering::Relaxed);
    }
    Ok(())
}

fn watch(
    site: &Site,
    endpoints: &Endpoints,
    deliver: &Deliver,
    accepted: &AtomicU64,
) -> anyhow::Result<DeliverResult> {
    thread::sleep(WARMUP);
    let took = || -> anyhow::Result<_> {
        let cpu = process::usage(site.pid())?.cpu_seconds;
        let load_cpu = process::usage(std::process::id())?.cpu_seconds;
        let counts = [endpoints.events(), endpoints.batches(), accepted.load(Ordering::Relaxed)];
        Ok((Instant::now(), cpu, load_cpu, counts))
    };
    let (begun, cpu, load_cpu, before) = took()?;
    while begun.elapsed().as_secs_f64() < deliver.seconds {
        thread::sleep(Duration::from_millis(20));
        endpoints.check()?;
    }
    let (ended, cpu_after, load_cpu_after, after) = took()?;
    let [events, batches, taken] = [0, 1, 2].map(|at| (after[at] - before[at]) as f64);
    let all = deliver.backlog + accepted.load(Ordering::Relaxed);
    let reached = endpoints.reached();
    ensure!(events > 0.0 && batches > 0.0, "nothing was delivered");
    ensure!(
        reached.iter().all(|&last| last + u64::from(deliver.batch) < all),
        "an endpoint had caught up: a backlog of {} events is too short here",
        deliver.backlog
    );
    let seconds = (ended - begun).as_secs_f64();
    Ok(DeliverResult {
        per_s: events / seconds,
        cpu_per_million: (cpu_after - cpu) * 1e6 / events,
        load_cpu_per_million: (load_cpu_after - load_cpu) * 1e6 / events,
        accepted_per_s: taken / seconds,
        events_per_batch: events / batches,
        again: endpoints.again() as f64,
    })
}

/// One subscription that waits for nothing, and events one at a time.
#[derive(Clone, Debug)]
pub struct Paced {
    pub events: u64,
    pub every: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Waited {
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub cpu_per_million: f64,
}

const PATIENCE: Duration = Duration::from_secs(10);
const FIRST: u64 = 50;

/// From before an event is published until an endpoint has it.
pub fn latency(program: &Path, paced: &Paced) -> anyhow::Result<Waited> {
    let endpoints = Endpoints::open(1)?;
    let site = Site::start(program)?;
    let url = endpoints.url(0);
    let settings = format!(r#"{{"topics":["{TOPIC}"],"callback":"{url}","timeout_ms":0}}"#);
    site.line()?.must("PUT", &path(0), &settings)?;
    let mut publisher = Publisher::open(&site, TOPIC, 1)?;
    let mut publish = |events: u64, timed: bool| -> anyhow::Result<()> {
        let begun = Instant::now();
        for turn in 0..events {
            thread::sleep((begun + paced.every * turn as u32).saturating_duration_since(Instant::now()));
            let event = match timed {
                true => format!(r#"{{"type":"update","data":{{{SENT}{}}}}}"#, endpoints.now_us()),
                false => r#"{"type":"update","data":{}}"#.to_owned(),
            };
            publisher.publish_body(event.as_bytes(), 1)?;
        }
        Ok(())
    };
    publish(FIRST, false)?;
    endpoints.wait_for(FIRST, PATIENCE)?;
    let cpu = process::usage(site.pid())?.cpu_seconds;
    publish(paced.events, true)?;
    endpoints.wait_for(FIRST + paced.events, PATIENCE)?;
    let cpu = process::usage(site.pid())?.cpu_seconds - cpu;
    Ok(Waited {
        p50_ms: endpoints.latency_ms(0.5),
        p99_ms: endpoints.latency_ms(0.99),
        cpu_per_million: cpu * 1e6 / paced.events as f64,
    })
}
