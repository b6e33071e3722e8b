//! What the samples say against the targets. Pure arithmetic.
//! Must hold: a ratio compares measurements of the same round, and the median of the rounds is what counts.

use serde::{Deserialize, Serialize};

use super::plan::{Case, Kind, Peer};
use crate::load::LoadResult;

/// One measurement of one server.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub case: String,
    pub peer: Peer,
    pub round: usize,
    pub outcome: Option<LoadResult>,
    /// Why there is no outcome.
    pub fault: Option<String>,
}

/// The side of a number that passes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

/// The middle of the rounds and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[half],
            _ => f64::midpoint(values[half - 1], values[half]),
        };
        Some(Self { median, low, high })
    }
}

/// A figure beside its target.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    pub case: String,
    pub figure: Figure,
    pub value: Spread,
    pub target: Bound,
    pub pass: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    RedisCpuOverOurs,
    NatsCpuOverOurs,
    RateOverBetter,
    CpuPerMillion,
    CpuOverRedisPath,
    CpuOverWebSocket,
    SockudoCpuOverOurs,
    TwoShardsOverOne,
    KibPerConnection,
}

impl Figure {
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisCpuOverOurs => "redis cpu/M ÷ ours",
            Self::NatsCpuOverOurs => "nats cpu/M ÷ ours",
            Self::RateOverBetter => "rate ÷ better of both",
            Self::CpuPerMillion => "cpu/M",
            Self::CpuOverRedisPath => "cpu/M ÷ our Redis path",
            Self::CpuOverWebSocket => "cpu/M ÷ our WebSocket",
            Self::SockudoCpuOverOurs => "sockudo cpu/M ÷ ours",
            Self::TwoShardsOverOne => "rate of two shards ÷ one",
            Self::KibPerConnection => "KiB each",
        }
    }
}

/// Finds figures among the samples.
#[derive(Clone, Copy)]
pub struct Samples<'a>(pub &'a [Sample]);

pub fn cpu(outcome: &LoadResult) -> Option<f64> {
    outcome.server.as_ref().map(|server| server.cpu_per_million).filter(|value| *value > 0.0)
}

pub fn rate(outcome: &LoadResult) -> Option<f64> {
    Some(outcome.deliveries_per_s).filter(|value| *value > 0.0)
}

pub fn p99(outcome: &LoadResult) -> Option<f64> {
    Some(outcome.p99_us)
}

pub fn kib(outcome: &LoadResult) -> Option<f64> {
    outcome.bytes_per_connection.map(|bytes| bytes / 1024.0)
}

impl Samples<'_> {
    fn at(self, case: &str, peer: Peer, round: usize, figure: fn(&LoadResult) -> Option<f64>) -> Option<f64> {
        let fits = |one: &&Sample| one.case == case && one.peer == peer && one.round == round;
        figure(self.0.iter().find(fits)?.outcome.as_ref()?)
    }

    fn rounds(self) -> std::ops::Range<usize> {
        0..self.0.iter().map(|one| one.round + 1).max().unwrap_or(0)
    }

    /// One server's figure over the rounds.
    pub fn spread(self, case: &str, peer: Peer, figure: fn(&LoadResult) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds().filter_map(|round| self.at(case, peer, round, figure)).collect())
    }

    /// A quotient of two figures, round by round.
    fn ratio(
        self,
        above: (&str, Peer),
        below: (&str, Peer),
        figure: fn(&LoadResult) -> Option<f64>,
    ) -> Option<Spread> {
        let quotient = |round| {
            Some(self.at(above.0, above.1, round, figure)? / self.at(below.0, below.1, round, figure)?)
        };
        Spread::of(self.rounds().filter_map(quotient).collect())
    }

    /// Our rate over the better of the peers', round by round.
    fn rate_over_better(self, case: &str) -> Option<Spread> {
        let quotient = |round| {
            let best = [Peer::Redis, Peer::Nats]
                .into_iter()
                .filter_map(|peer| self.at(case, peer, round, rate))
                .max_by(f64::total_cmp)?;
            Some(self.at(case, Peer::Tavern, round, rate)? / best)
        };
        Spread::of(self.rounds().filter_map(quotient).collect())
    }
}

/// Every figure that has a target and could be measured.
pub fn checks(cases: &[Case], samples: Samples) -> Vec<Check> {
    let mut checks = Vec::new();
    for case in cases {
        for (figure, target) in targets(case) {
            let value = match figure {
                Figure::RedisCpuOverOurs => {
                    samples.ratio((&case.name, Peer::Redis), (&case.name, Peer::Tavern), cpu)
                }
                Figure::NatsCpuOverOurs => {
                    samples.ratio((&case.name, Peer::Nats), (&case.name, Peer::Tavern), cpu)
                }
                Figure::RateOverBetter => samples.rate_over_better(&case.name),
                Figure::CpuPerMillion => samples.spread(&case.name, Peer::Tavern, cpu),
                Figure::CpuOverRedisPath => {
                    let path = format!("redis-1x{}-256b-d16", case.subscribers);
                    samples.ratio((&case.name, Peer::Tavern), (&path, Peer::Tavern), cpu)
                }
                Figure::CpuOverWebSocket => {
                    let ours = case.name.replace("pusher-", "ws-");
                    samples.ratio((&case.name, Peer::Tavern), (&ours, Peer::Tavern), cpu)
                }
                Figure::SockudoCpuOverOurs => {
                    samples.ratio((&case.name, Peer::Sockudo), (&case.name, Peer::Tavern), cpu)
                }
                Figure::TwoShardsOverOne => {
                    samples.ratio((&case.name, Peer::TwoShards), (&case.name, Peer::OneShard), rate)
                }
                Figure::KibPerConnection => samples.spread(&case.name, Peer::Tavern, kib),
            };
            if let Some(value) = value {
                let pass = target.holds(value.median);
                checks.push(Check { case: case.name.clone(), figure, value, target, pass });
            }
        }
    }
    checks
}

/// The figures a workload must reach.
fn targets(case: &Case) -> Vec<(Figure, Bound)> {
    use Bound::{AtLeast, AtMost};
    match case.kind {
        Kind::Redis if case.peers.len() > 1 => {
            let many = case.publishers > 1;
            let cpu = match (case.depth, case.subscribers) {
                (1, _) => 0.95,
                (_, 1) => 1.1,
                (_, 1000) => 1.3,
                _ => 1.2,
            };
            let rate = if !many && case.subscribers >= 100 { 1.0 } else { 0.9 };
            vec![
                (Figure::RedisCpuOverOurs, AtLeast(cpu)),
                (Figure::NatsCpuOverOurs, AtLeast(if many { 1.4 } else { 1.5 })),
                (Figure::RateOverBetter, AtLeast(rate)),
            ]
        }
        Kind::WebSocket if case.rate.is_some() => vec![(Figure::CpuPerMillion, AtMost(6.8))],
        Kind::WebSocket => {
            let cpu = if case.subscribers <= 100 { 0.4 } else { 0.55 };
            vec![(Figure::CpuPerMillion, AtMost(cpu)), (Figure::CpuOverRedisPath, AtMost(1.5))]
        }
        Kind::Pusher => {
            vec![(Figure::CpuOverWebSocket, AtMost(1.2)), (Figure::SockudoCpuOverOurs, AtLeast(1.0))]
        }
        Kind::Shards => vec![(Figure::TwoShardsOverOne, AtLeast(1.4))],
        Kind::Idle if case.name == "idle-ws" => vec![(Figure::KibPerConnection, AtMost(2.5))],
        Kind::Parked => vec![(Figure::KibPerConnection, AtMost(13.0))],
        Kind::Poll => vec![(Figure::CpuPerMillion, AtMost(13.0))],
        Kind::Redis | Kind::Idle => Vec::new(),
    }
}

/// Descriptions of failed measurements and lost deliveries.
pub fn faults(samples: &[Sample]) -> Vec<String> {
    let mut faults = Vec::new();
    for sample in samples {
        let place = format!("{} on {}, round {}", sample.case, sample.peer.name(), sample.round + 1);
        if let Some(fault) = &sample.fault {
            faults.push(format!("{place}: {fault}"));
        }
        let Some(outcome) = &sample.outcome else { continue };
        for (count, what) in [
            (outcome.lost, "deliveries lost"),
            (outcome.misordered as i64, "reads out of order"),
            (outcome.short_replies as i64, "replies with wrong recipients"),
        ] {
            if count != 0 {
                faults.push(format!("{place}: {count} {what}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Extent, plan};
    use super::*;
    use crate::load::ServerUse;

    fn sample(case: &str, peer: Peer, round: usize, cpu_per_million: f64, rate: f64) -> Sample {
        let outcome = LoadResult {
            deliveries_per_s: rate,
            server: Some(ServerUse { cpu_per_million, ..ServerUse::default() }),
            ..LoadResult::default()
        };
        Sample { case: case.into(), peer, round, outcome: Some(outcome), fault: None }
    }

    fn check(samples: &[Sample], case: &str, figure: Figure) -> Option<Check> {
        checks(&plan(Extent::Full), Samples(samples))
            .into_iter()
            .find(|one| one.case == case && one.figure == figure)
    }

    #[test]
    fn the_median_of_the_rounds_counts() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 2.0]), Some(Spread { median: 2.0, low: 1.0, high: 3.0 }));
        assert_eq!(Spread::of(vec![4.0, 1.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let case = "redis-1x100-256b-d16";
        let samples = [
            sample(case, Peer::Tavern, 0, 1.0, 100.0),
            sample(case, Peer::Redis, 0, 1.5, 110.0),
            sample(case, Peer::Nats, 0, 3.0, 50.0),
            sample(case, Peer::Tavern, 1, 10.0, 100.0),
            sample(case, Peer::Redis, 1, 12.5, 80.0),
        ];
        let redis = check(&samples, case, Figure::RedisCpuOverOurs).unwrap();
        assert_eq!(redis.value, Spread { median: 1.375, low: 1.25, high: 1.5 });
        assert_eq!((redis.target, redis.pass), (Bound::AtLeast(1.2), true));
        let rate = check(&samples, case, Figure::RateOverBetter).unwrap();
        assert_eq!(rate.target, Bound::AtLeast(1.0));
        assert!((rate.value.low - 100.0 / 110.0).abs() < 1e-9);
        assert!(check(&samples, case, Figure::NatsCpuOverOurs).unwrap().pass);
    }

    #[test]
    fn each_workload_has_the_target_it_was_promised() {
        let target = |name: &str, figure: Figure| {
            let case = plan(Extent::Full).into_iter().find(|case| case.name == name).unwrap();
            targets(&case).into_iter().find(|one| one.0 == figure).map(|one| one.1)
        };
        use Bound::{AtLeast, AtMost};
        for (name, figure, bound) in [
            ("redis-1x1-16b-d16", Figure::RedisCpuOverOurs, AtLeast(1.1)),
            ("redis-1x1000-16b-d16", Figure::RedisCpuOverOurs, AtLeast(1.3)),
            ("redis-10x10-16b-d16", Figure::RedisCpuOverOurs, AtLeast(1.2)),
            ("redis-1x1000-16b-d1", Figure::RedisCpuOverOurs, AtLeast(0.95)),
            ("redis-10x10-16b-d1", Figure::NatsCpuOverOurs, AtLeast(1.4)),
            ("redis-1x10-16b-d1", Figure::NatsCpuOverOurs, AtLeast(1.5)),
            ("redis-10x10-256b-d16", Figure::RateOverBetter, AtLeast(0.9)),
            ("redis-1x1000-256b-d1", Figure::RateOverBetter, AtLeast(1.0)),
            ("ws-1x100", Figure::CpuPerMillion, AtMost(0.4)),
            ("ws-1x5000", Figure::CpuPerMillion, AtMost(0.55)),
            ("ws-1x5000", Figure::CpuOverRedisPath, AtMost(1.5)),
            ("ws-1x1000-paced", Figure::CpuPerMillion, AtMost(6.8)),
            ("poll-1x1000-paced", Figure::CpuPerMillion, AtMost(13.0)),
            ("pusher-1x1000", Figure::CpuOverWebSocket, AtMost(1.2)),
            ("pusher-1x1000-paced", Figure::CpuOverWebSocket, AtMost(1.2)),
            ("idle-ws", Figure::KibPerConnection, AtMost(2.5)),
            ("parked-polls", Figure::KibPerConnection, AtMost(13.0)),
            ("shards-ws-1x1000-d1", Figure::TwoShardsOverOne, AtLeast(1.4)),
        ] {
            assert_eq!(target(name, figure), Some(bound), "{name}");
        }
        assert_eq!(target("idle-redis", Figure::KibPerConnection), None);
    }

    #[test]
    fn the_redis_path_that_a_websocket_is_compared_with_exists() {
        let samples = [
            sample("ws-1x5000", Peer::Tavern, 0, 0.3, 1.0),
            sample("redis-1x5000-256b-d16", Peer::Tavern, 0, 0.2, 1.0),
        ];
        let check = check(&samples, "ws-1x5000", Figure::CpuOverRedisPath).unwrap();
        assert!((check.value.median - 1.5).abs() < 1e-9);
    }

    #[test]
    fn pusher_clients_are_compared_with_the_websocket_of_the_same_round() {
        let samples = [
            sample("ws-1x1000", Peer::Tavern, 0, 0.2, 1.0),
            sample("pusher-1x1000", Peer::Tavern, 0, 0.3, 1.0),
        ];
        let check = check(&samples, "pusher-1x1000", Figure::CpuOverWebSocket).unwrap();
        assert!((check.value.median - 1.5).abs() < 1e-9 && !check.pass);
    }

    #[test]
    fn lost_deliveries_are_named() {
        let mut one = sample("ws-1x100", Peer::Tavern, 1, 1.0, 1.0);
        one.outcome.as_mut().unwrap().lost = 3;
        let failed = Sample {
            outcome: None,
            fault: Some("closed".into()),
            ..sample("idle-ws", Peer::Tavern, 0, 1.0, 1.0)
        };
        assert_eq!(
            faults(&[one, failed]),
            ["ws-1x100 on tavern, round 2: 3 deliveries lost", "idle-ws on tavern, round 1: closed"]
        );
    }
}
