//! The rows of presence: one user in one channel, and the version of the channel. Their meaning is defined in
//! `tavern-domain`. Must hold: a presence is stored while the user is present or may come back; a channel has a row
//! exactly as long as it has presences.

use crate::node::Writer;
use crate::page::{Page, Versioned};
use std::fmt;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Attendance, NodeEpoch, Visibility};

/// One user in one channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PresenceKey {
    pub channel: Arc<str>,
    /// The user; for an anonymous user the client id.
    pub user: Arc<str>,
}

/// The presence of one user in one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct PresenceRow {
    pub key: PresenceKey,
    pub anonymous: bool,
    pub name: Option<Arc<str>>,
    /// Who sees the user in this channel.
    pub visibility: Visibility,
    pub attendance: Attendance,
}

/// Presence set by an app: the user counts as present until the app removes the hold or it expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceHold {
    pub key: PresenceKey,
    /// The user is present as long as they are in this other channel. `None`: without any client.
    pub held_with: Option<Arc<str>>,
    pub until: Option<Time>,
}

/// A hold that follows a presence which the commit changed: the user is held in `channel` while `held_with` lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPresence {
    pub held_with: PresenceKey,
    pub channel: Arc<str>,
}

/// A channel's version grows by the number of changes that its watchers see. Every commit that touches a presence names
/// its channel here, also when `by` is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelVersionBump {
    pub channel: Arc<str>,
    pub by: u32,
}

/// A page of the users in a channel, and the version it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct PresencePage {
    /// For an empty channel: at least any earlier version of it, and below every later one.
    pub version: u64,
    /// In the channel, not only in this page.
    pub users: u64,
    pub page: Page<Versioned<PresenceRow>>,
}

/// A presence that no node will end: its clients belong to epochs that the store does not know, or, if none is named,
/// its last deadline is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalePresence {
    pub key: PresenceKey,
    pub nodes: Vec<NodeEpoch>,
}

impl PresenceKey {
    /// The key of a user in a channel.
    pub fn new(channel: &str, user: &str) -> PresenceKey {
        PresenceKey { channel: channel.into(), user: user.into() }
    }
}

impl fmt::Display for PresenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both may contain anything: the length shows where the channel ends.
        write!(f, "{}:{}/{}", self.channel.len(), self.channel, self.user)
    }
}

impl PresenceRow {
    /// About how many bytes the row takes, for pages that are bounded by bytes.
    pub fn bytes(&self) -> usize {
        let state = |client: &tavern_domain::presence::ChannelClient| {
            client.state.as_ref().map_or(0, |state| state.text.len()) + client.node.node.len() + 64
        };
        let clients: usize = self.attendance.clients().iter().map(state).sum();
        self.key.channel.len()
            + self.key.user.len()
            + self.name.as_ref().map_or(0, |name| name.len())
            + clients
    }

    /// The unknown nodes of clients that joined by `before`; None: this presence is not stale.
    pub fn stale_nodes(&self, before: Time, is_known: impl Fn(&NodeEpoch) -> bool) -> Option<Vec<NodeEpoch>> {
        let mut nodes: Vec<NodeEpoch> = Vec::new();
        for client in self.attendance.connected().filter(|client| client.since <= before) {
            // A presence set by an app has no node.
            let known = client.node.node.is_empty() || is_known(&client.node);
            if !known && !nodes.contains(&client.node) {
                nodes.push(client.node.clone());
            }
        }
        let overdue = self.attendance.offline_at().is_some_and(|until| until <= before);
        (overdue || !nodes.is_empty()).then_some(nodes)
    }

    /// Whether one of the clients belongs to this epoch of a node.
    pub fn is_at(&self, writer: &Writer) -> bool {
        self.attendance.connected().any(|client| client.node == NodeEpoch::from(writer))
    }
}

impl From<&Writer> for NodeEpoch {
    fn from(writer: &Writer) -> NodeEpoch {
        NodeEpoch { node: writer.node.clone(), epoch: writer.epoch }
    }
}
