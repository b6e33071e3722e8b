//! A load, as asked for and as measured. Pure figures; `run` does the work.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use crate::process::{Memory, Usage};
use crate::stamp;
use crate::target::{Protocol, Target};

/// How long a load lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    Time(Duration),
    /// This many publishes.
    Messages(u64),
}

/// What to do to a server.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where listeners connect.
    pub target: Target,
    /// Where publishers connect.
    pub publish_to: Target,
    pub token: Option<String>,
    pub subscribers: usize,
    pub publishers: usize,
    pub channels: usize,
    pub payload: usize,
    /// Publishes that a publisher sends in one write, before it waits for all their replies.
    pub depth: usize,
    /// Messages a second, from all publishers together. None: as many as the server takes.
    pub rate: Option<f64>,
    pub warmup: Duration,
    pub length: Length,
    /// Publishes of one channel that its listeners have not received on average. At this many its publishers
    /// wait, so that no server closes a listener for being slow. The same for every server.
    pub window: u64,
    /// Idle connections listen to nothing.
    pub idle: bool,
    /// How long the connections rest before their memory is measured. Zero: it is not.
    pub hold: Duration,
    /// The server's process, to read its processor time and memory.
    pub pid: Option<u32>,
    /// Part of every channel's name. Sessions outlive their sockets: those of an earlier load must not listen.
    pub tag: String,
}

pub const DEFAULT_WINDOW: u64 = 64;
/// Connections opened before memory is first measured: code pages, slabs and tables are in place then.
pub const FIRST_CONNECTIONS: usize = 100;
const CONNECTIONS_MAX: usize = 1_000_000;
const PAYLOAD_MAX: usize = 32_768;
const DEPTH_MAX: usize = 10_000;

impl Load {
    pub fn new(target: Target) -> Self {
        Self {
            publish_to: target.publishing(),
            target,
            token: None,
            subscribers: 1,
            publishers: 1,
            channels: 1,
            payload: 256,
            depth: 16,
            rate: None,
            warmup: Duration::from_millis(500),
            length: Length::Time(Duration::from_secs(5)),
            window: DEFAULT_WINDOW,
            idle: false,
            hold: Duration::ZERO,
            pid: None,
            tag: tag(),
        }
    }

    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.subscribers + self.publishers <= CONNECTIONS_MAX,
            "at most {CONNECTIONS_MAX} connections"
        );
        ensure!(self.subscribers + self.publishers > 0, "no connection to open");
        ensure!(
            (stamp::SMALLEST..=PAYLOAD_MAX).contains(&self.payload),
            "payload: {} to {PAYLOAD_MAX} bytes",
            stamp::SMALLEST
        );
        ensure!((1..=DEPTH_MAX).contains(&self.depth), "depth: 1 to {DEPTH_MAX}");
        ensure!(self.window >= 1, "window: at least 1");
        ensure!(self.channels >= 1, "channels: at least 1");
        ensure!(
            self.channels <= self.subscribers.max(self.publishers),
            "more channels than connections to use them"
        );
        ensure!(self.rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()), "rate: above 0");
        ensure!(!self.idle || self.publishers == 0, "idle connections have no publishers");
        ensure!(!self.idle || self.target.protocol != Protocol::Poll, "a poll listens to a channel");
        ensure!(self.publish_to.protocol != Protocol::Poll, "publish by ws or redis, not by long-poll");
        Ok(())
    }

    /// The name of a channel: within Tavern's grammar, or that of NATS or Pusher.
    pub fn channel(&self, index: usize) -> String {
        match self.target.protocol {
            Protocol::Nats => format!("bench.{}.{index}", self.tag),
            Protocol::Pusher => format!("bench-{}-{index}", self.tag),
            _ => format!("bench#{}#{index}", self.tag),
        }
    }

    pub fn subscribers_of(&self, channel: usize) -> u64 {
        let (each, more) = (self.subscribers / self.channels, self.subscribers % self.channels);
        (each + usize::from(channel < more)) as u64
    }
}

/// Eight digits that differ from load to load.
fn tag() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:08x}", (since.as_millis() as u32).wrapping_add(std::process::id() << 20))
}

/// What a load showed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct LoadResult {
    pub seconds: f64,
    pub published: u64,
    pub delivered: u64,
    pub publishes_per_s: f64,
    pub deliveries_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
    /// Deliveries that never came, over the whole load.
    pub lost: i64,
    /// Reads whose last message was not the one that had to come.
    pub misordered: u64,
    /// Replies that named fewer recipients than there are.
    pub short_replies: u64,
    /// Processor seconds of the load itself per million deliveries.
    pub load_cpu_per_million: f64,
    /// Answers to polls in the measured time.
    pub answers: u64,
    pub server: Option<ServerUse>,
    /// Private memory that each connection added, in bytes.
    pub bytes_per_connection: Option<f64>,
}

/// What the server used in the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ServerUse {
    pub cpu_seconds: f64,
    pub cpu_per_million: f64,
    pub rss_kib: u64,
    pub private_kib: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

impl ServerUse {
    pub fn between(before: Usage, after: Usage, memory: Memory, deliveries: u64) -> Self {
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        Self {
            cpu_seconds,
            cpu_per_million: per_million(cpu_seconds, deliveries),
            rss_kib: memory.rss_kib,
            private_kib: memory.private_kib,
            voluntary_switches: after.voluntary_switches.saturating_sub(before.voluntary_switches),
            involuntary_switches: after.involuntary_switches.saturating_sub(before.involuntary_switches),
        }
    }
}

/// Seconds per million deliveries. Nothing delivered: nothing to divide by, so zero.
pub fn per_million(seconds: f64, deliveries: u64) -> f64 {
    if deliveries == 0 { 0.0 } else { seconds * 1e6 / deliveries as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> Load {
        Load::new("redis://127.0.0.1:1".parse().unwrap())
    }

    #[test]
    fn subscribers_spread_evenly_over_channels() {
        let load = Load { subscribers: 10, channels: 3, ..load() };
        assert_eq!([0, 1, 2].map(|channel| load.subscribers_of(channel)), [4, 3, 3]);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        assert!(load().check().is_ok());
        for wrong in [
            Load { payload: 15, ..load() },
            Load { depth: 0, ..load() },
            Load { channels: 2, ..load() },
            Load { rate: Some(0.0), ..load() },
            Load { subscribers: 0, publishers: 0, ..load() },
            Load { idle: true, ..load() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn processor_time_is_counted_per_million_deliveries() {
        let before = Usage { cpu_seconds: 1.0, voluntary_switches: 5, involuntary_switches: 1 };
        let after = Usage { cpu_seconds: 3.0, voluntary_switches: 9, involuntary_switches: 1 };
        let used = ServerUse::between(before, after, Memory::default(), 4_000_000);
        assert_eq!((used.cpu_seconds, used.cpu_per_million), (2.0, 0.5));
        assert_eq!((used.voluntary_switches, used.involuntary_switches), (4, 0));
        assert_eq!(per_million(1.0, 0), 0.0);
    }
}
