//! The rows of presence: one user in one channel, and the channel's count of changes. What they mean is decided in
//! `tavern-domain`. Must hold: a presence is kept while somebody is there or may come back; a channel's row stands
//! exactly as long as it has presences.

use crate::row::{Page, Versioned, Writer};
use std::fmt;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Attendance, Home, Visibility};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PresenceKey {
    pub channel: Arc<str>,
    /// The user, or for somebody without a name the client.
    pub user: Arc<str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Presence {
    pub key: PresenceKey,
    pub anonymous: bool,
    pub name: Option<Arc<str>>,
    /// To whom the user shows himself here.
    pub visibility: Visibility,
    pub attendance: Attendance,
}

/// What an app says about somebody: he is in a channel, for as long as it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub key: PresenceKey,
    /// The channel whose clients carry him. None: he is there by himself.
    pub carrier: Option<Arc<str>>,
    pub until: Option<Time>,
}

/// Somebody is held in a channel by what a commit changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub carrier: PresenceKey,
    pub channel: Arc<str>,
}

/// A channel's version grows by the number of changes that a commit tells. Every commit that touches a presence names
/// its channel here, also when nobody is told anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    pub channel: Arc<str>,
    pub by: u32,
}

/// A part of those who are present in a channel, and the state it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Roster {
    /// Of an empty channel: no earlier version of it is above, and every later one is.
    pub version: u64,
    /// All of them, not only this page.
    pub users: u64,
    pub page: Page<Versioned<Presence>>,
}

/// A presence that nobody will end: lives of nodes that the store does not know vouch for it, or, when none is named,
/// its last deadline is long over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    pub key: PresenceKey,
    pub homes: Vec<Home>,
}

impl PresenceKey {
    pub fn new(channel: &str, user: &str) -> PresenceKey {
        PresenceKey { channel: channel.into(), user: user.into() }
    }
}

impl fmt::Display for PresenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Both may contain anything: the length says where the channel ends.
        write!(f, "{}:{}/{}", self.channel.len(), self.channel, self.user)
    }
}

impl Presence {
    pub fn bytes(&self) -> usize {
        let state = |client: &tavern_domain::presence::Attendee| {
            client.state.as_ref().map_or(0, |state| state.text.len()) + client.home.node.len() + 64
        };
        let clients: usize = self.attendance.clients().iter().map(state).sum();
        self.key.channel.len()
            + self.key.user.len()
            + self.name.as_ref().map_or(0, |name| name.len())
            + clients
    }

    /// The homes of clients that came by `before` and that are not known; None: this presence is not astray.
    pub fn astray(&self, before: Time, is_known: impl Fn(&Home) -> bool) -> Option<Vec<Home>> {
        let mut homes: Vec<Home> = Vec::new();
        for client in self.attendance.living().filter(|client| client.since <= before) {
            // Whom an app put somewhere by himself is vouched for by the app.
            let vouched = client.home.node.is_empty() || is_known(&client.home);
            if !vouched && !homes.contains(&client.home) {
                homes.push(client.home.clone());
            }
        }
        let forgotten = self.attendance.next_wake().is_some_and(|until| until <= before);
        (forgotten || !homes.is_empty()).then_some(homes)
    }

    /// Whether this life of a node vouches for one of the clients.
    pub fn lives_at(&self, home: &Writer) -> bool {
        self.attendance.living().any(|client| client.home == Home::from(home))
    }
}

impl From<&Writer> for Home {
    fn from(writer: &Writer) -> Home {
        Home { node: writer.node.clone(), epoch: writer.epoch }
    }
}
