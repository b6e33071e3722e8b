//! An order that waits until every shard of every node has answered.

use crate::core::ReplyTo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_wire::bus::control::{ControlAction, ControlReply, ControlRequest, UserSession};
use tavern_wire::json::api::{ControlOutcome, UserSessionList, UserSessionReport, encode};

pub(super) struct AskedOrder {
    pub request: ControlRequest,
    /// None: no caller waits.
    pub claim: Option<ReplyTo>,
    pub until: Time,
    pub replies: CollectedReplies,
}

/// What was answered, and by whom.
pub(super) struct CollectedReplies {
    own: Arc<str>,
    nodes: BTreeMap<Arc<str>, NodeReplies>,
    count: u64,
    failed: u64,
    sessions: Vec<(Arc<str>, UserSession)>,
}

struct NodeReplies {
    shards: u32,
    replied: BTreeSet<u32>,
}

/// Sessions in one answer: more than a user may have, unless the limit was raised.
const SESSIONS_MAX: usize = 1_000;

impl CollectedReplies {
    pub fn new(own: Arc<str>, shards: usize) -> CollectedReplies {
        let here = NodeReplies { shards: shards as u32, replied: BTreeSet::new() };
        let nodes = BTreeMap::from([(own.clone(), here)]);
        CollectedReplies { own, nodes, count: 0, failed: 0, sessions: Vec::new() }
    }

    /// A reply that was received already counts once.
    pub fn add(&mut self, from: &Arc<str>, reply: ControlReply) {
        let node = self
            .nodes
            .entry(from.clone())
            .or_insert_with(|| NodeReplies { shards: reply.shards, replied: BTreeSet::new() });
        if !node.replied.insert(reply.shard) {
            return;
        }
        self.count += u64::from(reply.count);
        self.failed += u64::from(reply.failed);
        let room = SESSIONS_MAX.saturating_sub(self.sessions.len());
        self.sessions.extend(reply.sessions.into_iter().take(room).map(|session| (from.clone(), session)));
    }

    /// The nodes of which a shard has not replied.
    pub fn missing(&self, others: &[Arc<str>]) -> Vec<Arc<str>> {
        let complete = |name: &Arc<str>| {
            self.nodes.get(name).is_some_and(|node| node.replied.len() as u32 >= node.shards)
        };
        others.iter().chain([&self.own]).filter(|name| !complete(name)).cloned().collect()
    }

    /// The body of the answer to the app.
    pub fn body(mut self, action: &ControlAction, missing: &[Arc<str>]) -> Vec<u8> {
        let missing_nodes: Vec<&str> = missing.iter().map(|name| &**name).collect();
        if *action != ControlAction::Sessions {
            let failed = matches!(action, ControlAction::Subscribe(_)).then_some(self.failed);
            return encode(&ControlOutcome { failed, missing_nodes, sessions: self.count });
        }
        self.sessions.sort_by_key(|(_, session)| (session.since, session.client));
        let report = |(node, session): &(Arc<str>, UserSession)| UserSessionReport {
            channels: session.channels,
            client: session.client.to_string(),
            heard_at: session.heard_at.ms(),
            moving: session.moving,
            node: node.to_string(),
            since: session.since.ms(),
            transport: session.transport.as_ref().map(ToString::to_string),
        };
        encode(&UserSessionList { missing_nodes, sessions: self.sessions.iter().map(report).collect() })
    }
}
