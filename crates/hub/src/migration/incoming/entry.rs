//! One session that is migrating to this node.

use super::asking::OwnerSearch;
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::event::Namespace;
use crate::migration::packed::PackedSession;
use crate::migration::protocol::{MoveId, RETRY_MS};
use crate::node::PendingPublishes;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_wire::bus::migration::{MigrationAction, MovedSubscription, SessionClaim};

/// How long the other nodes have to reply that they have a session.
pub(super) const ASK_MS: u64 = 1_000;
/// How long a session may take to arrive after it was found.
pub(super) const MOVE_MS: u64 = 5_000;

pub(super) struct IncomingMove {
    pub id: MoveId,
    pub claim: SessionClaim,
    pub detached_only: bool,
    /// A stopping node has offered the session, perhaps after a client here had asked for it.
    pub is_offered: bool,
    pub stage: IncomingStage,
    /// The node that has the session.
    pub owner: Arc<str>,
    /// The subscriptions of the session.
    pub names: Vec<MovedSubscription>,
    /// The link id under which this move waits for the bus.
    pub wait: LinkId,
    /// Collects events for the session before it arrives.
    pub listener: Option<ListenerId>,
    /// The publishes in progress on other shards of this node when the listener was subscribed: the owner must receive
    /// them before it stores the session.
    pub unpublished: PendingPublishes,
    /// For each watched channel, the version after which this node sends changes; `None` while it is loaded.
    pub bases: BTreeMap<Arc<str>, Option<u64>>,
    /// The node that the session secret names.
    pub named: Arc<str>,
    pub search: OwnerSearch,
    /// Connections that wait for the session.
    pub links: Vec<LinkId>,
    pub began: Time,
    pub due: Time,
    /// When the lookup ends the move if no node has answered.
    pub ask_until: Time,
    /// Doubles with every retry.
    pub retry_ms: u64,
}

pub(super) enum IncomingStage {
    /// The node that has the session is looked for.
    Asking,
    /// The bus subscriptions of the session are being made.
    Subscribing,
    /// Events are collected here; the watched channels are loaded.
    Loading,
    /// The owner is asked to put the session into the store.
    Requesting,
    Fetching {
        client: ClientId,
        version: u64,
    },
    Taking(Box<PackedSession>),
}

impl IncomingMove {
    pub fn new(id: MoveId, stage: IncomingStage, owner: Arc<str>, wait: LinkId, now: Time) -> IncomingMove {
        IncomingMove {
            id,
            claim: SessionClaim::Secret,
            detached_only: false,
            is_offered: false,
            stage,
            owner,
            names: Vec::new(),
            wait,
            listener: None,
            unpublished: PendingPublishes::new(),
            bases: BTreeMap::new(),
            named: "".into(),
            search: OwnerSearch::default(),
            links: Vec::new(),
            began: now,
            due: now + RETRY_MS,
            ask_until: now + ASK_MS,
            retry_ms: RETRY_MS,
        }
    }

    /// The owner is known.
    pub fn is_under_way(&self) -> bool {
        !matches!(self.stage, IncomingStage::Asking)
    }

    /// The store is deciding whether this node gets the session.
    pub fn is_being_taken(&self) -> bool {
        matches!(self.stage, IncomingStage::Fetching { .. } | IncomingStage::Taking(_))
    }

    pub fn is_from(&self, node: &Arc<str>, id: MoveId) -> bool {
        self.owner == *node && self.id.number == id.number
    }

    /// Sets the time of the next retry, at most the end of the move.
    pub fn back_off(&mut self, now: Time) {
        let end = if self.is_under_way() { self.began + MOVE_MS } else { self.ask_until };
        self.due = (now + self.retry_ms).min(end.max(now + RETRY_MS));
        self.retry_ms *= 2;
    }

    pub fn add_link(&mut self, link: LinkId) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }

    pub fn question(&self) -> MigrationAction {
        MigrationAction::Ask { claim: self.claim.clone(), gentle: self.detached_only }
    }

    /// The routing table entries of the subscriptions.
    pub fn entries(&self) -> impl Iterator<Item = (Namespace, &[u8])> {
        self.names.iter().flat_map(|known| {
            let space = if known.pattern { Namespace::Pattern } else { Namespace::Channel };
            let watched = known.presence.then_some((Namespace::Presence, known.name.as_bytes()));
            [(space, known.name.as_bytes())].into_iter().chain(watched)
        })
    }

    pub fn owned_entries(&self) -> Vec<(Namespace, Arc<[u8]>)> {
        self.entries().map(|(space, name)| (space, name.into())).collect()
    }
}
