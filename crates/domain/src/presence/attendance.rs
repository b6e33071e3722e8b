//! One user in one channel: which clients are present, and until when lost ones may reconnect. Inputs in, changes
//! out, in the order in which watchers see them.
//! Must hold: `UserOnline` and `UserOffline` alternate; a user goes offline at the latest deadline of the clients lost since
//! the last arrival, and at once if there is none; `ClientOffline` comes before the `UserOffline` it causes; an input that
//! changes nothing gives no change.

use super::visibility::Visibility;
use crate::id::{ClientId, Epoch};
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The state of a client: JSON, and a digest that is equal for equal values, independent of their formatting.
#[derive(Clone, Debug)]
pub struct ClientState {
    pub text: Arc<str>,
    pub digest: u64,
}

impl PartialEq for ClientState {
    fn eq(&self, other: &ClientState) -> bool {
        self.digest == other.digest
    }
}

/// The node that a client is connected to, and its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEpoch {
    pub node: Arc<str>,
    pub epoch: Epoch,
}

/// Why a client or user went offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfflineReason {
    Left,
    Bye,
    Lost,
    NodeDown,
    Removed,
    Expired,
}

impl OfflineReason {
    pub fn as_str(self) -> &'static str {
        match self {
            OfflineReason::Left => "left",
            OfflineReason::Bye => "bye",
            OfflineReason::Lost => "lost",
            OfflineReason::NodeDown => "node_down",
            OfflineReason::Removed => "removed",
            OfflineReason::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<OfflineReason> {
        let all = [
            OfflineReason::Left,
            OfflineReason::Bye,
            OfflineReason::Lost,
            OfflineReason::NodeDown,
            OfflineReason::Removed,
            OfflineReason::Expired,
        ];
        all.into_iter().find(|departure| departure.as_str() == text)
    }

    /// It was requested, so there is no grace period.
    pub fn is_explicit(self) -> bool {
        !matches!(self, OfflineReason::Lost | OfflineReason::NodeDown)
    }
}

/// A client that is present, or that was lost and is within its grace period.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelClient {
    pub client: ClientId,
    pub node: NodeEpoch,
    pub state: Option<ClientState>,
    pub since: Time,
    pub lost: Option<LostClient>,
}

/// When a client was lost, and when its grace period ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostClient {
    pub at: Time,
    pub until: Time,
}

/// The last departure: why, and when one of the departed clients was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDeparture {
    pub reason: OfflineReason,
    pub seen: Time,
}

/// How clients are lost: when, and for how long they may reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLoss {
    pub at: Time,
    pub grace_ms: u64,
    pub reason: OfflineReason,
}

#[derive(Clone, Debug)]
pub enum AttendanceInput {
    /// A client joins. Without a state the earlier one is kept.
    Join {
        client: ClientId,
        node: NodeEpoch,
        state: Option<ClientState>,
    },
    Update {
        client: ClientId,
        state: ClientState,
    },
    /// A client leaves explicitly.
    Leave {
        client: ClientId,
        reason: OfflineReason,
    },
    /// An app removes the user with all their clients.
    Remove {
        reason: OfflineReason,
    },
    /// A client did not resume in time.
    Lose {
        client: ClientId,
        loss: ClientLoss,
    },
    /// The same, only if the client is still connected to this node.
    LoseAt {
        client: ClientId,
        node: Arc<str>,
        loss: ClientLoss,
    },
    /// All clients of one epoch of a node are lost, which was last known to live at `seen`.
    LoseNode {
        node: NodeEpoch,
        loss: ClientLoss,
        seen: Time,
    },
    /// These node epochs are unknown: their clients leave without a grace period.
    Sweep {
        nodes: Vec<NodeEpoch>,
    },
}

/// What watchers see.
#[derive(Clone, Debug, PartialEq)]
pub enum AttendanceChange {
    UserOnline,
    ClientOnline {
        client: ClientId,
        state: Option<ClientState>,
    },
    ClientUpdated {
        client: ClientId,
        state: ClientState,
    },
    ClientOffline {
        client: ClientId,
        reason: OfflineReason,
    },
    UserOffline {
        last_seen: Time,
        reason: OfflineReason,
    },
    /// The user's visibility changed.
    VisibilityChanged {
        from: Visibility,
        to: Visibility,
    },
    /// The reply to an update of a client that is not present. Watchers do not see it.
    NotFound,
}

/// One user in one channel. The default is an absent user, for whom nothing is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attendance {
    /// Sorted by id. Lost ones are dropped when any client arrives.
    clients: Vec<ChannelClient>,
    /// Since when the user is present; meaningless while they are not.
    since: Time,
    departed: Option<LastDeparture>,
}

impl Attendance {
    /// From storage. The clients may be in any order.
    pub fn restore(
        mut clients: Vec<ChannelClient>,
        since: Time,
        departed: Option<LastDeparture>,
    ) -> Attendance {
        clients.sort_by_key(|attendee| attendee.client);
        Attendance { clients, since, departed }
    }

    pub fn handle(&mut self, now: Time, input: AttendanceInput, changes: &mut Vec<AttendanceChange>) {
        match input {
            AttendanceInput::Join { client, node: home, state } => {
                self.join(now, client, home, state, changes)
            }
            AttendanceInput::Update { client, state } => self.update(client, state, changes),
            AttendanceInput::Leave { client, reason } => {
                assert!(reason.is_explicit(), "a lost client does not leave explicitly");
                if let Some(at) = self.find_living(client) {
                    self.clients.remove(at);
                    self.depart(client, LastDeparture { reason, seen: now }, changes);
                }
            }
            AttendanceInput::Remove { reason } => {
                assert!(reason.is_explicit(), "a lost client does not leave explicitly");
                // Without a grace period.
                for attendee in core::mem::take(&mut self.clients).iter().filter(|one| one.lost.is_none()) {
                    self.depart(attendee.client, LastDeparture { reason, seen: now }, changes);
                }
                if let Some(departed) = &mut self.departed {
                    departed.reason = reason;
                }
            }
            AttendanceInput::Lose { client, loss } => {
                if let Some(at) = self.find_living(client) {
                    self.lose(now, at, loss, loss.at, changes);
                }
            }
            AttendanceInput::LoseAt { client, node, loss } => {
                let stays = |at: &usize| self.clients[*at].node.node == node;
                if let Some(at) = self.find_living(client).filter(stays) {
                    self.lose(now, at, loss, loss.at, changes);
                }
            }
            AttendanceInput::LoseNode { node: home, loss, seen } => {
                let of_node = |attendee: &ChannelClient| attendee.lost.is_none() && attendee.node == home;
                while let Some(at) = self.clients.iter().position(of_node) {
                    self.lose(now, at, loss, seen, changes);
                }
            }
            AttendanceInput::Sweep { nodes } => self.sweep(now, &nodes, changes),
        }
        self.settle(now, changes);
    }

    /// Applies deadlines that have passed.
    pub fn wake(&mut self, now: Time, changes: &mut Vec<AttendanceChange>) {
        self.settle(now, changes);
    }

    /// When the user goes offline automatically: the latest deadline of the lost clients, if no other client is
    /// present.
    pub fn offline_at(&self) -> Option<Time> {
        if self.connected().next().is_some() {
            return None;
        }
        self.clients.iter().filter_map(|attendee| attendee.lost).map(|lost| lost.until).max()
    }

    /// When to call `wake` again: the latest deadline of the lost clients, or the earliest if another client is
    /// present; then each lost one is removed at its own deadline.
    pub fn next_wake(&self) -> Option<Time> {
        let deadlines = self.clients.iter().filter_map(|attendee| attendee.lost).map(|lost| lost.until);
        if self.connected().next().is_some() { deadlines.min() } else { deadlines.max() }
    }

    fn join(
        &mut self,
        now: Time,
        client: ClientId,
        home: NodeEpoch,
        state: Option<ClientState>,
        changes: &mut Vec<AttendanceChange>,
    ) {
        // A passed deadline ends the earlier presence: this join starts a new one.
        self.settle(now, changes);
        let was_there = self.is_present();
        // Any arrival means that the user is back, whichever client was lost.
        self.clients.retain(|attendee| attendee.lost.is_none());
        match self.find(client) {
            Ok(at) => {
                self.clients[at].node = home;
                if let Some(state) = state {
                    self.change_state(at, state, changes);
                }
            }
            Err(at) => {
                if !was_there {
                    self.since = now;
                    changes.push(AttendanceChange::UserOnline);
                }
                changes.push(AttendanceChange::ClientOnline { client, state: state.clone() });
                // Most users have one client: save memory.
                self.clients.reserve_exact(1);
                self.clients.insert(at, ChannelClient { client, node: home, state, since: now, lost: None });
            }
        }
    }

    fn update(&mut self, client: ClientId, state: ClientState, changes: &mut Vec<AttendanceChange>) {
        match self.find_living(client) {
            Some(at) => self.change_state(at, state, changes),
            None => changes.push(AttendanceChange::NotFound),
        }
    }

    fn change_state(&mut self, at: usize, state: ClientState, changes: &mut Vec<AttendanceChange>) {
        let attendee = &mut self.clients[at];
        if attendee.state.as_ref() != Some(&state) {
            attendee.state = Some(state.clone());
            changes.push(AttendanceChange::ClientUpdated { client: attendee.client, state });
        }
    }

    fn lose(
        &mut self,
        now: Time,
        at: usize,
        loss: ClientLoss,
        seen: Time,
        changes: &mut Vec<AttendanceChange>,
    ) {
        assert!(!loss.reason.is_explicit(), "an explicit departure is not a loss");
        let attendee = &mut self.clients[at];
        // A time in the future, from a clock that was ahead, must not extend the grace period.
        let at = loss.at.min(now);
        attendee.lost = Some(LostClient { at, until: at + loss.grace_ms });
        let client = attendee.client;
        self.depart(client, LastDeparture { reason: loss.reason, seen: seen.min(now) }, changes);
    }

    fn sweep(&mut self, now: Time, nodes: &[NodeEpoch], changes: &mut Vec<AttendanceChange>) {
        let is_stale = |attendee: &ChannelClient| attendee.lost.is_none() && nodes.contains(&attendee.node);
        while let Some(at) = self.clients.iter().position(is_stale) {
            // Its arrival is the last time it is known to have been present.
            let loss =
                ClientLoss { at: self.clients[at].since, grace_ms: 0, reason: OfflineReason::NodeDown };
            self.lose(now, at, loss, loss.at, changes);
        }
    }

    fn depart(&mut self, client: ClientId, departed: LastDeparture, changes: &mut Vec<AttendanceChange>) {
        let seen = self.departed.map_or(departed.seen, |earlier| earlier.seen.max(departed.seen));
        self.departed = Some(LastDeparture { seen, ..departed });
        changes.push(AttendanceChange::ClientOffline { client, reason: departed.reason });
    }

    /// The user goes offline when no client is present and every deadline has passed.
    fn settle(&mut self, now: Time, changes: &mut Vec<AttendanceChange>) {
        let over = |lost: LostClient| now >= lost.until;
        if self.connected().next().is_some() {
            // A deadline that passes while another client is present is not visible to others.
            self.clients.retain(|attendee| !attendee.lost.is_some_and(over));
        } else if let Some(LastDeparture { reason, seen }) = self.departed
            && self.clients.iter().filter_map(|attendee| attendee.lost).all(over)
        {
            *self = Attendance::default();
            changes.push(AttendanceChange::UserOffline { last_seen: seen, reason });
        }
    }

    fn find(&self, client: ClientId) -> Result<usize, usize> {
        self.clients.binary_search_by(|attendee| attendee.client.cmp(&client))
    }

    fn find_living(&self, client: ClientId) -> Option<usize> {
        self.find(client).ok().filter(|&at| self.clients[at].lost.is_none())
    }

    /// Whether the user is present, also within a grace period.
    pub fn is_present(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Within a grace period: all clients are lost.
    pub fn is_leaving(&self) -> bool {
        self.is_present() && self.connected().next().is_none()
    }

    /// The clients that are present.
    pub fn connected(&self) -> impl Iterator<Item = &ChannelClient> {
        self.clients.iter().filter(|attendee| attendee.lost.is_none())
    }

    /// All clients that must be stored, also lost ones.
    pub fn clients(&self) -> &[ChannelClient] {
        &self.clients
    }

    /// Since when the only client is present, if it joined together with its user and no client has left: then there
    /// is nothing else to store.
    pub fn alone(&self) -> Option<Time> {
        match &self.clients[..] {
            [only] if only.lost.is_none() && only.since == self.since && self.departed.is_none() => {
                Some(self.since)
            }
            _ => None,
        }
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn departed(&self) -> Option<LastDeparture> {
        self.departed
    }
}

#[cfg(test)]
mod tests;
