//! Presence on one shard: who is in which channel, and who watches it. A command or an event of a session becomes a
//! `PresenceChange`, which the store commits (`changes.rs`); committed changes are sent to watchers (`rooms.rs`). The
//! rules are in `tavern-domain`. Must hold: one command, at most one commit; nothing is sent before it is committed.

mod audience;
mod change;
mod changes;
mod command;
mod decision;
mod hold;
mod queue;
mod rooms;
mod session;
mod sweep;
mod topic;

pub(crate) use hold::held_committed;
pub use rooms::members_of;

use crate::core::listener::ListenerId;
use crate::core::{Core, ReplyTo, WatchedVersions};
use crate::node::ChannelUpdate;
use crate::rows::{StaleUser, own_key};
use change::{PresenceAction, PresenceChange};
use changes::PresenceChanges;
use rooms::Rooms;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::ClientId;
use tavern_domain::presence::{AttendanceInput, ClientState, OfflineReason};
use tavern_store::{PresenceHold, PresenceKey, StoreAnswer, Ticket};
use tavern_wire::json::presence::state_digest;

pub(crate) struct Presence {
    changes: PresenceChanges,
    /// Channels whose presence is watched from this shard.
    rooms: Rooms,
    /// Joins that wait until the visibility of their user is known.
    waiting_joins: BTreeMap<Arc<str>, Vec<WaitingJoin>>,
}

/// A node in a channel: its client ends with the node, after the grace period of the channel.
#[derive(Clone, Debug)]
pub struct NodeAttendance {
    pub key: PresenceKey,
    pub client: ClientId,
    pub is_here: bool,
    /// JSON.
    pub state: Option<Arc<str>>,
}

/// A join that waits until the visibility of its user is known.
struct WaitingJoin {
    listener: ListenerId,
    channel: Arc<str>,
    state: Option<ClientState>,
    claim: Option<ReplyTo>,
}

impl Presence {
    pub fn new() -> Presence {
        Presence { changes: PresenceChanges::new(), rooms: Rooms::new(), waiting_joins: BTreeMap::new() }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        match self.changes.owns(ticket) {
            true => self.changes.answered(core, ticket, answer),
            false => self.rooms.answered(core, ticket, answer),
        }
    }

    /// Retries changes that the store did not accept.
    pub fn retry(&mut self, core: &mut Core) {
        self.changes.retry(core);
    }

    /// This node is present in a channel as a client without a session, or leaves it.
    pub fn attend(&mut self, core: &mut Core, attend: NodeAttendance, claim: ReplyTo) {
        let NodeAttendance { key, client, is_here, state } = attend;
        let state = state.map(|text| ClientState { digest: state_digest(&text), text });
        let input = match is_here {
            true => AttendanceInput::Join { client, node: core.node.node_epoch(), state },
            false => AttendanceInput::Leave { client, reason: OfflineReason::Left },
        };
        let change = PresenceChange::of(key, PresenceAction::Input(input));
        self.changes.begin(core, PresenceChange { claim: Some(claim), reads_first: true, ..change });
    }

    /// An app puts a user into a channel.
    pub fn hold(&mut self, core: &mut Core, hold: PresenceHold, claim: ReplyTo) {
        self.changes.hold(core, hold, claim);
    }

    /// Removes presences of a user without a live node.
    pub fn sweep_user(&mut self, core: &mut Core, stale: StaleUser) {
        self.changes.sweep(core, stale);
    }

    /// A change of a watched channel, from this shard, another one, or another node.
    pub fn apply_update(&mut self, core: &mut Core, channel_update: &ChannelUpdate) {
        self.rooms.apply_update(core, channel_update);
    }

    /// Whether the presence of a session in its user's own channel is not committed yet.
    pub fn is_announcing(&self, core: &Core, id: ListenerId) -> bool {
        let Some(user) = core.user_of(id) else { return false };
        self.waiting_joins.contains_key(&user) || self.changes.is_under_way(&own_key(&user))
    }

    /// The watched channels, for timers and notices about them.
    pub fn rooms(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    /// The last session of a user here has ended: nothing waits for their visibility any more.
    pub fn user_left(&mut self, user: &str) {
        self.waiting_joins.remove(user);
    }
}

impl WatchedVersions for Presence {
    fn known_version(&self, channel: &str) -> Option<u64> {
        self.rooms.known_version(channel)
    }

    fn base(&self, channel: &str) -> Option<u64> {
        self.rooms.base(channel)
    }

    fn is_busy(&self, id: ListenerId) -> bool {
        self.changes.is_busy(id)
    }
}
