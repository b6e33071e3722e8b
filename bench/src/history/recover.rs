//! Many subscribers of one channel name the same position at once, as after a restart, and get what they missed.
//! Must hold: every message that they missed arrives; a gap is a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::publish::{payload, settings};
use crate::compare::peer::Running;
use crate::crowd::Crowd;
use crate::dial::Dialer;
use crate::events::line::{Line, number_after};
use crate::process;
use crate::target::Protocol;

#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    pub ms: f64,
    pub cpu_ms: f64,
    /// Reads of the store in this time.
    pub reads: f64,
}

const CHANNEL: &str = "log#recovered";
/// Long enough for what a new session reads to be read.
const QUIET: Duration = Duration::from_millis(1_500);
const PATIENCE: Duration = Duration::from_secs(30);

pub fn run(program: &Path, subscribers: usize, missed: u64) -> anyhow::Result<Recovered> {
    let server = Running::tavern(program, None, &settings("log", true))?;
    measure(&server, subscribers, missed)
        .map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure(server: &Running, subscribers: usize, missed: u64) -> anyhow::Result<Recovered> {
    let mut line = Line::open(server.address(), &server.dev_key()?)?;
    let message = format!(r#"{{"channel":"{CHANNEL}","data":{}}}"#, payload());
    let body = |count: usize| format!(r#"{{"messages":[{}]}}"#, vec![message.clone(); count].join(","));
    line.must("POST", "/v1/publish", &body(10))?;
    let page = line.must("GET", "/v1/channels/log%23recovered/history", "")?;
    let epoch = number_after(page, br#""epoch":"#).context("no epoch")?;
    let offset = number_after(page, br#""offset":"#).context("no offset")?;
    line.must("POST", "/v1/publish", &body(missed as usize))?;

    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    for index in 0..subscribers {
        crowd.connect(&mut dialer, &format!("subscriber-{index}"))?;
    }
    crowd.drain(QUIET)?;
    let subscribe = format!(
        r#"{{"id":1,"op":"subscribe","channel":"{CHANNEL}","since":{{"epoch":{epoch},"offset":{offset}}}}}"#
    );
    let before = reads(&mut line)?;
    let cpu = process::usage(server.pid())?.cpu_seconds;
    let begun = Instant::now();
    for index in 0..subscribers {
        crowd.say(index, subscribe.as_bytes());
        crowd.flush(index)?;
    }
    let (mut events, mut received) = (0, Vec::new());
    let all = subscribers as u64 * missed;
    while events < all {
        ensure!(begun.elapsed() < PATIENCE, "{events} of {all} messages arrived");
        crowd.turn(Duration::from_millis(20), &mut received)?;
        events += received.iter().map(|received| received.events).sum::<u64>();
    }
    let ms = begun.elapsed().as_secs_f64() * 1e3;
    let cpu_ms = (process::usage(server.pid())?.cpu_seconds - cpu) * 1e3;
    let reads = reads(&mut line)? - before;
    events += crowd.drain(QUIET)?;
    ensure!(events == all, "{events} messages arrived instead of {all}");
    Ok(Recovered { ms, cpu_ms, reads })
}

/// How often the server has read from its store.
fn reads(line: &mut Line) -> anyhow::Result<f64> {
    let page = line.must("GET", "/metrics", "")?;
    let count = number_after(page, b"\ntavern_store_read_seconds_count ").context("no count of reads")?;
    Ok(count as f64)
}
