//! Who is in a channel: a snapshot, kept up to date by events. Pure.
//! Must hold: a snapshot and the events after it give the later snapshot; an event that cannot be applied changes nothing and
//! makes a new snapshot necessary.

use crate::Error;
use crate::bounds::EARLY;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// One client of a user in the channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PresentClient {
    /// Its presence state.
    pub state: Value,
    /// Known from snapshots only.
    pub since: Option<u64>,
}

impl PresentClient {
    /// The state as a type of the app.
    pub fn state<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.state).map_err(Error::unexpected)
    }
}

/// A user in the channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PresentUser {
    /// The display name.
    pub name: Option<String>,
    /// By the public id of each client.
    pub clients: BTreeMap<String, PresentClient>,
    /// Known from snapshots only.
    pub since: Option<u64>,
    /// All clients are lost, and the grace period is running.
    pub leaving: bool,
}

/// How the server reports changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PresenceMode {
    /// Each change separately.
    #[default]
    Full,
    /// One event per tick with all changes.
    Coalesced,
    /// Numbers only, and followed users by name.
    Counts,
}

impl PresenceMode {
    /// The mode as the protocol writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            PresenceMode::Full => "full",
            PresenceMode::Coalesced => "coalesced",
            PresenceMode::Counts => "counts",
        }
    }
}

/// Who is in one channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PresenceMap {
    /// The version of the snapshot with all events so far.
    pub version: u64,
    /// How the server reports changes.
    pub mode: PresenceMode,
    /// Users in the channel, anonymous ones included.
    pub count: u64,
    /// Users by id.
    pub users: BTreeMap<String, PresentUser>,
    /// Anonymous clients.
    pub anonymous: BTreeMap<String, PresentClient>,
    synced: bool,
    early: Vec<Value>,
}

/// The effect of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Changed,
    /// Changed; what belongs to it follows in the next event: the client of a user who came, or that a user has left.
    Half,
    /// Already known, or kept for the next snapshot.
    Nothing,
    /// Events are missing: a snapshot is needed.
    Missing,
}

/// Whether this is a presence event.
pub(crate) fn concerns(event: &str) -> bool {
    let single = ["user_online", "user_offline", "client_online", "client_updated", "client_offline"];
    single.contains(&event) || event == "presence" || event == "presence_mode"
}

impl PresenceMap {
    /// Takes a snapshot in the shape of the answer to `who`, then applies the events after it.
    pub(crate) fn restore(&mut self, members: &Value) -> Applied {
        let version = number(members, "version");
        if self.synced && version < self.version {
            // Older than the events received since.
            return Applied::Nothing;
        }
        (self.version, self.count, self.synced) = (version, number(members, "count"), true);
        self.users.clear();
        self.anonymous.clear();
        let listed = members.get("users").and_then(Value::as_array);
        match (listed, self.mode) {
            (None, _) => self.mode = PresenceMode::Counts,
            (Some(_), PresenceMode::Counts) => self.mode = PresenceMode::Coalesced,
            _ => {}
        }
        for shown in listed.into_iter().flatten() {
            self.insert(shown);
        }
        let mut outcome = Applied::Changed;
        for event in std::mem::take(&mut self.early) {
            // One announcement for everything.
            if self.apply(&event) == Applied::Missing {
                outcome = Applied::Missing;
            }
        }
        outcome
    }

    fn insert(&mut self, shown: &Value) {
        let clients =
            shown.get("clients").and_then(Value::as_array).into_iter().flatten().filter_map(|client| {
                let present =
                    PresentClient { state: client["state"].clone(), since: client["since"].as_u64() };
                Some((text(client, "client")?, present))
            });
        match text(shown, "user") {
            None => self.anonymous.extend(clients),
            Some(user) => {
                let clients = clients.collect();
                let leaving = shown["leaving"].as_bool().unwrap_or(false);
                let user_shown = PresentUser {
                    name: text(shown, "name"),
                    clients,
                    since: shown["since"].as_u64(),
                    leaving,
                };
                self.users.insert(user, user_shown);
            }
        }
    }

    /// Marks the map as stale: events are kept until the next snapshot. True: it was not stale before.
    pub(crate) fn mark_stale(&mut self) -> bool {
        std::mem::replace(&mut self.synced, false)
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced
    }

    pub(crate) fn apply(&mut self, event: &Value) -> Applied {
        if !self.synced {
            if self.early.len() < EARLY {
                self.early.push(event.clone());
            }
            return Applied::Nothing;
        }
        let version = number(event, "version");
        let kind = event["event"].as_str().unwrap_or_default();
        if kind == "presence_mode" {
            return self.turn(event, version);
        }
        if version <= self.version {
            return Applied::Nothing;
        }
        let before = event.get("from_version").and_then(Value::as_u64).unwrap_or(version - 1);
        // The version of a channel that was empty may jump.
        if before > self.version && self.count > 0 {
            self.early = vec![event.clone()];
            self.mark_stale();
            return Applied::Missing;
        }
        if kind == "presence" {
            self.difference(event)
        } else {
            self.single(kind, event)
        }
        self.version = version;
        let left =
            || text(event, "user").and_then(|user| self.users.get(&user)).is_some_and(|user| user.leaving);
        match kind {
            "user_online" => Applied::Half,
            "client_offline" if event["explicit"] == true && left() => Applied::Half,
            _ => Applied::Changed,
        }
    }

    fn turn(&mut self, event: &Value, version: u64) -> Applied {
        if version < self.version {
            return Applied::Nothing;
        }
        let counted = self.mode == PresenceMode::Counts;
        self.mode = match event["mode"].as_str() {
            Some("counts") => PresenceMode::Counts,
            Some("coalesced") => PresenceMode::Coalesced,
            _ => PresenceMode::Full,
        };
        if self.mode == PresenceMode::Counts {
            // Departures of most users are no longer reported, so they cannot stay in the map.
            self.users.clear();
            self.anonymous.clear();
        }
        let missing = (counted && self.mode != PresenceMode::Counts) || version > self.version;
        if missing && self.mark_stale() { Applied::Missing } else { Applied::Changed }
    }

    fn single(&mut self, kind: &str, event: &Value) {
        match kind {
            "user_online" => self.count += 1,
            "user_offline" => self.count = self.count.saturating_sub(1),
            _ => {}
        }
        let (client, state) = (text(event, "client"), event["state"].clone());
        let Some(name) = text(event, "user") else {
            return self.set_anonymous(kind != "client_offline", client, state);
        };
        if kind == "user_offline" {
            self.users.remove(&name);
            return;
        }
        let user = self.users.entry(name).or_default();
        match (kind, client) {
            ("user_online", _) => user.name = text(event, "name"),
            ("client_online", Some(client)) => {
                user.leaving = false;
                user.clients.insert(client, PresentClient { state, since: None });
            }
            ("client_updated", Some(client)) => {
                user.clients.entry(client).and_modify(|present| present.state = state);
            }
            ("client_offline", Some(client)) => {
                user.clients.remove(&client);
                user.leaving = user.clients.is_empty();
            }
            _ => {}
        }
    }

    /// An anonymous client; without a client id the user is hidden and only counted.
    fn set_anonymous(&mut self, there: bool, client: Option<String>, state: Value) {
        let Some(client) = client else { return };
        if there {
            self.anonymous.entry(client).or_default().state = state;
        } else {
            self.anonymous.remove(&client);
        }
    }

    fn difference(&mut self, event: &Value) {
        let list = |name: &str| event.get(name).and_then(Value::as_array).into_iter().flatten();
        for gone in list("left") {
            match (text(gone, "user"), text(gone, "client")) {
                (None, client) => self.set_anonymous(false, client, Value::Null),
                (Some(user), None) => {
                    self.users.remove(&user);
                }
                (Some(user), Some(client)) => {
                    if let Some(user) = self.users.get_mut(&user) {
                        user.clients.remove(&client);
                        user.leaving = user.clients.is_empty();
                    }
                }
            }
        }
        for entry in list("joined").chain(list("updated")) {
            let (client, state) = (text(entry, "client"), entry["state"].clone());
            let Some(user) = text(entry, "user") else {
                self.set_anonymous(true, client, state);
                continue;
            };
            let user = self
                .users
                .entry(user)
                .or_insert_with(|| PresentUser { leaving: true, ..PresentUser::default() });
            if let Some(client) = client {
                user.leaving = false;
                user.clients.entry(client).or_default().state = state;
            }
        }
        self.count = number(event, "count");
    }
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests;
