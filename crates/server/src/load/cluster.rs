//! Asks the other nodes for their load and keeps their last answers, so that a node that has died is still known.
//! Must hold: an ask ends when all have answered, at the latest after `ANSWER`; many readers share one ask; what is kept of
//! other nodes is bounded.

use super::history::{LoadHistory, STEPS};
use super::node_log::NodeLog;
use crate::clock::NodeClock;
use crate::health::{NodeHealth, is_bus_up};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tavern_domain::Time;
use tavern_hub::Node;
use tavern_hub::node::histogram::{Histogram, LatencyCounts};
use tavern_store::Clock;
use tavern_wire::bus::load::{
    LoadAnswer, LoadQuestion, LoadSeries, NodeLoad, NodeRun, encode_answer, encode_question,
};
use tokio::sync::Notify;

/// How long an ask waits for the slowest node.
const ANSWER: Duration = Duration::from_millis(1_000);
/// How old an ask may be to be shared.
const SHARED: Duration = Duration::from_millis(900);
/// How often the last hour and day of the others are asked for, in case they end.
const KEEP: Duration = Duration::from_secs(300);
/// How long a node that does not live any more is kept, and how many nodes in all.
const KEPT: Duration = Duration::from_secs(86_400);
const NODES_MAX: usize = 100;

pub struct ClusterLoad {
    pub history: LoadHistory,
    pub node_log: NodeLog,
    pub(super) node: Arc<Node>,
    health: Arc<NodeHealth>,
    clock: Arc<NodeClock>,
    started: Instant,
    numbers: AtomicU64,
    asks: Mutex<BTreeMap<u64, PendingAsk>>,
    probe: Mutex<Option<(u64, Instant)>>,
    bus: Histogram,
    known: Mutex<BTreeMap<Arc<str>, KnownLoad>>,
    /// When each step was asked for last; the first: without a series.
    shared: [tokio::sync::Mutex<Option<Instant>>; STEPS.len() + 1],
}

struct PendingAsk {
    missing: BTreeSet<Arc<str>>,
    done: Arc<Notify>,
}

/// The last answers of another node.
#[derive(Debug)]
pub struct KnownLoad {
    pub heard: Instant,
    pub load: NodeLoad,
    pub series: [LoadSeries; STEPS.len()],
    pub runs: Vec<NodeRun>,
}

impl KnownLoad {
    /// A node that does not live any more is shown for so long.
    pub fn is_kept(&self) -> bool {
        self.heard.elapsed() < KEPT
    }
}

impl ClusterLoad {
    pub fn new(
        node: Arc<Node>,
        health: Arc<NodeHealth>,
        clock: Arc<NodeClock>,
        started: Instant,
    ) -> Arc<ClusterLoad> {
        Arc::new(ClusterLoad {
            history: LoadHistory::default(),
            node_log: NodeLog::default(),
            // Numbers of a process that ran before must not be taken for these.
            numbers: AtomicU64::new(clock.now().ms() << 20),
            node,
            health,
            clock,
            started,
            asks: Mutex::default(),
            probe: Mutex::default(),
            bus: Histogram::default(),
            known: Mutex::default(),
            shared: Default::default(),
        })
    }

    /// Keeps what the others know, until the server stops: all of it as soon as there are others, then their last
    /// hour and day.
    pub async fn keep(self: Arc<ClusterLoad>) {
        while self.node.other_nodes().is_empty() {
            tokio::time::sleep(ANSWER).await;
        }
        for (step_ms, _) in STEPS {
            self.ask(step_ms).await;
        }
        loop {
            tokio::time::sleep(KEEP).await;
            for (step_ms, _) in &STEPS[1..] {
                self.ask(*step_ms).await;
            }
        }
    }

    /// Asks all nodes that live for their figures, and for their series of a step; 0: for no series.
    pub async fn ask(&self, step_ms: u64) {
        let at = STEPS.iter().position(|(known, _)| *known == step_ms).map_or(0, |at| at + 1);
        let mut asked = self.shared[at].lock().await;
        if asked.is_some_and(|at| at.elapsed() < SHARED) {
            return;
        }
        *asked = Some(Instant::now());
        let missing: BTreeSet<Arc<str>> = self.node.other_nodes().iter().cloned().collect();
        if missing.is_empty() {
            return;
        }
        let (number, done) = (self.numbers.fetch_add(1, Ordering::Relaxed), Arc::new(Notify::new()));
        lock(&self.asks).insert(number, PendingAsk { missing, done: done.clone() });
        let pending = PendingEnd { asks: &self.asks, number };
        self.node.send_load(None, encode_question(LoadQuestion { number, step_ms }));
        let _ = tokio::time::timeout(ANSWER, done.notified()).await;
        drop(pending);
    }

    /// Asks one of the other nodes, each in its turn, and measures the time until its answer.
    pub fn probe(&self, turn: usize) {
        let others = self.node.other_nodes();
        let Some(node) = others.get(turn % others.len().max(1)) else { return };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        *lock(&self.probe) = Some((number, Instant::now()));
        self.node.send_load(Some(node), encode_question(LoadQuestion { number, step_ms: 0 }));
    }

    pub fn bus_latencies(&self) -> LatencyCounts {
        let mut counts = LatencyCounts::default();
        self.bus.add_to(&mut counts);
        counts
    }

    /// Another node asks.
    pub fn asked(&self, from: &str, question: LoadQuestion) {
        let LoadQuestion { number, step_ms } = question;
        let series = self.history.series(step_ms).unwrap_or_default();
        // Only who wants a series shows nodes: a probe stays small.
        let runs = if step_ms == 0 { Vec::new() } else { self.node_log.runs() };
        let answer = LoadAnswer { number, load: self.here(), series, runs };
        self.node.send_load(Some(from), encode_answer(&answer));
    }

    /// Another node answers.
    pub fn answered(&self, from: Arc<str>, answer: LoadAnswer) {
        let LoadAnswer { number, load, series, runs } = answer;
        let probe = lock(&self.probe).take_if(|(probe, _)| *probe == number);
        if let Some((_, at)) = probe {
            self.bus.observe_shared(at.elapsed().as_micros() as u64);
        }
        self.history.fill(&series);
        self.learn(from.clone(), load, series, runs);
        if let Some(ask) = lock(&self.asks).get_mut(&number) {
            ask.missing.remove(&from);
            if ask.missing.is_empty() {
                ask.done.notify_one();
            }
        }
    }

    fn learn(&self, from: Arc<str>, load: NodeLoad, series: LoadSeries, runs: Vec<NodeRun>) {
        let mut known = lock(&self.known);
        let heard = Instant::now();
        let living = self.node.other_nodes();
        known.retain(|node, known| living.contains(node) || known.is_kept());
        if known.len() >= NODES_MAX && !known.contains_key(&from) {
            let silent =
                known.iter().filter(|(node, _)| !living.contains(node)).min_by_key(|(_, known)| known.heard);
            let Some(silent) = silent.map(|(node, _)| node.clone()) else { return };
            known.remove(&silent);
        }
        let entry = known.entry(from).or_insert_with(|| KnownLoad {
            heard,
            load: NodeLoad::default(),
            series: Default::default(),
            runs: Vec::new(),
        });
        (entry.heard, entry.load) = (heard, load);
        if let Some(at) = STEPS.iter().position(|(step_ms, _)| *step_ms == series.step_ms) {
            entry.runs = runs;
            entry.series[at] = continued(std::mem::take(&mut entry.series[at]), series);
        }
    }

    /// The last answers of the others.
    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, KnownLoad>> {
        lock(&self.known)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// What this node says of itself.
    pub(super) fn here(&self) -> NodeLoad {
        NodeLoad {
            version: env!("CARGO_PKG_VERSION").into(),
            epoch: self.node.epoch().0,
            shards: self.node.settings.shards as u32,
            uptime_ms: self.started.elapsed().as_millis() as u64,
            stopping: self.health.is_stopping(),
            store_up: self.health.is_store_up(),
            bus_up: is_bus_up(&self.node),
            figures: self.history.figures(),
        }
    }
}

/// Forgets an ask, also when nobody waits for it any more.
struct PendingEnd<'a> {
    asks: &'a Mutex<BTreeMap<u64, PendingAsk>>,
    number: u64,
}

impl Drop for PendingEnd<'_> {
    fn drop(&mut self) {
        lock(self.asks).remove(&self.number);
    }
}

/// The later answer, with what only the earlier one knows: the node may have started again in between.
fn continued(before: LoadSeries, mut after: LoadSeries) -> LoadSeries {
    let count = after.lines.values().map(Vec::len).max().unwrap_or(0);
    let Some(shift) = after.end.checked_sub(before.end).filter(|_| before.step_ms == after.step_ms) else {
        return after;
    };
    for (name, old) in before.lines {
        let line = after.lines.entry(name).or_insert_with(|| vec![f32::NAN; count]);
        for (back, point) in line.iter_mut().rev().enumerate().filter(|(_, point)| point.is_nan()) {
            let at =
                (back as u64).checked_sub(shift).and_then(|back| old.len().checked_sub(back as usize + 1));
            *point = at.map_or(f32::NAN, |at| old[at]);
        }
    }
    after
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_said_before_it_started_again_is_kept() {
        let series = |end, points: &[f32]| LoadSeries {
            step_ms: 2_000,
            end,
            lines: [("x".into(), points.to_vec())].into(),
        };
        let unknown = f32::NAN;
        let points = |series: LoadSeries| -> Vec<Option<f32>> {
            series.lines["x"].iter().map(|point| (!point.is_nan()).then_some(*point)).collect()
        };
        let kept =
            continued(series(10, &[1.0, 2.0, 3.0, 4.0]), series(12, &[unknown, unknown, unknown, 9.0]));
        assert_eq!(points(kept), [Some(3.0), Some(4.0), None, Some(9.0)]);
        let gone = continued(series(10, &[1.0, 2.0, 3.0, 4.0]), series(99, &[unknown, 8.0]));
        assert_eq!(points(gone), [None, Some(8.0)]);
        let none = LoadSeries { step_ms: 2_000, end: 11, lines: BTreeMap::new() };
        assert!(continued(series(10, &[1.0]), none).lines["x"].is_empty());
    }
}
