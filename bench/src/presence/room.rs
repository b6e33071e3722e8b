//! One large room: what its watchers receive while users join, and the cost of `who`.
//! Must hold: frames are counted where they arrive, at the watchers.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use crate::compare::peer::Running;
use crate::crowd::Crowd;
use crate::dial::Dialer;
use crate::process;
use crate::target::Protocol;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Arrivals {
    pub frames: u64,
    pub cpu_seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Question {
    /// One complete `who` over loopback, all pages.
    pub ms: f64,
    pub cpu_ms: f64,
}

const COALESCED: &str = "[kinds.room]\npresence_mode = \"coalesced\"\n";
/// Longer than a tick: the last coalesced event has been sent by then.
const LAST_TICK: Duration = Duration::from_millis(700);
/// Users per page: the maximum.
const PART: usize = 1000;

/// Users who do not watch join a watched room at a constant rate.
pub fn arrivals(
    program: &Path,
    watchers: usize,
    arriving: usize,
    within: Duration,
) -> anyhow::Result<Arrivals> {
    let server = Running::tavern(program, None, &format!("{}{COALESCED}", super::SETTINGS))?;
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    for index in 0..watchers {
        let watcher = crowd.connect(&mut dialer, &format!("watcher-{index}"))?;
        crowd.say(watcher, br#"{"id":1,"op":"subscribe","channel":"room#1","presence":true}"#);
    }
    crowd.settle()?;
    let mut clients = Vec::with_capacity(arriving);
    for index in 0..arriving {
        clients.push(crowd.connect(&mut dialer, &format!("user-{index}"))?);
    }
    crowd.drain(LAST_TICK)?;
    let cpu = process::usage(server.pid())?.cpu_seconds;
    let begun = Instant::now();
    let (mut frames, mut received) = (0, Vec::new());
    for (at, &client) in clients.iter().enumerate() {
        let due = begun + within.mul_f64(at as f64 / arriving as f64);
        while Instant::now() < due {
            crowd.turn(due.saturating_duration_since(Instant::now()), &mut received)?;
            frames += received.iter().map(|received| received.events).sum::<u64>();
        }
        crowd.say(client, br#"{"id":1,"op":"join","channel":"room#1"}"#);
        crowd.flush(client)?;
    }
    frames += crowd.settle()? + crowd.drain(LAST_TICK)?;
    let cpu_seconds = process::usage(server.pid())?.cpu_seconds - cpu;
    ensure!(frames >= watchers as u64, "the watchers received {frames} frames");
    Ok(Arrivals { frames, cpu_seconds })
}

/// One client sends `who` repeatedly.
pub fn who(program: &Path, store: Option<&str>, users: usize, times: usize) -> anyhow::Result<Question> {
    let server = Running::tavern(program, store, super::SETTINGS)?;
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    for index in 0..users {
        let client = crowd.connect(&mut dialer, &name(index))?;
        crowd.say(client, br#"{"id":1,"op":"join","channel":"room#1"}"#);
    }
    crowd.settle()?;
    let asker = crowd.connect(&mut dialer, "asker")?;
    let ask = |crowd: &mut Crowd| {
        for from in (0..users).step_by(PART) {
            let after = from.checked_sub(1).map(|last| format!(r#","after":"{}""#, name(last)));
            let after = after.unwrap_or_default();
            let who = format!(r#"{{"id":1,"op":"who","channel":"room#1","limit":{PART}{after}}}"#);
            crowd.say(asker, who.as_bytes());
            crowd.settle()?;
        }
        anyhow::Ok(())
    };
    for _ in 0..times / 10 + 1 {
        ask(&mut crowd)?;
    }
    let cpu = process::usage(server.pid())?.cpu_seconds;
    let begun = Instant::now();
    for _ in 0..times {
        ask(&mut crowd)?;
    }
    let each = |seconds: f64| seconds * 1e3 / times as f64;
    let ms = each(begun.elapsed().as_secs_f64());
    Ok(Question { ms, cpu_ms: each(process::usage(server.pid())?.cpu_seconds - cpu) })
}

/// Names in the order of their numbers.
fn name(index: usize) -> String {
    format!("user-{index:06}")
}
