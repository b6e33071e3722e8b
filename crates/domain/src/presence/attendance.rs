//! One user in one channel: which clients are there, and until when those that were lost may come back.
//! Knows no channel version, no watcher and no store: facts in, changes out, in the order in which they are told.
//! Must hold: `UserOnline` and `UserOffline` alternate; a user goes at the latest deadline of the clients that were lost
//! since somebody last arrived, and at once if there is none; `ClientOffline` comes before the `UserOffline` it causes;
//! what changes nothing is told to nobody.

use super::visibility::Visibility;
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

    /// The client, or somebody for it, said so. Else it may come back within the grace.
    pub fn is_explicit(self) -> bool {
        !matches!(self, Departure::Lost | Departure::NodeDown)
    }
}

/// A client that is there, or that was lost and for whose sake its user still is.
#[derive(Clone, Debug, PartialEq)]
pub struct Attendee {
    pub client: ClientId,
    pub home: Home,
    pub state: Option<State>,
    pub since: Time,
    pub lost: Option<Lost>,
}

/// When a client was lost, and until when its user may come back for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub at: Time,
    pub until: Time,
}

/// The last departure from an attendance: why, and the latest moment at which one of those who left was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    pub reason: Departure,
    pub seen: Time,
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
    /// Somebody who may say so takes the user out, with all of his clients.
    Remove {
        reason: Departure,
    },
    /// The resume window of a client has ended, and nobody came.
    Lose {
        client: ClientId,
        loss: Loss,
    },
    /// The same, for a node that may not be the client's any more: whom another node vouches for is not lost.
    LoseAt {
        client: ClientId,
        node: Arc<str>,
        loss: Loss,
    },
    /// Everything of one life of a node is lost.
    LoseHome {
        home: Home,
        loss: Loss,
    },
    /// Nobody knows these lives of nodes any more: what they vouched for goes without a grace.
    Sweep {
        homes: Vec<Home>,
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
    /// The user shows himself to others than before.
    Face {
        from: Visibility,
        to: Visibility,
    },
    /// The answer to an update of a client that is not there. Told to nobody else.
    NotFound,
}

/// Nobody there is the default, and means that nothing has to be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attendance {
    /// In the order of their ids. Those that were lost are forgotten when anybody arrives.
    clients: Vec<Attendee>,
    /// When the user came; meaningless while nobody is there.
    since: Time,
    departed: Option<Departed>,
}

impl Attendance {
    /// As it was kept. The clients may come in any order.
    pub fn restore(mut clients: Vec<Attendee>, since: Time, departed: Option<Departed>) -> Attendance {
        clients.sort_by_key(|attendee| attendee.client);
        Attendance { clients, since, departed }
    }

    pub fn handle(&mut self, now: Time, input: Input, changes: &mut Vec<Change>) {
        match input {
            Input::Join { client, home, state } => self.join(now, client, home, state, changes),
            Input::Update { client, state } => self.update(client, state, changes),
            Input::Leave { client, reason } => {
                assert!(reason.is_explicit(), "a departure by itself is a loss");
                if let Some(at) = self.find_living(client) {
                    self.clients.remove(at);
                    self.depart(client, Departed { reason, seen: now }, changes);
                }
            }
            Input::Remove { reason } => {
                assert!(reason.is_explicit(), "a departure by itself is a loss");
                // Nobody may come back for them.
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

    /// Time has passed: a user whose deadline is over goes.
    pub fn wake(&mut self, now: Time, changes: &mut Vec<Change>) {
        self.settle(now, changes);
    }

    /// When to be asked again: the latest deadline of those who were lost, if nobody else is there.
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
        // A deadline that is over by now has ended this presence: what comes now is a new one.
        self.settle(now, changes);
        let was_there = self.is_present();
        // Any arrival means that the user is back, whichever of the clients was lost.
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
                // Most users have one client, and this is kept for each of them.
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
        assert!(!loss.reason.is_explicit(), "a loss is nobody's wish");
        // A clock that was ahead must not make a grace longer than it is.
        let seen = loss.at.min(now);
        let attendee = &mut self.clients[at];
        attendee.lost = Some(Lost { at: seen, until: seen + loss.grace_ms });
        let client = attendee.client;
        self.depart(client, Departed { reason: loss.reason, seen }, changes);
    }

    fn sweep(&mut self, now: Time, homes: &[Home], changes: &mut Vec<Change>) {
        let astray = |attendee: &Attendee| attendee.lost.is_none() && homes.contains(&attendee.home);
        while let Some(at) = self.clients.iter().position(astray) {
            // When it came is the last that is known of it.
            let loss = Loss { at: self.clients[at].since, grace_ms: 0, reason: Departure::NodeDown };
            self.lose(now, at, loss, changes);
        }
    }

    fn depart(&mut self, client: ClientId, departed: Departed, changes: &mut Vec<Change>) {
        let seen = self.departed.map_or(departed.seen, |earlier| earlier.seen.max(departed.seen));
        self.departed = Some(Departed { seen, ..departed });
        changes.push(Change::ClientOffline { client, reason: departed.reason });
    }

    /// The user goes when nobody is left and no deadline runs.
    fn settle(&mut self, now: Time, changes: &mut Vec<Change>) {
        let over = |lost: Lost| now >= lost.until;
        if self.living().next().is_some() {
            // A deadline that passed while somebody was there means nothing any more.
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

    /// There in every view, in a grace too.
    pub fn is_present(&self) -> bool {
        !self.clients.is_empty()
    }

    /// In a grace: nobody is there, and somebody may still come back.
    pub fn is_leaving(&self) -> bool {
        self.is_present() && self.living().next().is_none()
    }

    /// The clients that a view shows.
    pub fn living(&self) -> impl Iterator<Item = &Attendee> {
        self.clients.iter().filter(|attendee| attendee.lost.is_none())
    }

    /// Everything that must be kept, the lost too.
    pub fn clients(&self) -> &[Attendee] {
        &self.clients
    }

    /// Since when the only client is there, if it came with its user and nobody has left: then there is nothing else to know.
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
