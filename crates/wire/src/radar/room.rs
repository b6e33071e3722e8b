//! A presence scope that a Radar client listens to: what it has received so far, and from it the events for each change. Radar's
//! events about departures name types that Tavern's do not carry, so they are remembered here.
//! Must hold: a client gets each arrival once; only users who were there depart.

use super::state::ClientDetails;
use super::write::RadarFrames;
use crate::gateway::{HubEntry, HubEvent, HubMembers};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

#[derive(Debug)]
pub struct RadarRoom {
    to: Box<str>,
    version: u64,
    users: BTreeMap<Box<str>, KnownUser>,
    hasher: RandomState,
}

#[derive(Debug)]
struct KnownUser {
    user_id: Box<str>,
    user_type: Box<str>,
    is_told: bool,
    clients: BTreeMap<Box<str>, KnownClient>,
}

#[derive(Debug)]
struct KnownClient {
    /// A hash of its state.
    digest: u64,
    /// Its details, until the listener has received it.
    untold: Option<Box<ClientDetails>>,
}

impl RadarRoom {
    pub fn new(to: &str) -> RadarRoom {
        RadarRoom { to: to.into(), version: 0, users: BTreeMap::new(), hasher: RandomState::new() }
    }

    /// The type of a user who is known.
    pub fn type_of(&self, user: &str) -> Option<Box<str>> {
        self.users.get(user).map(|known| known.user_type.clone())
    }

    /// The scope was read: who was there before is not announced.
    pub fn load_silently(&mut self, members: &HubMembers<'_>) {
        self.version = members.version;
        self.users.clear();
        for (user, client, state) in clients_of(members) {
            let details = ClientDetails::read(user, state);
            let digest = self.digest(state);
            let known = self.user(user, &details);
            known.clients.insert(client.into(), KnownClient { digest, untold: Some(Box::new(details)) });
        }
    }

    /// The scope was read again: differences become events.
    pub fn load(&mut self, members: &HubMembers<'_>, out: &mut RadarFrames<'_>) {
        self.version = members.version;
        let mut gone: Vec<(Box<str>, Box<str>)> = Vec::new();
        for (user, known) in &self.users {
            gone.extend(known.clients.keys().map(|client| (user.clone(), client.clone())));
        }
        gone.retain(|(user, client)| {
            !clients_of(members).any(|(present, one, _)| present == &**user && one == &**client)
        });
        for (user, client) in gone {
            self.client_left(&user, &client, false, out);
        }
        let names: Vec<Box<str>> = self.users.keys().cloned().collect();
        for user in names {
            let is_there = members.users.iter().any(|member| {
                member.user.as_deref() == Some(&*user)
                    || (member.user.is_none() && member.clients.iter().any(|one| one.client == *user))
            });
            if !is_there {
                self.user_left(&user, out);
            }
        }
        for (user, client, state) in clients_of(members) {
            self.client_is(user, client, state, out);
        }
    }

    /// Announces everyone who was there before the client began to listen and whom it does not know yet.
    pub fn announce(&mut self, out: &mut RadarFrames<'_>) {
        for (user, known) in &mut self.users {
            for (client, one) in &mut known.clients {
                let Some(details) = one.untold.take() else { continue };
                if !std::mem::replace(&mut known.is_told, true) {
                    out.online(&self.to, user, &details);
                }
                out.client_online(&self.to, client, &details);
            }
        }
    }

    /// An event of the channel.
    pub fn apply(&mut self, event: &HubEvent<'_>, out: &mut RadarFrames<'_>) {
        if event.version.is_none_or(|version| version <= self.version) {
            return;
        }
        self.version = event.version.unwrap_or(self.version);
        let user = event.user.as_deref().or(event.client.as_deref());
        match (&*event.event, user, event.client.as_deref()) {
            ("client_online" | "client_updated", Some(user), Some(client)) => {
                self.client_is(user, client, event.state.map(RawValue::get), out);
            }
            ("client_offline", Some(user), Some(client)) => {
                self.client_left(user, client, event.explicit, out);
            }
            ("user_offline", Some(user), _) => self.user_left(user, out),
            ("presence", ..) => self.apply_difference(event, out),
            // An arrival is sent with the client that arrives: it has the user's data.
            _ => {}
        }
    }

    fn apply_difference(&mut self, event: &HubEvent<'_>, out: &mut RadarFrames<'_>) {
        for HubEntry { user, client, .. } in &event.left {
            match (user.as_deref().or(client.as_deref()), client.as_deref()) {
                (Some(user), Some(client)) => self.client_left(user, client, false, out),
                (Some(user), None) => self.user_left(user, out),
                (None, _) => {}
            }
        }
        for HubEntry { user, client, state } in event.joined.iter().chain(&event.updated) {
            if let Some(client) = client.as_deref() {
                let user = user.as_deref().unwrap_or(client);
                self.client_is(user, client, state.map(RawValue::get), out);
            }
        }
    }

    /// A client arrives, or has another state.
    fn client_is(&mut self, user: &str, client: &str, state: Option<&str>, out: &mut RadarFrames<'_>) {
        let details = ClientDetails::read(user, state);
        let digest = self.digest(state);
        let to = self.to.clone();
        let known = self.user(user, &details);
        if !std::mem::replace(&mut known.is_told, true) {
            out.online(&to, user, &details);
        }
        match known.clients.get_mut(client) {
            None => {
                known.clients.insert(client.into(), KnownClient { digest, untold: None });
                out.client_online(&to, client, &details);
            }
            Some(one) if one.digest != digest => {
                *one = KnownClient { digest, untold: None };
                out.client_updated(&to, client, &details);
            }
            Some(_) => {}
        }
    }

    fn client_left(&mut self, user: &str, client: &str, explicit: bool, out: &mut RadarFrames<'_>) {
        let Some(known) = self.users.get_mut(user) else { return };
        if known.clients.remove(client).is_some() {
            out.client_offline(&self.to, client, &known.user_id, explicit);
        }
    }

    fn user_left(&mut self, user: &str, out: &mut RadarFrames<'_>) {
        let Some(known) = self.users.remove(user) else { return };
        for client in known.clients.keys() {
            out.client_offline(&self.to, client, &known.user_id, false);
        }
        out.offline(&self.to, user, &known.user_type);
    }

    fn user(&mut self, user: &str, details: &ClientDetails) -> &mut KnownUser {
        self.users.entry(user.into()).or_insert_with(|| KnownUser {
            user_id: details.user_id.clone(),
            user_type: details.user_type.clone(),
            is_told: false,
            clients: BTreeMap::new(),
        })
    }

    fn digest(&self, state: Option<&str>) -> u64 {
        self.hasher.hash_one(state)
    }
}

/// All clients that are present, with their users; an anonymous user is their client.
fn clients_of<'m>(members: &'m HubMembers<'_>) -> impl Iterator<Item = (&'m str, &'m str, Option<&'m str>)> {
    members.users.iter().flat_map(|member| {
        member.clients.iter().map(|one| {
            (member.user.as_deref().unwrap_or(&one.client), &*one.client, one.state.map(RawValue::get))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::write::StampSource;
    use super::*;
    use crate::gateway::{read_events, read_members};

    const TWO: &str = r#"{"version":4,"users":[{"user":"ann","clients":[{"client":"a1","state":{"userType":2}}]},{"user":"bob","clients":[{"client":"b1","state":null},{"client":"b2","state":null}]}],"count":2}"#;

    /// Runs `act` on a room and gives the events it sent, shortened.
    fn events_of(
        room: &mut RadarRoom,
        act: impl FnOnce(&mut RadarRoom, &mut RadarFrames<'_>),
    ) -> Vec<String> {
        let mut out = RadarFrames::new(StampSource { client: "own", sentry: "n", now_ms: 0, random: &|| 0 });
        act(room, &mut out);
        let short = |frame: Vec<u8>| {
            let frame: serde_json::Value = serde_json::from_slice(&frame).unwrap();
            let value = &frame["value"];
            let name = match &value["clientId"] {
                serde_json::Value::String(client) => client.clone(),
                _ => value.to_string(),
            };
            format!("{} {name}", frame["op"].as_str().unwrap())
        };
        out.frames.into_iter().map(short).collect()
    }

    fn apply(room: &mut RadarRoom, events: &str) -> Vec<String> {
        events_of(room, |room, out| read_events(events.as_bytes(), |event| room.apply(&event, out)))
    }

    #[test]
    fn sync_announces_who_is_there_and_subscribe_does_not() {
        let members = read_members(TWO);
        let mut room = RadarRoom::new("presence:/a/b");
        room.load_silently(&members);
        let all = [
            "online {\"ann\":2}",
            "client_online a1",
            "online {\"bob\":0}",
            "client_online b1",
            "client_online b2",
        ];
        assert_eq!(events_of(&mut room, |room, out| room.announce(out)), all);
        assert!(events_of(&mut room, |room, out| room.announce(out)).is_empty(), "once");
    }

    #[test]
    fn each_change_is_told_once_and_in_the_order_of_the_original() {
        let mut room = RadarRoom::new("presence:/a/b");
        room.load_silently(&read_members(r#"{"version":1,"users":[],"count":0}"#));
        let arrives = concat!(
            r#"{"event":"user_online","version":2,"user":"ann","name":null},"#,
            r#"{"event":"client_online","version":3,"user":"ann","client":"a1","state":{"userType":2}},"#,
        );
        assert_eq!(apply(&mut room, arrives), ["online {\"ann\":2}", "client_online a1"]);
        assert!(apply(&mut room, arrives).is_empty(), "old versions are skipped");
        let changes = concat!(
            r#"{"event":"client_updated","version":4,"user":"ann","client":"a1","state":{"userType":2,"clientData":1}},"#,
            r#"{"event":"client_offline","version":5,"user":"ann","client":"a1","explicit":true},"#,
            r#"{"event":"client_offline","version":6,"user":"ann","client":"a1","explicit":true},"#,
            r#"{"event":"user_offline","version":7,"user":"ann"},"#,
            r#"{"event":"user_offline","version":8,"user":"nobody"},"#,
        );
        assert_eq!(
            apply(&mut room, changes),
            ["client_updated a1", "client_offline a1", "offline {\"ann\":2}"]
        );
    }

    #[test]
    fn a_user_who_returns_in_time_is_not_online_again() {
        let mut room = RadarRoom::new("presence:/a/b");
        room.load_silently(&read_members(TWO));
        events_of(&mut room, |room, out| room.announce(out));
        let back = concat!(
            r#"{"event":"client_offline","version":5,"user":"ann","client":"a1","explicit":false},"#,
            r#"{"event":"client_online","version":6,"user":"ann","client":"a2","state":{"userType":2}},"#,
        );
        assert_eq!(apply(&mut room, back), ["client_offline a1", "client_online a2"]);
        assert_eq!(room.type_of("ann").as_deref(), Some("2"));
    }

    #[test]
    fn differences_are_told_as_single_changes() {
        let mut room = RadarRoom::new("presence:/a/b");
        room.load_silently(&read_members(TWO));
        let difference = r#"{"event":"presence","version":9,"joined":[{"user":"cat","client":"c1","state":null}],"updated":[{"user":"ann","client":"a1","state":{"x":1}}],"left":[{"user":"bob","client":"b1"},{"user":"bob"}]},"#;
        assert_eq!(
            apply(&mut room, difference),
            [
                "client_offline b1",
                "client_offline b2",
                "offline {\"bob\":0}",
                "online {\"cat\":0}",
                "client_online c1",
                "online {\"ann\":0}",
                "client_updated a1"
            ]
        );
    }

    #[test]
    fn reading_again_tells_only_what_is_different() {
        let mut room = RadarRoom::new("presence:/a/b");
        room.load_silently(&read_members(TWO));
        events_of(&mut room, |room, out| room.announce(out));
        assert!(events_of(&mut room, |room, out| room.load(&read_members(TWO), out)).is_empty());
        let later = r#"{"version":9,"users":[{"user":"bob","clients":[{"client":"b2","state":7}]},{"user":"cat","clients":[{"client":"c1","state":null}]}],"count":2}"#;
        assert_eq!(
            events_of(&mut room, |room, out| room.load(&read_members(later), out)),
            [
                "client_offline a1",
                "client_offline b1",
                "offline {\"ann\":2}",
                "client_updated b2",
                "online {\"cat\":0}",
                "client_online c1"
            ]
        );
    }
}
