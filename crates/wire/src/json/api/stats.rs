//! How many users, sessions and connections there are, on one node and in the cluster.

use crate::bus::control::NodeCounts;
use serde::Serialize;

/// `GET /v1/stats`.
#[derive(Debug, Serialize)]
pub struct StatsReport<'a> {
    pub cluster: ClusterStats,
    pub node: NodeStats<'a>,
}

/// All living nodes together.
#[derive(Debug, Serialize)]
pub struct ClusterStats {
    pub channels: u64,
    pub connections: TransportCounts,
    pub nodes: usize,
    pub parties: u64,
    pub presences: u64,
    pub sessions: u64,
    pub users_online: u64,
}

/// The node that answers.
#[derive(Debug, Serialize)]
pub struct NodeStats<'a> {
    pub channels: u64,
    pub connections: TransportCounts,
    pub node: &'a str,
    pub sessions: u64,
    pub users: u64,
}

#[derive(Debug, Serialize)]
pub struct TransportCounts {
    pub poll: u64,
    pub redis: u64,
    pub sse: u64,
    pub websocket: u64,
}

impl From<&NodeCounts> for TransportCounts {
    fn from(counts: &NodeCounts) -> TransportCounts {
        let NodeCounts { websocket, sse, poll, redis, .. } = *counts;
        TransportCounts { poll, redis, sse, websocket }
    }
}
