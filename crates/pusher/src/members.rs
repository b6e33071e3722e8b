//! The members of a presence channel as one socket knows them: users, with the state of their first client as `user_info`.
//! Must hold: a user is added once and removed once, however many clients they have.

use crate::app::PusherApp;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use tavern_wire::gateway::{HubEvent, HubMembers};

#[derive(Debug, Default)]
pub struct PresenceMembers {
    version: u64,
    /// By their id in the app.
    users: BTreeMap<String, Box<RawValue>>,
}

/// What a subscriber is told.
#[derive(Debug)]
pub enum MemberChange<'a> {
    Added { user_id: &'a str, user_info: &'a RawValue },
    Removed { user_id: &'a str },
}

impl PresenceMembers {
    /// One page of the members; `first` begins a new list.
    pub fn load(&mut self, app: &PusherApp, page: &HubMembers<'_>, first: bool) {
        if first {
            self.users.clear();
            self.version = page.version;
        }
        for member in &page.users {
            // Users without a name are in the count of Tavern's clients; a member needs an id.
            let Some(user) = member.user.as_deref() else { continue };
            let info = member.clients.iter().find_map(|client| client.state);
            self.users.insert(app.user_id(user), owned(info));
        }
    }

    /// The channel was read again, after events were lost: differences become changes.
    pub fn replace(&mut self, fresh: PresenceMembers, mut tell: impl FnMut(MemberChange<'_>)) {
        let old = std::mem::replace(self, fresh);
        for user_id in old.users.keys().filter(|id| !self.users.contains_key(*id)) {
            tell(MemberChange::Removed { user_id });
        }
        for (user_id, user_info) in self.users.iter().filter(|(id, _)| !old.users.contains_key(*id)) {
            tell(MemberChange::Added { user_id, user_info });
        }
    }

    /// An event of the channel.
    pub fn apply(&mut self, app: &PusherApp, event: &HubEvent<'_>, mut tell: impl FnMut(MemberChange<'_>)) {
        if event.version.is_none_or(|version| version <= self.version) {
            return;
        }
        self.version = event.version.unwrap_or(self.version);
        match (&*event.event, event.user.as_deref()) {
            // A user comes with their first client, which has their state.
            ("client_online" | "client_updated", Some(user)) => {
                self.is_here(app, user, event.state, &mut tell)
            }
            ("user_offline", Some(user)) => self.is_gone(app, user, &mut tell),
            ("presence", _) => {
                let gone = event.left.iter().filter(|entry| entry.client.is_none());
                for user in gone.filter_map(|entry| entry.user.as_deref()) {
                    self.is_gone(app, user, &mut tell);
                }
                for entry in event.joined.iter().chain(&event.updated) {
                    if let Some(user) = entry.user.as_deref() {
                        self.is_here(app, user, entry.state, &mut tell);
                    }
                }
            }
            _ => {}
        }
    }

    fn is_here(
        &mut self,
        app: &PusherApp,
        user: &str,
        state: Option<&RawValue>,
        tell: &mut impl FnMut(MemberChange<'_>),
    ) {
        if let Entry::Vacant(place) = self.users.entry(app.user_id(user)) {
            let user_info = owned(state);
            tell(MemberChange::Added { user_id: place.key(), user_info: &user_info });
            place.insert(user_info);
        }
    }

    fn is_gone(&mut self, app: &PusherApp, user: &str, tell: &mut impl FnMut(MemberChange<'_>)) {
        let user_id = app.user_id(user);
        if self.users.remove(&user_id).is_some() {
            tell(MemberChange::Removed { user_id: &user_id });
        }
    }

    pub(crate) fn users(&self) -> &BTreeMap<String, Box<RawValue>> {
        &self.users
    }

    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

fn owned(state: Option<&RawValue>) -> Box<RawValue> {
    state.unwrap_or(RawValue::NULL).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;
    use tavern_wire::gateway::{read_events, read_members};

    const TWO: &str = r#"{"version":4,"users":[{"user":"3:ann","clients":[{"client":"a1","state":{"n":1}}]},{"user":"bob","clients":[]},{"user":null,"clients":[{"client":"x"}]}],"count":3}"#;

    fn two() -> PresenceMembers {
        let mut members = PresenceMembers::default();
        members.load(&sample(), &read_members(TWO), true);
        members
    }

    fn told(change: MemberChange<'_>) -> String {
        match change {
            MemberChange::Added { user_id, user_info } => format!("+{user_id} {user_info}"),
            MemberChange::Removed { user_id } => format!("-{user_id}"),
        }
    }

    fn check(events: &str, expected: &[&str]) {
        let (mut members, mut seen) = (two(), Vec::new());
        read_events(events.as_bytes(), |event| {
            members.apply(&sample(), &event, |change| seen.push(told(change)))
        });
        assert_eq!(seen, expected, "{events}");
    }

    #[test]
    fn members_are_users_with_the_state_of_a_client() {
        let members = two();
        let shown: Vec<String> = members.users().iter().map(|(id, info)| format!("{id} {info}")).collect();
        assert_eq!(shown, [r#"ann {"n":1}"#, "tavern:bob null"]);
    }

    #[test]
    fn a_user_is_added_once_and_removed_once() {
        check(
            concat!(
                r#"{"event":"user_online","version":5,"user":"3:cat"},"#,
                r#"{"event":"client_online","version":6,"user":"3:cat","client":"c1","state":{"n":3}},"#,
                r#"{"event":"client_online","version":7,"user":"3:cat","client":"c2","state":{"n":4}},"#,
                r#"{"event":"client_offline","version":8,"user":"3:cat","client":"c1"},"#,
                r#"{"event":"client_offline","version":9,"user":"3:cat","client":"c2"},"#,
                r#"{"event":"user_offline","version":10,"user":"3:cat"},"#,
                r#"{"event":"user_offline","version":10,"user":"3:ann"},"#,
            ),
            &[r#"+cat {"n":3}"#, "-cat"],
        );
        check(r#"{"event":"client_online","version":5,"user":"3:ann","client":"a2","state":{"n":9}},"#, &[]);
        check(r#"{"event":"client_online","version":5,"user":null,"client":"a2"},"#, &[]);
    }

    #[test]
    fn differences_are_told_as_changes() {
        check(
            r#"{"event":"presence","version":9,"joined":[{"user":"3:cat","client":"c1","state":7}],"left":[{"user":"3:ann","client":"a1"},{"user":"3:ann"}]},"#,
            &["-ann", "+cat 7"],
        );
    }

    #[test]
    fn reading_again_tells_what_is_different() {
        let (mut members, mut fresh, mut seen) = (two(), PresenceMembers::default(), Vec::new());
        let later = r#"{"version":9,"users":[{"user":"3:ann","clients":[]},{"user":"3:cat","clients":[{"client":"c1","state":1}]}]}"#;
        fresh.load(&sample(), &read_members(later), true);
        members.replace(fresh, |change| seen.push(told(change)));
        assert_eq!(seen, ["-tavern:bob", "+cat 1"]);
    }
}
