//! When the last fault ended. Invariants that hold only without faults are judged some time after it.

use crate::cluster::{Cluster, SimNode};
use tavern_domain::Time;

#[derive(Default)]
pub struct LastFault(Time);

impl LastFault {
    /// A fault that ends now.
    pub fn set(&mut self, now: Time) {
        self.0 = now;
    }

    /// Records the faults of this moment: failing requests, cut connections, sleeping nodes. Clean stops are not
    /// faults.
    pub fn note(&mut self, cluster: &Cluster) {
        let faults = cluster.faults.state();
        let asleep = cluster.nodes.iter().any(SimNode::is_asleep);
        if faults.level > 0 || !faults.cut.is_empty() || asleep {
            self.0 = cluster.now;
        }
    }

    pub fn at(&self) -> Time {
        self.0
    }

    /// How long ago the last fault ended.
    pub fn calm_ms(&self, cluster: &Cluster) -> u64 {
        cluster.now.since(self.0)
    }
}
