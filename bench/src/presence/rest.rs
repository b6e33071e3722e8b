//! Presences at rest: what they write while nothing happens, and the memory they take.
//! Must hold: the baseline before the joins is measured on the same server and subtracted.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::compare::peer::Running;
use crate::crowd::Crowd;
use crate::dial::Dialer;
use crate::process;
use crate::target::Protocol;

#[derive(Clone, Debug)]
pub struct Rest {
    pub sessions: usize,
    /// Channels that each session is in.
    pub channels: usize,
    /// Whether a watcher subscribes when all sessions are present.
    pub watched: bool,
    /// How long the server idles, before the joins and after. None: only memory is measured.
    pub idle: Option<Duration>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RestResult {
    pub presences: usize,
    /// Growth of the server's private pages for each presence, without and with a watcher.
    pub bytes_each: f64,
    pub watched_bytes_each: f64,
    /// Bytes written to storage in an idle second: with no presences, and with all.
    pub empty_bytes_per_s: f64,
    pub full_bytes_per_s: f64,
    pub full_cpu_ms_per_s: f64,
}

const BATCH: usize = 16;
/// Memory that the server will give back is given back by then.
const SETTLE: Duration = Duration::from_secs(3);

pub fn run(program: &Path, store: Option<&str>, rest: &Rest) -> anyhow::Result<RestResult> {
    let server = Running::tavern(program, store, super::SETTINGS)?;
    measure(&server, rest).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure(server: &Running, rest: &Rest) -> anyhow::Result<RestResult> {
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    let watcher = crowd.connect(&mut dialer, "watcher")?;
    let mut sessions = Vec::with_capacity(rest.sessions);
    for index in 0..rest.sessions {
        sessions.push(crowd.connect(&mut dialer, &format!("user-{index}"))?);
    }
    // Every session has joined once before, so that buffers which the server keeps are not counted as presences.
    for op in ["join", "leave"] {
        all(&mut crowd, &sessions, op, "lobby#", 0..1)?;
    }
    thread::sleep(SETTLE);
    let empty = rest.idle.map(|time| idle(server, &mut crowd, time)).transpose()?;
    let before = process::memory(server.pid())?.private_kib;
    let each = |kib: u64| (kib as f64 - before as f64) * 1024.0 / (rest.sessions * rest.channels) as f64;
    all(&mut crowd, &sessions, "join", "hall#", 0..rest.channels)?;
    thread::sleep(SETTLE);
    let bytes_each = each(process::memory(server.pid())?.private_kib);
    let full = rest.idle.map(|time| idle(server, &mut crowd, time)).transpose()?;
    if rest.watched {
        for channel in 0..rest.channels {
            let watch = format!(r#"{{"id":1,"op":"subscribe","channel":"hall#{channel}","presence":true}}"#);
            crowd.say(watcher, watch.as_bytes());
        }
        crowd.settle()?;
        thread::sleep(SETTLE);
    }
    let watched_bytes_each = each(process::memory(server.pid())?.private_kib);
    let presences = rest.sessions * rest.channels;
    let (empty_bytes_per_s, _) = empty.unwrap_or_default();
    let (full_bytes_per_s, full_cpu_ms_per_s) = full.unwrap_or_default();
    Ok(RestResult {
        presences,
        bytes_each,
        watched_bytes_each,
        empty_bytes_per_s,
        full_bytes_per_s,
        full_cpu_ms_per_s,
    })
}

/// All sessions do the same in every channel, some commands of each in flight.
fn all(
    crowd: &mut Crowd,
    sessions: &[usize],
    op: &str,
    prefix: &str,
    channels: Range<usize>,
) -> anyhow::Result<()> {
    let channels: Vec<usize> = channels.collect();
    for some in channels.chunks(BATCH) {
        for &session in sessions {
            for channel in some {
                let command = format!(r#"{{"id":1,"op":"{op}","channel":"{prefix}{channel}"}}"#);
                crowd.say(session, command.as_bytes());
            }
        }
        crowd.settle()?;
    }
    Ok(())
}

/// Bytes stored and milliseconds of processor time per second without commands.
fn idle(server: &Running, crowd: &mut Crowd, time: Duration) -> anyhow::Result<(f64, f64)> {
    let stored = process::stored_bytes(server.pid())?;
    let cpu = process::usage(server.pid())?.cpu_seconds;
    let begun = Instant::now();
    while begun.elapsed() < time {
        // Answers the server's pings.
        crowd.drain(Duration::from_millis(200))?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let stored = process::stored_bytes(server.pid())? - stored;
    let cpu = process::usage(server.pid())?.cpu_seconds - cpu;
    Ok((stored as f64 / seconds, cpu * 1e3 / seconds))
}
