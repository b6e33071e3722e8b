//! A node with all clients dies: the time until the others have notified their watchers.
//! Must hold: every watcher gets an event for every client, or it is a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::Combination;
use crate::crowd::{Crowd, Received};
use crate::dial::Dialer;
use crate::presence::SETTINGS;
use crate::target::Protocol;

pub struct FailoverResult {
    pub first_s: f64,
    pub last_s: f64,
}

/// The default lease of a node.
pub const LEASE_MS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(60);
const BATCH: usize = 16;
/// Of one presence that ends: of the client and of its user.
const EVENTS_EACH: u64 = 2;

pub fn run(
    program: &Path,
    combination: Combination,
    sessions: usize,
    channels: usize,
) -> anyhow::Result<FailoverResult> {
    let shared = combination.start()?;
    // Without a grace period, so that all events are sent at once.
    let settings = format!(
        "{SETTINGS}mailbox_events = 100000\nmailbox_bytes = 67108864\n[kinds.default]\ngrace_ms = 0\n"
    );
    let watching = [shared.node(program, &settings)?, shared.node(program, &settings)?];
    let mut dying = shared.node(program, &settings)?;
    let mut crowd = Crowd::new()?;
    for node in &watching {
        let target = node.target(Protocol::WebSocket);
        let watcher = crowd.connect(&mut Dialer::new(&target, None)?, "watcher")?;
        for channel in 0..channels {
            let watch = format!(r#"{{"id":1,"op":"subscribe","channel":"room#{channel}","presence":true}}"#);
            crowd.say(watcher, watch.as_bytes());
        }
    }
    crowd.settle()?;
    let mut clients = Crowd::new()?;
    let target = dying.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let client_ids: Vec<usize> = (0..sessions)
        .map(|index| clients.connect(&mut dialer, &format!("user-{index}")))
        .collect::<Result<_, _>>()?;
    let mut came = 0;
    for from in (0..channels).step_by(BATCH) {
        for client in &client_ids {
            for channel in from..(from + BATCH).min(channels) {
                let join = format!(r#"{{"id":1,"op":"join","channel":"room#{channel}"}}"#);
                clients.say(*client, join.as_bytes());
            }
        }
        clients.settle()?;
        came += crowd.drain(Duration::from_millis(50))?;
    }
    came += crowd.drain(Duration::from_secs(1))?;
    let wanted = (sessions * channels) as u64 * EVENTS_EACH * watching.len() as u64;
    ensure!(came == wanted, "the watchers received {came} of {wanted} join events");
    dying.kill();
    let begun = Instant::now();
    let (mut first_s, mut events) = (None, 0);
    let mut received = Vec::new();
    while events < wanted {
        ensure!(begun.elapsed() < PATIENCE, "the watchers received {events} events of {wanted}");
        crowd.turn(Duration::from_millis(20), &mut received)?;
        events += received.iter().map(|&Received { events, .. }| events).sum::<u64>();
        if events > 0 && first_s.is_none() {
            first_s = Some(begun.elapsed().as_secs_f64());
        }
    }
    let last_s = begun.elapsed().as_secs_f64();
    let more = crowd.drain(Duration::from_millis(500))?;
    ensure!(more == 0, "the watchers received {more} events too many");
    Ok(FailoverResult { first_s: first_s.unwrap_or(last_s), last_s })
}
