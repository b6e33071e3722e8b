//! Presence as JSON: the events for watchers, and who is in a channel.

pub use super::digest::state_digest;
use super::encode::{number, string};
use std::sync::Arc;
use tavern_domain::ClientId;
use tavern_domain::presence::{
    AttendanceChange, ClientState, DepartedClient, PresenceMode, PresenceUpdate, PresentClient,
    RoomDifference, RoomMember, Visibility, VisibilityChanged,
};

/// Whether the reader may see a user with this visibility. Users they may not see appear as anonymous.
pub type CanSee<'a> = &'a dyn Fn(&str, Visibility) -> bool;

/// The rights of an unknown reader: they see users who are visible to everyone.
pub fn seen_by_everyone(_user: &str, visibility: Visibility) -> bool {
    visibility == Visibility::Everyone
}

/// The tail of the event for one change, with the channel's version after it. A change of visibility is sent as a difference.
pub fn change_tail(
    out: &mut Vec<u8>,
    channel: &str,
    update: &PresenceUpdate,
    change: &AttendanceChange,
    version: u64,
    sees: CanSee<'_>,
) {
    let event = match change {
        AttendanceChange::UserOnline => "user_online",
        AttendanceChange::ClientOnline { .. } => "client_online",
        AttendanceChange::ClientUpdated { .. } => "client_updated",
        AttendanceChange::ClientOffline { .. } => "client_offline",
        AttendanceChange::UserOffline { .. } => "user_offline",
        AttendanceChange::VisibilityChanged { .. } | AttendanceChange::NotFound => return,
    };
    head(out, event, channel);
    member(out, "version", |out| number(out, version));
    let hidden = !sees(&update.user, update.visibility);
    // The client's id and its state would identify the user.
    let client_id = |out: &mut Vec<u8>, client: &ClientId| match hidden {
        true => out.extend_from_slice(b"null"),
        false => string(out, &client.to_string()),
    };
    let shown = |given: Option<&'_ ClientState>| given.filter(|_| !hidden).map(|state| state.text.clone());
    member(out, "user", |out| user(out, &update.user, update.anonymous || hidden));
    match change {
        AttendanceChange::UserOnline => {
            member(out, "name", |out| optional(out, update.name.as_ref().filter(|_| !hidden)))
        }
        AttendanceChange::ClientOnline { client, state: given } => {
            member(out, "client", |out| client_id(out, client));
            member(out, "state", |out| raw(out, shown(given.as_ref()).as_deref()));
        }
        AttendanceChange::ClientUpdated { client, state: given } => {
            member(out, "client", |out| client_id(out, client));
            member(out, "state", |out| raw(out, shown(Some(given)).as_deref()));
        }
        AttendanceChange::ClientOffline { client, reason } => {
            member(out, "client", |out| client_id(out, client));
            member(out, "explicit", |out| boolean(out, reason.is_explicit()));
            member(out, "reason", |out| string(out, reason.as_str()));
        }
        AttendanceChange::UserOffline { last_seen, reason } => {
            member(out, "last_seen", |out| number(out, last_seen.ms()));
            member(out, "reason", |out| string(out, reason.as_str()));
        }
        AttendanceChange::VisibilityChanged { .. } | AttendanceChange::NotFound => {}
    }
    out.push(b'}');
}

/// The tail of a `presence` event: a difference.
pub fn difference_tail(out: &mut Vec<u8>, channel: &str, difference: &RoomDifference, sees: CanSee<'_>) {
    let mut joined: Vec<ShownUser<'_>> =
        difference.joined.iter().filter_map(|entry| arrived(entry, sees)).collect();
    let updated = difference.updated.iter().filter(|entry| sees(&entry.user, entry.visibility));
    let updated: Vec<ShownUser<'_>> = updated.filter_map(|entry| arrived(entry, sees)).collect();
    let mut left: Vec<ShownUser<'_>> =
        difference.left.iter().filter_map(|gone| departed(gone, sees)).collect();
    difference
        .visibility_changed
        .iter()
        .for_each(|change| visibility_change(change, sees, &mut joined, &mut left));
    head(out, "presence", channel);
    member(out, "from_version", |out| number(out, difference.from));
    member(out, "version", |out| number(out, difference.to));
    member(out, "joined", |out| list(out, &joined, |out, shown| entry(out, shown, true)));
    member(out, "updated", |out| list(out, &updated, |out, shown| entry(out, shown, true)));
    member(out, "left", |out| list(out, &left, |out, shown| entry(out, shown, false)));
    member(out, "count", |out| number(out, difference.count as u64));
    out.push(b'}');
}

/// The tail of a `presence` event in counts mode: only the number of users.
pub fn count_tail(out: &mut Vec<u8>, channel: &str, difference: &RoomDifference) {
    head(out, "presence", channel);
    member(out, "from_version", |out| number(out, difference.from));
    member(out, "version", |out| number(out, difference.to));
    member(out, "count", |out| number(out, difference.count as u64));
    out.push(b'}');
}

/// The tail of the event that announces a new mode.
pub fn mode_tail(out: &mut Vec<u8>, channel: &str, mode: PresenceMode, version: u64) {
    head(out, "presence_mode", channel);
    member(out, "mode", |out| string(out, mode.as_str()));
    member(out, "version", |out| number(out, version));
    out.push(b'}');
}

/// The members of a channel, or a page of them.
pub struct MemberPage<'a> {
    pub version: u64,
    pub count: u64,
    /// `None`: only the count was asked for.
    pub users: Option<Vec<(&'a Arc<str>, &'a RoomMember)>>,
    /// The next page begins after this one.
    pub next: Option<&'a str>,
}

pub fn members(out: &mut Vec<u8>, members: &MemberPage<'_>, sees: CanSee<'_>) {
    out.extend_from_slice(b"{\"version\":");
    number(out, members.version);
    if let Some(users) = &members.users {
        member(out, "users", |out| list(out, users, |out, (name, shown)| present(out, name, shown, sees)));
    }
    member(out, "count", |out| number(out, members.count));
    if let Some(next) = members.next {
        member(out, "next", |out| string(out, next));
    }
    out.push(b'}');
}

fn present(out: &mut Vec<u8>, name: &Arc<str>, shown: &RoomMember, sees: CanSee<'_>) {
    let hidden = !sees(name, shown.visibility);
    out.extend_from_slice(b"{\"user\":");
    user(out, name, shown.anonymous || hidden);
    member(out, "name", |out| optional(out, shown.name.as_ref().filter(|_| !hidden)));
    let clients: Vec<_> = shown.clients.iter().filter(|_| !hidden).collect();
    member(out, "clients", |out| {
        list(out, &clients, |out, (client, seen)| {
            out.extend_from_slice(b"{\"client\":");
            string(out, &client.to_string());
            member(out, "state", |out| state(out, seen.state.as_ref()));
            member(out, "since", |out| number(out, seen.since.ms()));
            out.push(b'}');
        });
    });
    member(out, "since", |out| number(out, shown.since.ms()));
    if shown.leaving {
        member(out, "leaving", |out| boolean(out, true));
    }
    out.push(b'}');
}

/// A user in a difference, as one reader sees them.
struct ShownUser<'a> {
    /// `None`: anonymous.
    user: Option<&'a str>,
    client: Option<String>,
    state: Option<&'a ClientState>,
}

impl ShownUser<'_> {
    const ANONYMOUS: ShownUser<'static> = ShownUser { user: None, client: None, state: None };
}

fn arrived<'a>(entry: &'a PresentClient, sees: CanSee<'_>) -> Option<ShownUser<'a>> {
    if !sees(&entry.user, entry.visibility) {
        // A user counts once, however many clients they have.
        return entry.arrives.then_some(ShownUser::ANONYMOUS);
    }
    Some(ShownUser {
        user: (!entry.anonymous).then_some(&entry.user),
        client: entry.client.map(|client| client.to_string()),
        state: entry.state.as_ref(),
    })
}

fn departed<'a>(gone: &'a DepartedClient, sees: CanSee<'_>) -> Option<ShownUser<'a>> {
    if !sees(&gone.user, gone.visibility) {
        return gone.client.is_none().then_some(ShownUser::ANONYMOUS);
    }
    let client = gone.client.map(|client| client.to_string());
    Some(ShownUser {
        user: (!gone.anonymous).then_some(&gone.user),
        // An anonymous user is one client, and identified by it.
        client: client.or_else(|| gone.anonymous.then(|| gone.user.to_string())),
        state: None,
    })
}

/// Some readers see the user leave and an anonymous one come, some the reverse; for the others nothing changes.
fn visibility_change<'a>(
    change: &'a VisibilityChanged,
    sees: CanSee<'_>,
    joined: &mut Vec<ShownUser<'a>>,
    left: &mut Vec<ShownUser<'a>>,
) {
    let user = Some(&*change.user);
    match (sees(&change.user, change.from), sees(&change.user, change.to)) {
        (true, false) => {
            left.push(ShownUser { user, ..ShownUser::ANONYMOUS });
            joined.retain(|shown| shown.user != user);
            joined.push(ShownUser::ANONYMOUS);
        }
        (false, true) => {
            left.retain(|shown| shown.user != user);
            left.push(ShownUser::ANONYMOUS);
            joined.retain(|shown| shown.user != user);
            if change.clients.is_empty() {
                joined.push(ShownUser { user, ..ShownUser::ANONYMOUS });
            }
            joined.extend(change.clients.iter().map(|(client, seen)| ShownUser {
                user,
                client: Some(client.to_string()),
                state: seen.state.as_ref(),
            }));
        }
        _ => {}
    }
}

fn entry(out: &mut Vec<u8>, shown: &ShownUser<'_>, with_state: bool) {
    out.extend_from_slice(b"{\"user\":");
    match shown.user {
        Some(user) => string(out, user),
        None => out.extend_from_slice(b"null"),
    }
    if let Some(client) = &shown.client {
        member(out, "client", |out| string(out, client));
        if with_state {
            member(out, "state", |out| state(out, shown.state));
        }
    }
    out.push(b'}');
}

fn head(out: &mut Vec<u8>, event: &str, channel: &str) {
    out.extend_from_slice(b",\"event\":");
    string(out, event);
    member(out, "channel", |out| string(out, channel));
}

fn member(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    value(out);
}

fn list<T>(out: &mut Vec<u8>, items: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}

/// Anonymous users are counted, never named.
fn user(out: &mut Vec<u8>, name: &str, anonymous: bool) {
    if anonymous { out.extend_from_slice(b"null") } else { string(out, name) }
}

fn optional(out: &mut Vec<u8>, text: Option<&Arc<str>>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn state(out: &mut Vec<u8>, state: Option<&ClientState>) {
    raw(out, state.map(|state| &*state.text));
}

/// JSON as it was given.
fn raw(out: &mut Vec<u8>, json: Option<&str>) {
    out.extend_from_slice(json.unwrap_or("null").as_bytes());
}

fn boolean(out: &mut Vec<u8>, on: bool) {
    out.extend_from_slice(if on { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;
    use tavern_domain::presence::{OfflineReason, RoomClient};

    fn check(change: AttendanceChange, expected: &str) {
        let update = PresenceUpdate {
            user: "ann".into(),
            name: Some("Ann".into()),
            anonymous: false,
            visibility: Visibility::Everyone,
            at: Time(1),
            changes: Vec::new(),
            to: 9,
            begins: false,
        };
        let mut out = Vec::new();
        change_tail(&mut out, "game#A", &update, &change, 9, &seen_by_everyone);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn every_change_has_its_event() {
        let client = ClientId::from_random(1);
        let state = ClientState { text: "{\"x\":1}".into(), digest: 1 };
        check(
            AttendanceChange::UserOnline,
            r#","event":"user_online","channel":"game#A","version":9,"user":"ann","name":"Ann"}"#,
        );
        check(
            AttendanceChange::ClientOnline { client, state: None },
            r#","event":"client_online","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","state":null}"#,
        );
        check(
            AttendanceChange::ClientUpdated { client, state },
            r#","event":"client_updated","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","state":{"x":1}}"#,
        );
        check(
            AttendanceChange::ClientOffline { client, reason: OfflineReason::NodeDown },
            r#","event":"client_offline","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","explicit":false,"reason":"node_down"}"#,
        );
        check(
            AttendanceChange::UserOffline { last_seen: Time(5), reason: OfflineReason::Left },
            r#","event":"user_offline","channel":"game#A","version":9,"user":"ann","last_seen":5,"reason":"left"}"#,
        );
    }

    #[test]
    fn members_are_listed_by_user_and_anonymous_ones_without_a_name() {
        let client = ClientId::from_random(1);
        let seen = RoomClient { state: None, since: Time(2) };
        let ann = RoomMember { since: Time(1), clients: [(client, seen)].into(), ..RoomMember::default() };
        let ghost = RoomMember { anonymous: true, leaving: true, ..RoomMember::default() };
        let (name, id): (Arc<str>, Arc<str>) = ("ann".into(), "0000000000000002".into());
        let shown = MemberPage {
            version: 7,
            count: 3,
            users: Some(vec![(&name, &ann), (&id, &ghost)]),
            next: Some("x"),
        };
        let mut out = Vec::new();
        members(&mut out, &shown, &seen_by_everyone);
        let expected = r#"{"version":7,"users":[{"user":"ann","name":null,"clients":[{"client":"0000000000000001","state":null,"since":2}],"since":1},{"user":null,"name":null,"clients":[],"since":0,"leaving":true}],"count":3,"next":"x"}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_difference_shows_the_current_state() {
        let client = Some(ClientId::from_random(1));
        let visibility = Visibility::Everyone;
        let entry = PresentClient {
            user: "ann".into(),
            anonymous: false,
            visibility,
            arrives: true,
            client,
            state: None,
        };
        let ghost =
            DepartedClient { user: "0000000000000009".into(), anonymous: true, visibility, client: None };
        let difference = RoomDifference {
            from: 3,
            to: 8,
            joined: vec![entry],
            left: vec![
                DepartedClient { user: "bob".into(), anonymous: false, visibility, client: None },
                ghost,
            ],
            count: 4,
            ..RoomDifference::default()
        };
        let mut out = Vec::new();
        difference_tail(&mut out, "game#A", &difference, &seen_by_everyone);
        let expected = r#","event":"presence","channel":"game#A","from_version":3,"version":8,"joined":[{"user":"ann","client":"0000000000000001","state":null}],"updated":[],"left":[{"user":"bob"},{"user":null,"client":"0000000000000009"}],"count":4}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
    #[test]
    fn a_hidden_user_is_counted_and_never_named() {
        let hidden = |change: AttendanceChange| {
            let update = PresenceUpdate {
                user: "ann".into(),
                name: Some("Ann".into()),
                anonymous: false,
                visibility: Visibility::Nobody,
                at: Time(1),
                changes: Vec::new(),
                to: 9,
                begins: false,
            };
            let mut out = Vec::new();
            change_tail(&mut out, "game#A", &update, &change, 9, &seen_by_everyone);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("\"user\":null"), "{text}");
            assert!(
                ["\"ann", "Ann", "0000000000000001", "secret"].iter().all(|word| !text.contains(word)),
                "{text}"
            );
        };
        let client = ClientId::from_random(1);
        let state = ClientState { text: "\"secret\"".into(), digest: 1 };
        hidden(AttendanceChange::UserOnline);
        hidden(AttendanceChange::ClientOnline { client, state: Some(state.clone()) });
        hidden(AttendanceChange::ClientUpdated { client, state });
        hidden(AttendanceChange::ClientOffline { client, reason: OfflineReason::Left });
        hidden(AttendanceChange::UserOffline { last_seen: Time(5), reason: OfflineReason::Left });
    }

    #[test]
    fn a_change_of_visibility_is_a_departure_for_some_and_an_arrival_for_others() {
        let seen = tavern_domain::presence::RoomClient { state: None, since: Time(2) };
        let clients = [(ClientId::from_random(1), seen)];
        let check = |from, to, sees: CanSee<'_>, expected: &str| {
            let change = VisibilityChanged { user: "ann".into(), from, to, clients: clients.clone().into() };
            let difference = RoomDifference {
                from: 3,
                to: 4,
                visibility_changed: vec![change],
                count: 1,
                ..RoomDifference::default()
            };
            let mut out = Vec::new();
            difference_tail(&mut out, "game#A", &difference, sees);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(expected), "{text}");
        };
        let (open, shut) = (Visibility::Everyone, Visibility::Nobody);
        let anonymous = r#""joined":[{"user":null}],"updated":[],"left":[{"user":"ann"}]"#;
        check(open, shut, &seen_by_everyone, anonymous);
        let ann = r#""joined":[{"user":"ann","client":"0000000000000001","state":null}],"updated":[],"left":[{"user":null}]"#;
        check(shut, open, &seen_by_everyone, ann);
        check(open, shut, &|_, _| true, r#""joined":[],"updated":[],"left":[]"#);
    }
}
