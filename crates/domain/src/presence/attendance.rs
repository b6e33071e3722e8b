//! One user in one channel: which clients are present, and until when lost ones may come back. Inputs in, changes out, in
//! the order in which watchers see them.
//! Must hold: `UserOnline` and `UserOffline` alternate; a user goes offline at the latest deadline of the clients lost since
//! the last arrival, and at once if there is none; `ClientOffline` comes before the `UserOffline` it causes; an input that
//! changes nothing gives no change.

use super::visibility::Visibility;
use crate::id::{ClientId, Epoch};
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// The state of a client: JSON, and a digest that is equal for equal values, however they are written.
#[derive(Clone, Debug)]
pub struct State {
    pub text: Arc<str>,
    pub meaning: u64,
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.meaning == other.meaning
    }
}

/// The node that a client is connected to, in one of its lifetimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub node: Arc<str>,
    pub epoch: Epoch,
}

/// Why a client or user went offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    Left,
    Bye,
    Lost,
    NodeDown,
    Removed,
    Expired,
}

impl Departure {
    pub fn as_str(self) -> &'static str {
        match self {
            Departure::Left => "left",
            Departure::Bye => "bye",
            Departure::Lost => "lost",
            Departure::NodeDown => "node_down",
            Departure::Removed => "removed",
            Departure::Expired => "expired",
        }
    }

    pub fn parse(text: &str) -> Option<Departure> {
        let all = [
            Departure::Left,
            Departure::Bye,
            Departure::Lost,
            Departure::NodeDown,
            Departure::Removed,
            Departure::Expired,
        ];
        all.into_iter().find(|departure| departure.as_str() == text)
    }

    /// It was asked for, and there is no grace period.
    pub fn is_explicit(self) -> bool {
        !matches!(self, Departure::Lost | Departure::NodeDown)
    }
}

/// A client that is present, or that was lost and is within its grace period.
#[derive(Clone, Debug, PartialEq)]
pub struct Attendee {
    pub client: ClientId,
    pub home: Home,
    pub state: Option<State>,
    pub since: Time,
    pub lost: Option<Lost>,
}

/// When a client was lost, and when its grace period ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub at: Time,
    pub until: Time,
}

/// The last departure: why, and when one of the departed clients was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    pub reason: Departure,
    pub seen: Time,
}

/// How clients are lost: when, and for how long they may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub at: Time,
    pub grace_ms: u64,
    pub reason: Departure,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// A client joins. Without a state, an earlier one stays.
    Join {
        client: ClientId,
        home: Home,
        state: Option<State>,
    },
    Update {
        client: ClientId,
        state: State,
    },
    /// A client leaves explicitly.
    Leave {
        client: ClientId,
        reason: Departure,
    },
    /// An app removes the user with all their clients.
    Remove {
        reason: Departure,
    },
    /// A client did not resume in time.
    Lose {
        client: ClientId,
        loss: Loss,
    },
    /// The same, only if the client is still connected to this node.
    LoseAt {
        client: ClientId,
        node: Arc<str>,
        loss: Loss,
    },
    /// All clients of one lifetime of a node are lost.
    LoseHome {
        home: Home,
        loss: Loss,
    },
    /// These lifetimes of nodes are unknown: their clients go without a grace period.
    Sweep {
        homes: Vec<Home>,
    },
}

/// What watchers see.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    UserOnline,
    ClientOnline {
        client: ClientId,
        state: Option<State>,
    },
    ClientUpdated {
        client: ClientId,
        state: State,
    },
    ClientOffline {
        client: ClientId,
        reason: Departure,
    },
    UserOffline {
        last_seen: Time,
        reason: Departure,
    },
    /// The user's visibility changed.
    Face {
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
    clients: Vec<Attendee>,
    /// Since when the user is present; meaningless while they are not.
    since: Time,
    departed: Option<Departed>,
}

impl Attendance {
    /// From storage. The clients may be in any order.
    pub fn restore(mut clients: Vec<Attendee>, since: Time, departed: Option<Departed>) -> Attendance {
        clients.sort_by_key(|attendee| attendee.client);
        Attendance { clients, since, departed }
    }

    pub fn handle(&mut self, now: Time, input: Input, changes: &mut Vec<Change>) {
        match input {
            Input::Join { client, home, state } => self.join(now, client, home, state, changes),
            Input::Update { client, state } => self.update(client, state, changes),
            Input::Leave { client, reason } => {
                assert!(reason.is_explicit(), "a lost client does not leave explicitly");
                if let Some(at) = self.find_living(client) {
                    self.clients.remove(at);
                    self.depart(client, Departed { reason, seen: now }, changes);
                }
            }
            Input::Remove { reason } => {
                assert!(reason.is_explicit(), "a lost client does not leave explicitly");
                // Without a grace period.
                for attendee in core::mem::take(&mut self.clients).iter().filter(|one| one.lost.is_none()) {
                    self.depart(attendee.client, Departed { reason, seen: now }, changes);
                }
                if let Some(departed) = &mut self.departed {
                    departed.reason = reason;
                }
            }
            Input::Lose { client, loss } => {
                if let Some(at) = self.find_living(client) {
                    self.lose(now, at, loss, changes);
                }
            }
            Input::LoseAt { client, node, loss } => {
                let stays = |at: &usize| self.clients[*at].home.node == node;
                if let Some(at) = self.find_living(client).filter(stays) {
                    self.lose(now, at, loss, changes);
                }
            }
            Input::LoseHome { home, loss } => {
                let of_home = |attendee: &Attendee| attendee.lost.is_none() && attendee.home == home;
                while let Some(at) = self.clients.iter().position(of_home) {
                    self.lose(now, at, loss, changes);
                }
            }
            Input::Sweep { homes } => self.sweep(now, &homes, changes),
        }
        self.settle(now, changes);
    }

    /// Applies deadlines that have passed.
    pub fn wake(&mut self, now: Time, changes: &mut Vec<Change>) {
        self.settle(now, changes);
    }

    /// When to call `wake` again: the latest deadline of the lost clients, if no other client is present.
    pub fn next_wake(&self) -> Option<Time> {
        if self.living().next().is_some() {
            return None;
        }
        self.clients.iter().filter_map(|attendee| attendee.lost).map(|lost| lost.until).max()
    }

    fn join(
        &mut self,
        now: Time,
        client: ClientId,
        home: Home,
        state: Option<State>,
        changes: &mut Vec<Change>,
    ) {
        // A deadline that has passed ends the earlier presence: this join begins a new one.
        self.settle(now, changes);
        let was_there = self.is_present();
        // Any arrival means that the user is back, whichever client was lost.
        self.clients.retain(|attendee| attendee.lost.is_none());
        match self.find(client) {
            Ok(at) => {
                self.clients[at].home = home;
                if let Some(state) = state {
                    self.change_state(at, state, changes);
                }
            }
            Err(at) => {
                if !was_there {
                    self.since = now;
                    changes.push(Change::UserOnline);
                }
                changes.push(Change::ClientOnline { client, state: state.clone() });
                // Most users have one client: save memory.
                self.clients.reserve_exact(1);
                self.clients.insert(at, Attendee { client, home, state, since: now, lost: None });
            }
        }
    }

    fn update(&mut self, client: ClientId, state: State, changes: &mut Vec<Change>) {
        match self.find_living(client) {
            Some(at) => self.change_state(at, state, changes),
            None => changes.push(Change::NotFound),
        }
    }

    fn change_state(&mut self, at: usize, state: State, changes: &mut Vec<Change>) {
        let attendee = &mut self.clients[at];
        if attendee.state.as_ref() != Some(&state) {
            attendee.state = Some(state.clone());
            changes.push(Change::ClientUpdated { client: attendee.client, state });
        }
    }

    fn lose(&mut self, now: Time, at: usize, loss: Loss, changes: &mut Vec<Change>) {
        assert!(!loss.reason.is_explicit(), "an explicit departure is not a loss");
        // A time in the future, from a clock that was ahead, must not extend the grace period.
        let seen = loss.at.min(now);
        let attendee = &mut self.clients[at];
        attendee.lost = Some(Lost { at: seen, until: seen + loss.grace_ms });
        let client = attendee.client;
        self.depart(client, Departed { reason: loss.reason, seen }, changes);
    }

    fn sweep(&mut self, now: Time, homes: &[Home], changes: &mut Vec<Change>) {
        let is_stale = |attendee: &Attendee| attendee.lost.is_none() && homes.contains(&attendee.home);
        while let Some(at) = self.clients.iter().position(is_stale) {
            // Its arrival is the last time it is known to have been present.
            let loss = Loss { at: self.clients[at].since, grace_ms: 0, reason: Departure::NodeDown };
            self.lose(now, at, loss, changes);
        }
    }

    fn depart(&mut self, client: ClientId, departed: Departed, changes: &mut Vec<Change>) {
        let seen = self.departed.map_or(departed.seen, |earlier| earlier.seen.max(departed.seen));
        self.departed = Some(Departed { seen, ..departed });
        changes.push(Change::ClientOffline { client, reason: departed.reason });
    }

    /// The user goes offline when no client is present and every deadline has passed.
    fn settle(&mut self, now: Time, changes: &mut Vec<Change>) {
        let over = |lost: Lost| now >= lost.until;
        if self.living().next().is_some() {
            // A deadline that passed while another client is present has no effect.
            self.clients.retain(|attendee| !attendee.lost.is_some_and(over));
        } else if let Some(Departed { reason, seen }) = self.departed
            && self.clients.iter().filter_map(|attendee| attendee.lost).all(over)
        {
            *self = Attendance::default();
            changes.push(Change::UserOffline { last_seen: seen, reason });
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
        self.is_present() && self.living().next().is_none()
    }

    /// The clients that are present.
    pub fn living(&self) -> impl Iterator<Item = &Attendee> {
        self.clients.iter().filter(|attendee| attendee.lost.is_none())
    }

    /// All clients that must be stored, also lost ones.
    pub fn clients(&self) -> &[Attendee] {
        &self.clients
    }

    /// Since when the only client is present, if it came with its user and no client has left: then there is nothing else to store.
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

    pub fn departed(&self) -> Option<Departed> {
        self.departed
    }
}

#[cfg(test)]
mod tests;
