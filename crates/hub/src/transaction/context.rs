//! What a decision is made with, besides its command and the stored rows: time, settings, and what this shard knows of its
//! own sessions. Taken anew for each step; a decision cannot change it.

use crate::core::listener::{ListenerId, Listeners};
use crate::core::row_cache::RowCache;
use crate::core::session::Session;
use crate::core::{Core, Users};
use crate::node::PresenceObserver;
use crate::settings::Settings;
use tavern_domain::Time;
use tavern_domain::presence::NodeEpoch;
use tavern_store::{Commit, Writer};

pub(crate) struct DecisionContext<'a> {
    pub now: Time,
    pub settings: &'a Settings,
    /// Read once: the node may begin a new epoch at any moment, and a client and the writer of its row must have the same.
    pub node: NodeEpoch,
    pub users: &'a Users,
    pub cache: &'a RowCache,
    /// Whether the topics about presence and about parties have a subscription.
    pub publishes_presence: bool,
    pub publishes_parties: bool,
    pub observer: Option<&'a dyn PresenceObserver>,
    listeners: &'a Listeners,
}

impl DecisionContext<'_> {
    pub(super) fn of(core: &Core) -> DecisionContext<'_> {
        DecisionContext {
            now: core.now,
            settings: &core.node.settings,
            node: core.node.node_epoch(),
            users: &core.users,
            cache: &core.cache,
            publishes_presence: core.node.publishes_presence(),
            publishes_parties: core.node.publishes_parties(),
            observer: core.node.presence_observer(),
            listeners: &core.listeners,
        }
    }

    pub fn session(&self, id: ListenerId) -> Option<&Session> {
        self.listeners.get(id)?.session()
    }

    /// An empty commit of this node.
    pub fn commit(&self) -> Commit {
        let NodeEpoch { node, epoch } = self.node.clone();
        Commit { writer: Some(Writer { node, epoch }), ..Commit::default() }
    }
}
