//! The view of one watcher of one channel: the snapshot it received and the changes since, as a client would keep it.
//! Must hold: versions grow by one, or by a difference with its base version; a user appears before their clients and
//! disappears after them; no event repeats what is already known.

use crate::cluster::Cluster;
use serde_json::Value;
use std::collections::BTreeMap;
use tavern_domain::presence::{Attendance, ChannelClient};
use tavern_store::{Found, Read};

/// Users, their clients, the states of these.
pub type ChannelSnapshot = BTreeMap<String, BTreeMap<String, String>>;

#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub version: u64,
    pub users: ChannelSnapshot,
}

impl View {
    /// From the members in the answer to `subscribe` or `who`.
    pub fn begin(members: &Value) -> Result<View, String> {
        let mut view = View { version: number(members, "version")?, users: BTreeMap::new() };
        for user in list(members, "users")? {
            let clients = view.users.entry(text(user, "user")?).or_default();
            for client in list(user, "clients")? {
                clients.insert(text(client, "client")?, client["state"].to_string());
            }
            if clients.is_empty() != (user["leaving"] == true) {
                return Err(format!("leaving does not fit: {user}"));
            }
        }
        if number(members, "count")? != view.users.len() as u64 {
            return Err(format!("the count is wrong: {members}"));
        }
        Ok(view)
    }

    pub fn apply(&mut self, event: &Value) -> Result<(), String> {
        let kind = event["event"].as_str().unwrap_or_default();
        let version = number(event, "version")?;
        if kind == "presence" {
            let from = number(event, "from_version")?;
            if from != self.version || version <= from {
                return Err(format!(
                    "a difference from {from} to {version} was received at {}",
                    self.version
                ));
            }
            self.version = version;
            return self.differ(event);
        }
        // A channel that became empty may jump when a user comes back.
        let begins = kind == "user_online" && self.users.is_empty() && version > self.version;
        if version != self.version + 1 && !begins {
            return Err(format!("version {version} was received after {}: {event}", self.version));
        }
        self.version = version;
        self.change(kind, event)
    }

    fn change(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let user = text(event, "user")?;
        let fits = match kind {
            "user_online" => self.users.insert(user, BTreeMap::new()).is_none(),
            "user_offline" => self.users.remove(&user).is_some_and(|clients| clients.is_empty()),
            "client_online" => {
                let (client, state) = (text(event, "client")?, event["state"].to_string());
                self.users.get_mut(&user).is_some_and(|clients| clients.insert(client, state).is_none())
            }
            "client_updated" => {
                let (client, state) = (text(event, "client")?, event["state"].to_string());
                let known = self.users.get_mut(&user).and_then(|clients| clients.get_mut(&client));
                known.is_some_and(|known| std::mem::replace(known, state.clone()) != state)
            }
            "client_offline" => {
                let client = text(event, "client")?;
                self.users.get_mut(&user).is_some_and(|clients| clients.remove(&client).is_some())
            }
            _ => return Err(format!("an unknown event: {event}")),
        };
        if fits { Ok(()) } else { Err(format!("this does not follow from the earlier events: {event}")) }
    }

    /// Entries are absolute: the current clients, and the removed ones.
    fn differ(&mut self, event: &Value) -> Result<(), String> {
        let known = |fits: bool| match fits {
            true => Ok(()),
            false => Err(format!("this difference does not follow from the earlier events: {event}")),
        };
        for gone in list(event, "left")? {
            let user = text(gone, "user")?;
            match gone.get("client").and_then(Value::as_str) {
                None => known(self.users.remove(&user).is_some())?,
                Some(client) => {
                    let clients = self.users.get_mut(&user);
                    known(clients.is_some_and(|clients| clients.remove(client).is_some()))?;
                }
            }
        }
        for entry in list(event, "joined")? {
            let clients = self.users.entry(text(entry, "user")?).or_default();
            if let Some(client) = entry.get("client").and_then(Value::as_str) {
                known(clients.insert(client.into(), entry["state"].to_string()).is_none())?;
            }
        }
        for entry in list(event, "updated")? {
            let clients = self.users.entry(text(entry, "user")?).or_default();
            known(clients.insert(text(entry, "client")?, entry["state"].to_string()).is_some())?;
        }
        if number(event, "count")? != self.users.len() as u64 {
            return Err(format!(
                "{} users are known, which differs from the event: {event}",
                self.users.len()
            ));
        }
        Ok(())
    }
}

fn number(value: &Value, name: &str) -> Result<u64, String> {
    value[name].as_u64().ok_or_else(|| format!("no {name} in {value}"))
}

fn text(value: &Value, name: &str) -> Result<String, String> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| format!("no {name} in {value}"))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    value[name].as_array().ok_or_else(|| format!("no {name} in {value}"))
}

/// The stored version of a channel, and its users.
pub fn roster(cluster: &Cluster, channel: &str) -> (u64, BTreeMap<String, Attendance>) {
    let read = Read::Roster { channel: channel.into(), after: None, limit: 1000 };
    let Found::Roster(roster) = cluster.peek(read) else { return Default::default() };
    let rows = roster.page.rows.into_iter().map(|row| (row.row.key.user.to_string(), row.row.attendance));
    (roster.version, rows.collect())
}

pub fn snapshot_of(rows: &BTreeMap<String, Attendance>) -> ChannelSnapshot {
    let state =
        |client: &ChannelClient| client.state.as_ref().map_or("null".into(), |state| state.text.to_string());
    let clients = |row: &Attendance| row.connected().map(|c| (c.client.to_string(), state(c))).collect();
    rows.iter().map(|(user, row)| (user.clone(), clients(row))).collect()
}
