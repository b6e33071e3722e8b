//! Who is in a channel, kept up to date from a snapshot and the changes after it. Knows no sockets and no clock.
//! Must hold: snapshot and later events give the later snapshot; whatever cannot be applied asks for a new snapshot and changes nothing.

use serde_json::Value;
use std::collections::BTreeMap;

/// Changes that wait for a snapshot; what is beyond shows as a hole behind it.
const EARLY: usize = 4_096;

/// One session of a user in the channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Guest {
    pub state: Value,
    /// Known from snapshots only.
    pub since: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    pub name: Option<String>,
    /// By the public id of each client.
    pub clients: BTreeMap<String, Guest>,
    /// Known from snapshots only.
    pub since: Option<u64>,
    /// In a grace: his clients are lost, and he may still come back.
    pub leaving: bool,
}

/// How changes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Each.
    #[default]
    Full,
    /// Collected.
    Coalesced,
    /// Only numbers, and those whom one follows.
    Counts,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Full => "full",
            Mode::Coalesced => "coalesced",
            Mode::Counts => "counts",
        }
    }
}

/// The map of one channel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Roster {
    pub version: u64,
    pub mode: Mode,
    /// Users there, those without a name included.
    pub count: u64,
    pub users: BTreeMap<String, User>,
    /// Clients of people without a name.
    pub anonymous: BTreeMap<String, Guest>,
    synced: bool,
    early: Vec<Value>,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Changed,
    /// Known already, or kept for the snapshot that was asked for.
    Nothing,
    /// Something is missing: ask for a snapshot.
    Hole,
}

/// Whether this event is about who is in a channel.
pub(crate) fn concerns(event: &str) -> bool {
    let single = ["user_online", "user_offline", "client_online", "client_updated", "client_offline"];
    single.contains(&event) || event == "presence" || event == "presence_mode"
}

impl Roster {
    /// Takes a snapshot shaped like the answer to `who`, then what came after it.
    pub(crate) fn restore(&mut self, members: &Value) -> Applied {
        let version = number(members, "version");
        if self.synced && version < self.version {
            // Read before what was told meanwhile.
            return Applied::Nothing;
        }
        (self.version, self.count, self.synced) = (version, number(members, "count"), true);
        self.users.clear();
        self.anonymous.clear();
        let listed = members.get("users").and_then(Value::as_array);
        match (listed, self.mode) {
            (None, _) => self.mode = Mode::Counts,
            (Some(_), Mode::Counts) => self.mode = Mode::Coalesced,
            _ => {}
        }
        for shown in listed.into_iter().flatten() {
            self.insert(shown);
        }
        let mut outcome = Applied::Changed;
        for event in std::mem::take(&mut self.early) {
            if self.apply(&event) == Applied::Hole {
                outcome = Applied::Hole;
            }
        }
        outcome
    }

    fn insert(&mut self, shown: &Value) {
        let clients =
            shown.get("clients").and_then(Value::as_array).into_iter().flatten().filter_map(|client| {
                let guest = Guest { state: client["state"].clone(), since: client["since"].as_u64() };
                Some((text(client, "client")?, guest))
            });
        match text(shown, "user") {
            None => self.anonymous.extend(clients),
            Some(user) => {
                let clients = clients.collect();
                let leaving = shown["leaving"].as_bool().unwrap_or(false);
                let user_shown =
                    User { name: text(shown, "name"), clients, since: shown["since"].as_u64(), leaving };
                self.users.insert(user, user_shown);
            }
        }
    }

    /// What is known may be wrong: changes are held back until the next snapshot. Tells whether that must be asked for.
    pub(crate) fn lose(&mut self) -> bool {
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
        // After a channel was empty its version may jump.
        if before > self.version && self.count > 0 {
            self.early = vec![event.clone()];
            self.lose();
            return Applied::Hole;
        }
        if kind == "presence" {
            self.difference(event)
        } else {
            self.single(kind, event)
        }
        self.version = version;
        Applied::Changed
    }

    fn turn(&mut self, event: &Value, version: u64) -> Applied {
        if version < self.version {
            return Applied::Nothing;
        }
        let counted = self.mode == Mode::Counts;
        self.mode = match event["mode"].as_str() {
            Some("counts") => Mode::Counts,
            Some("coalesced") => Mode::Coalesced,
            _ => Mode::Full,
        };
        if self.mode == Mode::Counts {
            // From now on only some are named: those known would never be told to go.
            self.users.clear();
            self.anonymous.clear();
        }
        let hole = (counted && self.mode != Mode::Counts) || version > self.version;
        if hole && self.lose() { Applied::Hole } else { Applied::Changed }
    }

    fn single(&mut self, kind: &str, event: &Value) {
        match kind {
            "user_online" => self.count += 1,
            "user_offline" => self.count = self.count.saturating_sub(1),
            _ => {}
        }
        let (client, state) = (text(event, "client"), event["state"].clone());
        let Some(name) = text(event, "user") else {
            return self.nameless(kind != "client_offline", client, state);
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
                user.clients.insert(client, Guest { state, since: None });
            }
            ("client_updated", Some(client)) => {
                user.clients.entry(client).and_modify(|guest| guest.state = state);
            }
            ("client_offline", Some(client)) => {
                user.clients.remove(&client);
                user.leaving = user.clients.is_empty();
            }
            _ => {}
        }
    }

    /// Somebody without a name; without a client he hides, and is a number.
    fn nameless(&mut self, there: bool, client: Option<String>, state: Value) {
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
                (None, client) => self.nameless(false, client, Value::Null),
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
                self.nameless(true, client, state);
                continue;
            };
            let user = self.users.entry(user).or_insert_with(|| User { leaving: true, ..User::default() });
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
