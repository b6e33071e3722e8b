//! The compared workloads and servers. Pure data.
//! Must hold: every workload has a name that stays, so that results of different days can be laid side by side.

use std::time::Duration;

use serde::Serialize;

use crate::load::{Length, Load};
use crate::target::{Protocol, Target};

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    Tavern,
    /// Tavern with one shard, and with two.
    OneShard,
    TwoShards,
    Redis,
    Nats,
    /// Only where its program is given.
    Sockudo,
}

impl Peer {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tavern => "tavern",
            Self::OneShard => "one shard",
            Self::TwoShards => "two shards",
            Self::Redis => "redis",
            Self::Nats => "nats",
            Self::Sockudo => "sockudo",
        }
    }
}

/// What a workload is about; each kind has its own figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The Redis protocol, beside the peers.
    Redis,
    WebSocket,
    /// Clients of Pusher, beside our WebSocket.
    Pusher,
    Shards,
    /// Memory of idle connections.
    Idle,
    /// Memory and wake-up of parked polls.
    Parked,
    Poll,
}

/// One workload.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    pub name: String,
    pub label: String,
    pub kind: Kind,
    pub peers: Vec<Peer>,
    /// What Tavern is spoken to in; the others know one protocol.
    pub protocol: Protocol,
    pub publishers: usize,
    pub subscribers: usize,
    pub payload: usize,
    pub depth: usize,
    pub rate: Option<f64>,
    /// How often each server is measured.
    pub rounds: usize,
    pub seconds: f64,
}

/// How thorough a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Extent {
    Quick,
    Full,
}

impl Extent {
    fn rounds(self, subscribers: usize) -> usize {
        // One publisher and one listener take turns with the server; what a wake-up costs depends on which cores
        // the kernel chose, and differs threefold from start to start. Only more starts help.
        match (self, subscribers) {
            (Self::Quick, 1) => 3,
            (Self::Quick, _) => 1,
            (Self::Full, 1) => 5,
            (Self::Full, _) => 3,
        }
    }

    fn seconds(self) -> f64 {
        match self {
            Self::Quick => 1.5,
            Self::Full => 3.0,
        }
    }
}

pub const TOPOLOGIES: [(usize, usize); 5] = [(1, 1), (1, 10), (1, 100), (1, 1000), (10, 100)];
pub const IDLE_CONNECTIONS: usize = 10_000;
const PACED: f64 = 20.0;
/// How long connections rest before their memory is read.
const HOLD: Duration = Duration::from_secs(3);
const WARMUP: Duration = Duration::from_millis(500);
/// Seconds between two wake-ups of all parked polls.
const WAKE_EVERY: f64 = 2.0;

/// All workloads of a run.
pub fn plan(extent: Extent) -> Vec<Case> {
    let mut cases = Vec::new();
    for depth in [16, 1] {
        for payload in [256, 16] {
            for (publishers, subscribers) in TOPOLOGIES {
                let brief = payload == 256 && (depth == 16 || subscribers != 10 && publishers == 1);
                if extent == Extent::Full || brief {
                    cases.push(redis_case(publishers, subscribers, payload, depth, extent));
                }
            }
        }
    }
    let one = redis_case(1, 5000, 256, 16, extent);
    cases.push(Case { peers: vec![Peer::Tavern], ..one });
    cases.extend(websocket_cases(extent));
    cases.extend(memory_cases(extent));
    cases
}

fn redis_case(publishers: usize, subscribers: usize, payload: usize, depth: usize, extent: Extent) -> Case {
    let (name, shape) = match publishers {
        1 => (format!("1x{subscribers}"), format!("1→{}", thousands(subscribers))),
        _ => (
            format!("{publishers}x{}", subscribers / publishers),
            format!("{publishers}×{}", subscribers / publishers),
        ),
    };
    Case {
        name: format!("redis-{name}-{payload}b-d{depth}"),
        label: format!("{shape}, {payload} B, depth {depth}"),
        kind: Kind::Redis,
        peers: vec![Peer::Tavern, Peer::Redis, Peer::Nats],
        protocol: Protocol::Redis,
        publishers,
        subscribers,
        payload,
        depth,
        rate: None,
        rounds: extent.rounds(subscribers),
        seconds: extent.seconds(),
    }
}

fn websocket_cases(extent: Extent) -> Vec<Case> {
    let base = Case {
        kind: Kind::WebSocket,
        peers: vec![Peer::Tavern],
        protocol: Protocol::WebSocket,
        ..redis_case(1, 1000, 256, 16, extent)
    };
    let mut cases: Vec<Case> = [100, 1000, 5000]
        .map(|subscribers| Case {
            name: format!("ws-1x{subscribers}"),
            label: format!("WebSocket 1→{}, 256 B, saturated", thousands(subscribers)),
            subscribers,
            ..base.clone()
        })
        .into();
    cases.push(Case {
        name: "ws-1x1000-paced".into(),
        label: "WebSocket 1→1,000, 256 B, 20 msg/s".into(),
        rate: Some(PACED),
        depth: 1,
        ..base.clone()
    });
    let pusher = Case { kind: Kind::Pusher, protocol: Protocol::Pusher, ..base.clone() };
    cases.push(Case {
        name: "pusher-1x1000".into(),
        label: "Pusher clients 1→1,000, 256 B, saturated".into(),
        ..pusher.clone()
    });
    cases.push(Case {
        name: "pusher-1x1000-paced".into(),
        label: "Pusher clients 1→1,000, 256 B, 20 msg/s".into(),
        peers: vec![Peer::Tavern, Peer::Sockudo],
        rate: Some(PACED),
        depth: 1,
        ..pusher
    });
    cases.push(Case {
        name: "poll-1x1000-paced".into(),
        label: "long-poll 1→1,000, 256 B, 20 msg/s".into(),
        kind: Kind::Poll,
        protocol: Protocol::Poll,
        rate: Some(PACED),
        depth: 1,
        ..base.clone()
    });
    for (name, label, protocol) in
        [("ws", "WebSocket", Protocol::WebSocket), ("redis", "Redis protocol", Protocol::Redis)]
    {
        cases.push(Case {
            name: format!("shards-{name}-1x1000-d1"),
            label: format!("{label} 1→1,000, 256 B, depth 1"),
            kind: Kind::Shards,
            peers: vec![Peer::OneShard, Peer::TwoShards],
            protocol,
            depth: 1,
            ..base.clone()
        });
    }
    cases
}

fn memory_cases(extent: Extent) -> Vec<Case> {
    let idle = Case {
        kind: Kind::Idle,
        publishers: 0,
        subscribers: IDLE_CONNECTIONS,
        // Memory does not vary.
        rounds: 1,
        ..redis_case(1, 1, 256, 1, extent)
    };
    vec![
        Case {
            name: "idle-ws".into(),
            label: "10,000 idle WebSockets with sessions".into(),
            peers: vec![Peer::Tavern],
            protocol: Protocol::WebSocket,
            ..idle.clone()
        },
        Case {
            name: "idle-redis".into(),
            label: "10,000 idle Redis connections".into(),
            peers: vec![Peer::Tavern, Peer::Redis],
            ..idle.clone()
        },
        Case {
            name: "parked-polls".into(),
            label: "10,000 parked polls".into(),
            kind: Kind::Parked,
            peers: vec![Peer::Tavern],
            protocol: Protocol::Poll,
            publishers: 1,
            rate: Some(1.0 / WAKE_EVERY),
            seconds: WAKE_EVERY * if extent == Extent::Full { 5.0 } else { 2.0 },
            ..idle
        },
    ]
}

impl Case {
    /// Where messages for these listeners are published.
    pub fn publishing(&self, target: &Target) -> Target {
        match (self.kind, self.rate) {
            // As to our WebSocket, with which it is compared. Paced, servers are compared, which all have the HTTP API.
            (Kind::Pusher, None) => Target { protocol: Protocol::WebSocket, ..target.clone() },
            _ => target.publishing(),
        }
    }

    pub fn load(&self, target: Target, publish_to: Target, pid: u32) -> Load {
        Load {
            publish_to,
            subscribers: self.subscribers,
            publishers: self.publishers,
            channels: self.publishers.max(1),
            payload: self.payload,
            depth: self.depth,
            rate: self.rate,
            warmup: if self.kind == Kind::Parked { Duration::from_secs_f64(WAKE_EVERY) } else { WARMUP },
            length: Length::Time(Duration::from_secs_f64(self.seconds)),
            idle: self.kind == Kind::Idle,
            hold: if matches!(self.kind, Kind::Idle | Kind::Parked) { HOLD } else { Duration::ZERO },
            pid: Some(pid),
            ..Load::new(target)
        }
    }
}

pub fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_full_plan_holds_every_promised_workload_once() {
        let cases = plan(Extent::Full);
        let compared = cases.iter().filter(|case| case.peers.contains(&Peer::Nats)).count();
        assert_eq!(compared, 5 * 2 * 2);
        let names: BTreeSet<_> = cases.iter().map(|case| case.name.clone()).collect();
        assert_eq!(names.len(), cases.len());
        for name in
            ["redis-10x10-16b-d1", "ws-1x5000", "ws-1x1000-paced", "idle-ws", "parked-polls", "pusher-1x1000"]
        {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn every_workload_can_be_run() {
        for case in plan(Extent::Full).into_iter().chain(plan(Extent::Quick)) {
            let target = Target::new(case.protocol, "127.0.0.1:1".parse().unwrap());
            let load = case.load(target.clone(), case.publishing(&target), 1);
            load.check().unwrap_or_else(|error| panic!("{}: {error}", case.name));
        }
    }

    #[test]
    fn the_quick_plan_takes_about_two_minutes() {
        let seconds: f64 = plan(Extent::Quick)
            .iter()
            .map(|case| {
                let rest = if case.subscribers == IDLE_CONNECTIONS { 7.0 } else { 1.0 };
                (case.peers.len() * case.rounds) as f64 * (case.seconds + rest)
            })
            .sum();
        assert!((60.0..160.0).contains(&seconds), "{seconds}");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([1, 999, 1000, 10_050].map(thousands), ["1", "999", "1,000", "10,050"]);
    }
}
