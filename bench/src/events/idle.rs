//! Subscriptions with nothing to deliver: the memory they take and what the server does for them while nothing happens.
//! Must hold: the baseline without them is measured on the same server and reported too.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::site::{Site, joined};
use crate::process;

#[derive(Clone, Debug)]
pub struct Idle {
    pub subscriptions: usize,
    pub topics: usize,
    pub time: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct IdleResult {
    pub bytes_each: f64,
    pub private_bytes_each: f64,
    /// Milliseconds of processor time in a second, before there were any and with all of them.
    pub empty_cpu_ms_per_s: f64,
    pub full_cpu_ms_per_s: f64,
    pub puts_per_s: f64,
}

/// Those that bring the server's buffers to their size. They stay.
const FIRST: usize = 2000;
const LINES: usize = 8;
/// What the server does when it begins is done by then.
const BEGUN: Duration = Duration::from_secs(3);
/// The server caches a subscription for 10 s after its last activity; its creation counts as activity.
const SETTLE: Duration = Duration::from_secs(13);

pub fn run(program: &Path, idle: &Idle) -> anyhow::Result<IdleResult> {
    let site = Site::start(program)?;
    measure(&site, idle).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", site.server.log()))
}

fn measure(site: &Site, idle: &Idle) -> anyhow::Result<IdleResult> {
    thread::sleep(BEGUN);
    let empty_cpu_ms_per_s = rest(site, idle.time / 2)?;
    put(site, idle, 0, FIRST)?;
    thread::sleep(SETTLE);
    let before = process::memory(site.pid())?;
    let begun = Instant::now();
    put(site, idle, FIRST, FIRST + idle.subscriptions)?;
    let puts_per_s = idle.subscriptions as f64 / begun.elapsed().as_secs_f64();
    thread::sleep(SETTLE);
    let after = process::memory(site.pid())?;
    let each = |before: u64, after: u64| (after as f64 - before as f64) * 1024.0 / idle.subscriptions as f64;
    Ok(IdleResult {
        bytes_each: each(before.rss_kib, after.rss_kib),
        private_bytes_each: each(before.private_kib, after.private_kib),
        empty_cpu_ms_per_s,
        full_cpu_ms_per_s: rest(site, idle.time)?,
        puts_per_s,
    })
}

fn put(site: &Site, idle: &Idle, from: usize, to: usize) -> anyhow::Result<()> {
    thread::scope(|scope| {
        let put = |of: usize| {
            let mut line = site.line()?;
            for index in (from + of..to).step_by(LINES) {
                let topic = index % idle.topics;
                let settings =
                    format!(r#"{{"topics":["idle-{topic}"],"callback":"http://127.0.0.1:9/hook/{index}"}}"#);
                line.must("PUT", &format!("/v1/subscriptions/idle-{index}"), &settings)?;
            }
            anyhow::Ok(())
        };
        let threads: Vec<_> = (0..LINES).map(|of| scope.spawn(move || put(of))).collect();
        threads.into_iter().try_for_each(joined)
    })
}

/// Milliseconds of processor time in a second without requests.
fn rest(site: &Site, time: Duration) -> anyhow::Result<f64> {
    let (begun, cpu) = (Instant::now(), process::on_cpu(site.pid())?);
    thread::sleep(time);
    let cpu = process::on_cpu(site.pid())?.saturating_sub(cpu);
    Ok(cpu.as_secs_f64() * 1e3 / begun.elapsed().as_secs_f64())
}
