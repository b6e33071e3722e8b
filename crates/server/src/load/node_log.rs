//! Which nodes started and ended in the last day. The store forgets a node as soon as its clients are taken over; an operator
//! must see it for longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::Time;
use tavern_store::NodeRow;
use tavern_wire::bus::load::NodeRun;

/// How long a node that has ended is shown.
const SHOWN_MS: u64 = 86_400_000;
/// Above this many the first that ended are left out.
const RUNS_MAX: usize = 200;

type RunKey = (Arc<str>, u64);

#[derive(Default)]
pub struct NodeLog(Mutex<BTreeMap<RunKey, KnownRun>>);

#[derive(Clone, Debug)]
struct KnownRun {
    run: NodeRun,
    lease_until: Time,
}

impl NodeLog {
    /// Takes note of the nodes that the store knows now.
    pub fn note(&self, now: Time, nodes: &[NodeRow]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            let died = (now >= node.lease_until).then_some(node.lease_until);
            let run = NodeRun {
                node: node.writer.node.clone(),
                epoch: node.writer.epoch.0,
                started_at: node.opened_at.ms(),
                ended_at: node.closed_at.or(died).map(Time::ms),
                clean: node.clean,
            };
            known.insert(key(&run), KnownRun { run, lease_until: node.lease_until });
        }
        let is_stored = |run: &NodeRun| {
            nodes.iter().any(|node| node.writer.epoch.0 == run.epoch && node.writer.node == run.node)
        };
        for KnownRun { run, lease_until } in known.values_mut() {
            if run.ended_at.is_none() && !is_stored(run) {
                // The store has forgotten it between two looks. Only a clean stop ends a node before its lease.
                run.clean = now < *lease_until;
                run.ended_at = Some(now.min(*lease_until).ms());
            }
        }
        known.retain(|_, KnownRun { run, .. }| run.ended_at.is_none_or(|at| now.since(Time(at)) < SHOWN_MS));
        while known.len() > RUNS_MAX {
            let first = known.iter().min_by_key(|(_, known)| known.run.ended_at.unwrap_or(u64::MAX));
            let Some(first) = first.map(|(key, _)| key.clone()) else { break };
            known.remove(&first);
        }
    }

    /// The last that started first.
    pub fn runs(&self) -> Vec<NodeRun> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        merged(known.values().map(|known| known.run.clone()))
    }
}

fn key(run: &NodeRun) -> RunKey {
    (run.node.clone(), run.epoch)
}

/// What several nodes know, each lifetime once: one that has ended stays ended.
pub fn merged(runs: impl IntoIterator<Item = NodeRun>) -> Vec<NodeRun> {
    let mut merged: BTreeMap<RunKey, NodeRun> = BTreeMap::new();
    for run in runs {
        let known = merged.entry(key(&run)).or_insert_with(|| run.clone());
        // A stop that one node saw as clean was clean.
        if known.ended_at.is_none() || (run.ended_at.is_some() && run.clean) {
            *known = run;
        }
    }
    let mut all: Vec<NodeRun> = merged.into_values().collect();
    all.sort_by(|one, other| other.started_at.cmp(&one.started_at).then(one.node.cmp(&other.node)));
    all.truncate(RUNS_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::Writer;

    fn row(name: &str, epoch: u64, lease_until: u64, closed_at: Option<u64>, clean: bool) -> NodeRow {
        NodeRow {
            writer: Writer::new(name, Epoch(epoch)),
            opened_at: Time(epoch),
            lease_until: Time(lease_until),
            closed_at: closed_at.map(Time),
            clean,
        }
    }

    /// `a1` runs, `a1.` has stopped, `a1!` has died.
    fn shown(log: &NodeLog) -> String {
        let end = |run: &NodeRun| match (run.ended_at, run.clean) {
            (None, _) => "",
            (Some(_), true) => ".",
            (Some(_), false) => "!",
        };
        let runs = log.runs();
        runs.iter().map(|run| format!("{}{}{}", run.node, run.epoch, end(run))).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn starts_stops_and_deaths_are_remembered_for_a_day() {
        let log = NodeLog::default();
        log.note(Time(5), &[row("a", 1, 10, None, false), row("b", 2, 10, None, false)]);
        assert_eq!(shown(&log), "b2 a1", "their leases run");
        log.note(Time(12), &[row("a", 1, 10, None, false), row("b", 2, 10, Some(9), true)]);
        assert_eq!(shown(&log), "b2. a1!");
        log.note(Time(30), &[]);
        assert_eq!(shown(&log), "b2. a1!", "the store has forgotten them");
        log.note(Time(40), &[row("a", 3, 50, None, false)]);
        assert_eq!(shown(&log), "a3 b2. a1!", "it is back");
        log.note(Time(11 + SHOWN_MS), &[row("a", 3, SHOWN_MS * 2, None, false)]);
        assert_eq!(shown(&log), "a3");
    }

    #[test]
    fn a_node_that_the_store_forgot_between_two_looks_has_ended() {
        let log = NodeLog::default();
        log.note(Time(5), &[row("a", 1, 10, None, false), row("b", 2, 99, None, false)]);
        log.note(Time(20), &[]);
        assert_eq!(shown(&log), "b2. a1!", "only a clean stop comes before the end of the lease");
    }

    #[test]
    fn a_node_that_lives_again_has_not_ended() {
        let log = NodeLog::default();
        log.note(Time(12), &[row("a", 1, 10, None, false)]);
        log.note(Time(13), &[row("a", 1, 20, None, false)]);
        assert_eq!(shown(&log), "a1", "its lease was renewed late, and nobody has closed its epoch");
    }

    #[test]
    fn what_two_nodes_know_is_shown_once() {
        let run = |ended_at, clean| NodeRun { node: "a".into(), epoch: 1, started_at: 1, ended_at, clean };
        assert_eq!(merged([run(None, false), run(Some(9), true), run(None, false)]), [run(Some(9), true)]);
        assert_eq!(merged([run(Some(10), false), run(Some(9), true)]), [run(Some(9), true)]);
    }

    #[test]
    fn the_number_of_lifetimes_is_bounded() {
        let log = NodeLog::default();
        let many: Vec<NodeRow> = (1..1_000).map(|epoch| row("a", epoch, 10, Some(epoch), false)).collect();
        log.note(Time(20), &many);
        assert_eq!((log.runs().len(), log.runs()[0].epoch), (RUNS_MAX, 999));
    }
}
