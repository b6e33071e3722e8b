//! Nodes that ended without a clean stop and did not come back. The store forgets them as soon as their clients are taken
//! over; an operator must see them for longer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::Time;
use tavern_store::NodeRow;
use tavern_wire::json::api::LostNodeReport;

/// How long a lost node is shown.
const SHOWN_MS: u64 = 3_600_000;
/// Nodes that are remembered: above it the first names are left out.
const NODES_MAX: usize = 100;

#[derive(Default)]
pub struct LostNodes(Mutex<BTreeMap<Arc<str>, LostNode>>);

#[derive(Clone, Copy)]
struct LostNode {
    epoch: u64,
    at: Time,
}

impl LostNodes {
    /// Takes note of the nodes that the store knows now.
    pub fn note(&self, now: Time, nodes: &[NodeRow]) {
        let mut lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for node in nodes {
            let (name, epoch) = (&node.writer.node, node.writer.epoch.0);
            let ended = node.closed_at.or((now >= node.lease_until).then_some(node.lease_until));
            match ended.filter(|_| !node.clean) {
                Some(at) if lost.get(name).is_none_or(|known| known.epoch < epoch) => {
                    lost.insert(name.clone(), LostNode { epoch, at });
                }
                Some(_) => {}
                // It is back, or has been stopped since.
                None => lost.retain(|known, was| known != name || was.epoch > epoch),
            }
        }
        lost.retain(|_, node| now.since(node.at) < SHOWN_MS);
        while lost.len() > NODES_MAX {
            lost.pop_first();
        }
    }

    pub fn reports(&self) -> Vec<LostNodeReport> {
        let lost = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let report = |(name, node): (&Arc<str>, &LostNode)| LostNodeReport {
            node: name.clone(),
            epoch: node.epoch,
            at: node.at.ms(),
        };
        lost.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Epoch;
    use tavern_store::Writer;

    fn row(name: &str, epoch: u64, lease_until: u64, closed_at: Option<u64>, clean: bool) -> NodeRow {
        NodeRow {
            writer: Writer::new(name, Epoch(epoch)),
            opened_at: Time(0),
            lease_until: Time(lease_until),
            closed_at: closed_at.map(Time),
            clean,
        }
    }

    #[test]
    fn a_killed_node_is_shown_until_it_is_back_or_an_hour_has_passed() {
        let lost = LostNodes::default();
        let names = || lost.reports().iter().map(|node| node.node.to_string()).collect::<Vec<_>>();
        lost.note(Time(5), &[row("a", 1, 10, None, false), row("b", 2, 10, None, false)]);
        assert!(names().is_empty(), "their leases run");
        lost.note(Time(12), &[row("a", 1, 10, None, false), row("b", 2, 10, Some(9), true)]);
        assert_eq!(names(), ["a"], "b has stopped cleanly");
        lost.note(Time(20), &[row("a", 1, 10, Some(12), false)]);
        lost.note(Time(30), &[]);
        assert_eq!(names(), ["a"], "the store has forgotten it");
        lost.note(Time(40), &[row("a", 1, 10, Some(12), false), row("a", 3, 50, None, false)]);
        assert!(names().is_empty(), "it is back");
        lost.note(Time(60), &[row("a", 3, 50, None, false)]);
        assert_eq!(names(), ["a"], "and gone again");
        lost.note(Time(60 + SHOWN_MS), &[]);
        assert!(names().is_empty());
    }
}
