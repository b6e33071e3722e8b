//! The scopes that a Radar client listens to and is present in, by their channels; and the events of these channels as Radar's
//! messages.

use std::collections::HashMap;
use tavern_wire::gateway::HubEvent;
use tavern_wire::radar::{RadarFrames, RadarRoom, status_of};

#[derive(Default)]
pub struct RadarScopes {
    listening: HashMap<String, ListenedScope>,
    /// The scopes that the client is present in, with the client data that it gave.
    present: HashMap<String, Option<Box<str>>>,
    /// Presence channels that must be read again: events were lost.
    stale: Vec<String>,
}

/// Which session of the connection listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRole {
    /// The user's.
    User,
    /// One without a user, in dev mode.
    Unnamed,
}

pub struct ListenedScope {
    pub to: String,
    pub role: SessionRole,
    pub content: ScopeContent,
}

pub enum ScopeContent {
    Presence(Box<RadarRoom>),
    Status,
    /// Messages up to this offset are known already.
    Messages(u64),
}

impl RadarScopes {
    pub fn listen(&mut self, channel: String, scope: ListenedScope) {
        self.listening.insert(channel, scope);
    }

    pub fn listened(&mut self, channel: &str) -> Option<&mut ListenedScope> {
        self.listening.get_mut(channel)
    }

    pub fn unlisten(&mut self, channel: &str) -> Option<ListenedScope> {
        self.listening.remove(channel)
    }

    pub fn room(&mut self, channel: &str) -> Option<&mut RadarRoom> {
        match &mut self.listening.get_mut(channel)?.content {
            ScopeContent::Presence(room) => Some(room),
            _ => None,
        }
    }

    pub fn enter(&mut self, channel: &str, client_data: Option<&str>) {
        self.present.insert(channel.to_owned(), client_data.map(Box::from));
    }

    /// False: it was not there.
    pub fn leave(&mut self, channel: &str) -> bool {
        self.present.remove(channel).is_some()
    }

    /// Whether setting this again changes nothing: without client data, or with the same.
    pub fn is_repeated(&self, channel: &str, client_data: Option<&str>) -> bool {
        self.present
            .get(channel)
            .is_some_and(|known| client_data.is_none() || known.as_deref() == client_data)
    }

    /// A channel whose presence must be read again.
    pub fn take_stale(&mut self) -> Option<String> {
        self.stale.pop()
    }

    pub fn apply(&mut self, event: &HubEvent<'_>, out: &mut RadarFrames<'_>) {
        if event.event == "gap" {
            return self.lost(event.channel.as_deref());
        }
        let Some(channel) = event.channel.as_deref() else { return };
        let Some(scope) = self.listening.get_mut(channel) else { return };
        match (&mut scope.content, &*event.event, event.data) {
            (ScopeContent::Status, "message", Some(data))
                if status_of(data, event.from.as_ref()).is_some() =>
            {
                out.status(&scope.to, data);
            }
            (ScopeContent::Messages(known), "message", Some(data))
                if event.offset.is_none_or(|offset| offset > *known) =>
            {
                out.message(&scope.to, data);
            }
            (ScopeContent::Presence(room), ..) => room.apply(event, out),
            _ => {}
        }
    }

    /// Events of one channel were lost, or of any. Messages are delivered at most once, as in the original.
    fn lost(&mut self, channel: Option<&str>) {
        let is_lost = |name: &str| channel.is_none_or(|channel| channel == name);
        for (name, scope) in &self.listening {
            if is_lost(name)
                && matches!(scope.content, ScopeContent::Presence(_))
                && !self.stale.contains(name)
            {
                self.stale.push(name.clone());
            }
        }
    }
}
