//! Publishers that never pause: how many events a second are accepted, each durable when it is answered.
//! Must hold: only events answered with 202 count, and their seqs have no gap.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hdrhistogram::Histogram;

use super::site::{Publisher, Site, joined};
use crate::process;

#[derive(Clone, Debug)]
pub struct Accept {
    pub publishers: usize,
    /// Events in one request.
    pub events: usize,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct AcceptResult {
    pub per_s: f64,
    /// Of the server, all threads, in seconds.
    pub cpu_per_million: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Bytes given to storage for one event.
    pub stored_bytes: f64,
}

/// Microseconds, up to a minute.
pub fn times() -> anyhow::Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(60_000_000, 3)?)
}

const WARMUP: Duration = Duration::from_secs(1);

pub fn run(program: &Path, accept: &Accept) -> anyhow::Result<AcceptResult> {
    let site = Site::start(program)?;
    measure(&site, accept).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", site.server.log()))
}

fn measure(site: &Site, accept: &Accept) -> anyhow::Result<AcceptResult> {
    let (accepted, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let latency = Mutex::new(times()?);
    let publish = |index: usize| {
        let mut publisher = Publisher::open(site, &format!("topic-{index}"), accept.events)?;
        let mut took = times()?;
        while !ends.load(Ordering::Relaxed) {
            let begun = Instant::now();
            accepted.fetch_add(publisher.publish()?, Ordering::Relaxed);
            took.saturating_record(begun.elapsed().as_micros() as u64);
        }
        if let Ok(mut latency) = latency.lock() {
            latency.add(took)?;
        }
        anyhow::Ok(())
    };
    let publish = &publish;
    let outcome = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..accept.publishers).map(|index| scope.spawn(move || publish(index))).collect();
        let outcome = watch(site, accept, &accepted, || threads.iter().any(|thread| thread.is_finished()));
        ends.store(true, Ordering::Relaxed);
        // An error of a publisher takes precedence over the counts.
        threads.into_iter().try_for_each(joined)?;
        outcome
    })?;
    let latency = latency.lock().map_err(|_| anyhow::anyhow!("a publisher panicked"))?;
    let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
    Ok(AcceptResult { p50_ms: ms(0.5), p99_ms: ms(0.99), ..outcome })
}

/// What happens in the time of the measurement. Ends early when a publisher does.
fn watch(
    site: &Site,
    accept: &Accept,
    accepted: &AtomicU64,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<AcceptResult> {
    thread::sleep(WARMUP);
    let before = accepted.load(Ordering::Relaxed);
    let (cpu, stored) = (process::usage(site.pid())?.cpu_seconds, process::stored_bytes(site.pid())?);
    let begun = Instant::now();
    while begun.elapsed().as_secs_f64() < accept.seconds && !is_over() {
        thread::sleep(Duration::from_millis(20));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let events = (accepted.load(Ordering::Relaxed) - before) as f64;
    let cpu = process::usage(site.pid())?.cpu_seconds - cpu;
    let stored = process::stored_bytes(site.pid())? - stored;
    ensure!(events > 0.0, "nothing was accepted");
    Ok(AcceptResult {
        per_s: events / seconds,
        cpu_per_million: cpu * 1e6 / events,
        p50_ms: 0.0,
        p99_ms: 0.0,
        stored_bytes: stored as f64 / events,
    })
}
