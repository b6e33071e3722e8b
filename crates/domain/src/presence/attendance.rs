//! One user in one channel: which clients are there, and until when those that were lost may come back.
//! Knows no channel version, no watcher and no store: facts in, changes out, in the order in which they are told.
//! Must hold: `UserOnline` and `UserOffline` alternate; a user goes at the latest deadline of the clients that were lost
//! since somebody last arrived, and at once if there is none; `ClientOffline` comes before the `UserOffline` it causes;
//! what changes nothing is told to nobody.

use crate::id::{ClientId, Epoch};
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a client says about itself: JSON, and a digest of its meaning, so that the same value written differently is the
/// same state.
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

/// The life of a node that vouches for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub node: Arc<str>,
    pub epoch: Epoch,
}

/// Why somebody is not there any more.
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

    /// The client, or somebody for it, said so. Else it may come back within the grace.
    pub fn is_explicit(self) -> bool {
        !matches!(self, Departure::Lost | Departure::NodeDown)
    }
}

/// A client that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Attendee {
    pub client: ClientId,
    pub home: Home,
    pub state: Option<State>,
    pub since: Time,
}

/// How clients are lost: when, and how long their user may take to come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub at: Time,
    pub grace_ms: u64,
    pub reason: Departure,
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Without a state an earlier one stays.
    Join {
        client: ClientId,
        home: Home,
        state: Option<State>,
    },
    Update {
        client: ClientId,
        state: State,
    },
    /// An explicit departure.
    Leave {
        client: ClientId,
        reason: Departure,
    },
    /// The resume window of a client has ended, and nobody came.
    Lose {
        client: ClientId,
        loss: Loss,
    },
    /// Everything of one life of a node is lost.
    LoseHome {
        home: Home,
        loss: Loss,
    },
}

/// What watchers are told.
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
    /// The answer to an update of a client that is not there. Told to nobody else.
    NotFound,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attendance {
    /// In the order of their ids.
    clients: Vec<Attendee>,
    /// Somebody was lost and nobody has arrived since: until then the user may come back.
    deadline: Option<Time>,
    /// When the user came; meaningless while nobody is there.
    since: Time,
    /// The last departure: its reason, and the latest moment at which one of those who left was there.
    departed: Option<(Departure, Time)>,
}

impl Attendance {
    pub fn handle(&mut self, now: Time, input: Input, changes: &mut Vec<Change>) {
        match input {
            Input::Join { client, home, state } => self.join(now, client, home, state, changes),
            Input::Update { client, state } => self.update(client, state, changes),
            Input::Leave { client, reason } => {
                assert!(reason.is_explicit(), "a departure by itself is a loss");
                if let Ok(at) = self.find(client) {
                    self.clients.remove(at);
                    self.depart(client, reason, now, changes);
                }
            }
            Input::Lose { client, loss } => {
                if let Ok(at) = self.find(client) {
                    self.clients.remove(at);
                    self.lose(now, client, loss, changes);
                }
            }
            Input::LoseHome { home, loss } => {
                while let Some(at) = self.clients.iter().position(|attendee| attendee.home == home) {
                    let client = self.clients.remove(at).client;
                    self.lose(now, client, loss, changes);
                }
            }
        }
        self.settle(now, changes);
    }

    /// Time has passed: a user whose deadline is over goes.
    pub fn wake(&mut self, now: Time, changes: &mut Vec<Change>) {
        self.settle(now, changes);
    }

    /// When to be asked again.
    pub fn next_wake(&self) -> Option<Time> {
        self.deadline.filter(|_| self.clients.is_empty())
    }

    fn join(
        &mut self,
        now: Time,
        client: ClientId,
        home: Home,
        state: Option<State>,
        changes: &mut Vec<Change>,
    ) {
        // A deadline that is over by now has ended this presence: what comes now is a new one.
        self.settle(now, changes);
        let was_there = self.is_present();
        // Any arrival means that the user is back, whichever of the clients was lost.
        self.deadline = None;
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
                    self.departed = None;
                    changes.push(Change::UserOnline);
                }
                changes.push(Change::ClientOnline { client, state: state.clone() });
                self.clients.insert(at, Attendee { client, home, state, since: now });
            }
        }
    }

    fn update(&mut self, client: ClientId, state: State, changes: &mut Vec<Change>) {
        match self.find(client) {
            Ok(at) => self.change_state(at, state, changes),
            Err(_) => changes.push(Change::NotFound),
        }
    }

    fn change_state(&mut self, at: usize, state: State, changes: &mut Vec<Change>) {
        let attendee = &mut self.clients[at];
        if attendee.state.as_ref() != Some(&state) {
            attendee.state = Some(state.clone());
            changes.push(Change::ClientUpdated { client: attendee.client, state });
        }
    }

    fn lose(&mut self, now: Time, client: ClientId, loss: Loss, changes: &mut Vec<Change>) {
        assert!(!loss.reason.is_explicit(), "a loss is nobody's wish");
        // A clock that was ahead must not make a grace longer than it is.
        let at = loss.at.min(now);
        let deadline = at + loss.grace_ms;
        self.deadline = Some(self.deadline.map_or(deadline, |earlier| earlier.max(deadline)));
        self.depart(client, loss.reason, at, changes);
    }

    fn depart(&mut self, client: ClientId, reason: Departure, at: Time, changes: &mut Vec<Change>) {
        let seen = self.departed.map_or(at, |(_, seen)| seen.max(at));
        self.departed = Some((reason, seen));
        changes.push(Change::ClientOffline { client, reason });
    }

    /// The user goes when nobody is left and no deadline runs.
    fn settle(&mut self, now: Time, changes: &mut Vec<Change>) {
        let Some((reason, last_seen)) = self.departed.filter(|_| self.clients.is_empty()) else { return };
        if self.deadline.is_none_or(|deadline| now >= deadline) {
            *self = Attendance::default();
            changes.push(Change::UserOffline { last_seen, reason });
        }
    }

    fn find(&self, client: ClientId) -> Result<usize, usize> {
        self.clients.binary_search_by(|attendee| attendee.client.cmp(&client))
    }

    /// There in every view, in a grace too.
    pub fn is_present(&self) -> bool {
        !self.clients.is_empty() || self.departed.is_some()
    }

    /// In a grace: nobody is there, and somebody may still come back.
    pub fn is_leaving(&self) -> bool {
        self.clients.is_empty() && self.departed.is_some()
    }

    pub fn clients(&self) -> &[Attendee] {
        &self.clients
    }

    pub fn since(&self) -> Time {
        self.since
    }
}

#[cfg(test)]
mod tests;
