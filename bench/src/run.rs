//! A load from its first connection to its last delivery: connect, rest, warm up, measure, drain.
//! Must hold: everything between the two readings of the server's processor time, and nothing else, is counted.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::dial::Dialer;
use crate::load::{FIRST_CONNECTIONS, Length, Load, LoadResult, ServerUse, per_million};
use crate::process;
use crate::stage::{Counts, Stage, Tempo};

/// Observes the progress of a load.
pub trait Watch {
    fn connecting(&mut self, done: usize, total: usize);
    fn running(&mut self, share: f64, deliveries: u64);
}

/// Ignores progress.
pub struct Silent;

impl Watch for Silent {
    fn connecting(&mut self, _: usize, _: usize) {}
    fn running(&mut self, _: f64, _: u64) {}
}

/// The longest wait of one turn, so that progress and stalls are seen.
const TURN: Duration = Duration::from_millis(100);
/// A saturated load without a delivery for this long has stopped.
const STALL: Duration = Duration::from_secs(10);
const DRAIN: Duration = Duration::from_secs(5);
const WATCH: Duration = Duration::from_millis(200);

pub fn run(load: &Load, watch: &mut dyn Watch) -> anyhow::Result<LoadResult> {
    load.check()?;
    raise_files();
    let mut stage = Stage::new(load)?;
    let mut outcome =
        LoadResult { bytes_per_connection: connect(load, &mut stage, watch)?, ..LoadResult::default() };
    if load.publishers == 0 {
        return Ok(outcome);
    }
    stage.set_tempo(match load.rate {
        None => Tempo::Saturated,
        Some(rate) => Tempo::Paced { per_second: rate / load.publishers as f64, since: Instant::now() },
    })?;
    let warm = Instant::now() + load.warmup;
    drive(&mut stage, |_, now| now >= warm, &mut |_, _| {})?;
    measure(load, &mut stage, watch, &mut outcome)?;
    stage.set_tempo(Tempo::Closed)?;
    let patience = Instant::now() + DRAIN;
    drive(&mut stage, |stage, now| stage.outstanding() == 0 || now >= patience, &mut |_, _| {})?;
    outcome.lost = stage.missing();
    outcome.misordered = stage.counts.misordered;
    outcome.short_replies = stage.counts.short_replies;
    Ok(outcome)
}

/// Opens all connections. Tells the private memory that each one added, if that is asked for.
fn connect(load: &Load, stage: &mut Stage, watch: &mut dyn Watch) -> anyhow::Result<Option<f64>> {
    let weigh = load.pid.filter(|_| !load.hold.is_zero());
    let mut dialer = Dialer::new(&load.target, load.token.as_deref())?;
    let first = FIRST_CONNECTIONS.min(load.subscribers / 10);
    let mut before = None;
    for index in 0..load.subscribers {
        if index == first
            && let Some(pid) = weigh
        {
            rest(stage, load.hold / 2)?;
            before = Some(process::memory(pid)?);
        }
        stage
            .add_subscriber(load, &mut dialer)
            .with_context(|| format!("connection {} of {}", index + 1, load.subscribers))?;
        if index % 64 == 63 {
            watch.connecting(index + 1, load.subscribers);
        }
    }
    let added = match (weigh, before) {
        (Some(pid), Some(before)) => {
            rest(stage, load.hold)?;
            let after = process::memory(pid)?;
            let kib = after.private_kib as f64 - before.private_kib as f64;
            Some(kib * 1024.0 / (load.subscribers - first) as f64)
        }
        _ => None,
    };
    let mut dialer = Dialer::new(&load.publish_to, load.token.as_deref())?;
    for _ in 0..load.publishers {
        stage.add_publisher(load, &mut dialer)?;
    }
    watch.connecting(load.subscribers, load.subscribers);
    Ok(added)
}

/// Serves pings and answers while nothing is published.
fn rest(stage: &mut Stage, time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    drive(stage, |_, now| now >= end, &mut |_, _| {})
}

fn measure(
    load: &Load,
    stage: &mut Stage,
    watch: &mut dyn Watch,
    outcome: &mut LoadResult,
) -> anyhow::Result<()> {
    stage.latency.reset();
    let before = load.pid.map(process::usage).transpose()?;
    let own = process::usage(std::process::id())?;
    let (start, counts) = (Instant::now(), stage.counts);
    let share = |stage: &Stage, now: Instant| match load.length {
        Length::Time(time) => (now - start).as_secs_f64() / time.as_secs_f64().max(1e-9),
        Length::Messages(total) => (stage.counts.published - counts.published) as f64 / total.max(1) as f64,
    };
    drive(stage, |stage, now| share(stage, now) >= 1.0, &mut |stage, now| {
        watch.running(share(stage, now).min(1.0), stage.counts.delivered - counts.delivered);
    })?;
    if let Length::Messages(_) = load.length {
        stage.set_tempo(Tempo::Closed)?;
        drive(stage, |stage, _| stage.outstanding() == 0, &mut |_, _| {})?;
    }
    fill(outcome, counts, stage, start.elapsed());
    let own = process::usage(std::process::id())?.cpu_seconds - own.cpu_seconds;
    outcome.load_cpu_per_million = per_million(own, outcome.delivered);
    if let (Some(pid), Some(before)) = (load.pid, before) {
        let after = process::usage(pid)?;
        outcome.server = Some(ServerUse::between(before, after, process::memory(pid)?, outcome.delivered));
    }
    Ok(())
}

fn fill(outcome: &mut LoadResult, before: Counts, stage: &Stage, elapsed: Duration) {
    let (after, seconds) = (stage.counts, elapsed.as_secs_f64());
    outcome.seconds = seconds;
    outcome.published = after.published - before.published;
    outcome.delivered = after.delivered - before.delivered;
    outcome.answers = after.answers - before.answers;
    outcome.publishes_per_s = outcome.published as f64 / seconds;
    outcome.deliveries_per_s = outcome.delivered as f64 / seconds;
    let us = |ns: u64| ns as f64 / 1e3;
    outcome.p50_us = us(stage.latency.value_at_quantile(0.5));
    outcome.p99_us = us(stage.latency.value_at_quantile(0.99));
    outcome.max_us = us(stage.latency.max());
}

/// Turns until it is done. A load that stops moving although deliveries are due is a fault of the server.
fn drive(
    stage: &mut Stage,
    done: impl Fn(&Stage, Instant) -> bool,
    watch: &mut dyn FnMut(&Stage, Instant),
) -> anyhow::Result<()> {
    let mut now = Instant::now();
    let (mut moved, mut seen, mut shown) = (now, stage.counts.delivered, now);
    while !done(stage, now) {
        let wait = stage.quiet(now).min(TURN);
        stage.turn(wait)?;
        now = Instant::now();
        if stage.counts.delivered != seen || stage.outstanding() == 0 {
            (moved, seen) = (now, stage.counts.delivered);
        } else if now - moved > STALL {
            bail!("nothing arrived for {STALL:?}; {} deliveries are due", stage.outstanding());
        }
        if now - shown > WATCH {
            shown = now;
            watch(stage, now);
        }
    }
    Ok(())
}

/// As many open files as the machine allows.
pub(crate) fn raise_files() {
    let limit = getrlimit(Resource::Nofile);
    // Refused: the first connection above the limit will say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
