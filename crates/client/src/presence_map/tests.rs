//! The live map: events, and the map after them.

use super::*;
use serde_json::json;

fn room(version: u64, users: &[&str]) -> PresenceMap {
    let shown: Vec<Value> = users
        .iter()
        .map(|user| json!({"user": user, "name": null, "clients": [{"client": format!("{user}1"), "state": 0, "since": 5}], "since": 5}))
        .collect();
    let mut map = PresenceMap::default();
    let outcome = map.restore(&json!({"version": version, "users": shown, "count": users.len()}));
    assert_eq!(outcome, Applied::Changed);
    map
}

/// `ann(ann1=0) bob(leaving) 3`: the users, anonymous clients, and the count.
fn show(map: &PresenceMap) -> String {
    let clients = |clients: &BTreeMap<String, PresentClient>| {
        clients
            .iter()
            .map(|(client, membership)| format!("{client}={}", membership.state))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut parts: Vec<String> = map
        .users
        .iter()
        .map(|(user, shown)| {
            format!("{user}({})", if shown.leaving { "leaving".to_owned() } else { clients(&shown.clients) })
        })
        .collect();
    if !map.anonymous.is_empty() {
        parts.push(format!("?({})", clients(&map.anonymous)));
    }
    parts.push(map.count.to_string());
    parts.join(" ")
}

fn single(kind: &str, version: u64, user: Value, client: Value, state: Value) -> Value {
    json!({"event": kind, "channel": "game#1", "version": version, "user": user, "client": client, "state": state})
}

fn check(mut map: PresenceMap, events: &[Value], outcome: Applied, expected: &str) {
    let mut last = Applied::Nothing;
    for event in events {
        last = map.apply(event);
    }
    assert_eq!((last, show(&map).as_str()), (outcome, expected));
}

#[test]
fn joins_updates_and_leaves_change_the_map() {
    let events = [
        json!({"event": "user_online", "version": 8, "user": "bob", "name": "Bob"}),
        single("client_online", 9, json!("bob"), json!("b1"), json!(1)),
        single("client_updated", 10, json!("bob"), json!("b1"), json!(2)),
    ];
    check(room(7, &["ann"]), &events, Applied::Changed, "ann(ann1=0) bob(b1=2) 2");
    let lost =
        [&events[..], &[single("client_offline", 11, json!("bob"), json!("b1"), json!(null))]].concat();
    check(room(7, &["ann"]), &lost, Applied::Changed, "ann(ann1=0) bob(leaving) 2");
    let gone = [&lost[..], &[single("user_offline", 12, json!("bob"), json!(null), json!(null))]].concat();
    check(room(7, &["ann"]), &gone, Applied::Changed, "ann(ann1=0) 1");
    let back = [&lost[..], &[single("client_online", 12, json!("bob"), json!("b2"), json!(null))]].concat();
    check(room(7, &["ann"]), &back, Applied::Changed, "ann(ann1=0) bob(b2=null) 2");
}

#[test]
fn older_events_are_ignored() {
    check(
        room(7, &["ann"]),
        &[single("user_offline", 7, json!("ann"), json!(null), json!(null))],
        Applied::Nothing,
        "ann(ann1=0) 1",
    );
}

#[test]
fn missing_event_asks_for_one_snapshot_and_keeps_later_events() {
    let mut map = room(7, &["ann"]);
    assert_eq!(
        map.apply(&single("client_online", 10, json!("ann"), json!("a3"), json!(3))),
        Applied::Missing
    );
    assert_eq!(
        map.apply(&single("client_online", 11, json!("ann"), json!("a4"), json!(4))),
        Applied::Nothing
    );
    assert_eq!(show(&map), "ann(ann1=0) 1");
    map.restore(&json!({"version": 10, "count": 1, "users": [{"user": "ann", "name": null, "clients": [{"client": "a3", "state": 3}]}]}));
    assert_eq!((show(&map).as_str(), map.version), ("ann(a3=3 a4=4) 1", 11));
}

#[test]
fn version_may_jump_after_the_channel_was_empty() {
    let events = [
        json!({"event": "user_online", "version": 1_000, "user": "ann", "name": null}),
        single("client_online", 1_001, json!("ann"), json!("a1"), json!(1)),
    ];
    check(room(0, &[]), &events, Applied::Changed, "ann(a1=1) 1");
}

#[test]
fn coalesced_changes_are_applied() {
    let sum = json!({
        "event": "presence", "from_version": 7, "version": 30, "count": 2, "updated": [], "left": [{"user": "ann"}],
        "joined": [{"user": "bob", "client": "b1", "state": 1}, {"user": "bob", "client": "b2", "state": 2}, {"user": "cid"}],
    });
    check(room(7, &["ann"]), std::slice::from_ref(&sum), Applied::Changed, "bob(b1=1 b2=2) cid(leaving) 2");
    let next = json!({
        "event": "presence", "from_version": 30, "version": 31, "count": 2, "joined": [],
        "updated": [{"user": "bob", "client": "b1", "state": 9}], "left": [{"user": "bob", "client": "b2"}],
    });
    check(room(7, &["ann"]), &[sum.clone(), next], Applied::Changed, "bob(b1=9) cid(leaving) 2");
    let hole = json!({"event": "presence", "from_version": 40, "version": 41, "count": 9, "joined": [], "updated": [], "left": []});
    check(room(7, &["ann"]), &[sum, hole], Applied::Missing, "bob(b1=1 b2=2) cid(leaving) 2");
}

#[test]
fn anonymous_users_are_counted_and_known_by_client() {
    let events = [
        json!({"event": "user_online", "version": 8, "user": null, "name": null}),
        single("client_online", 9, json!(null), json!("x1"), json!(5)),
        json!({"event": "user_online", "version": 10, "user": null, "name": null}),
        single("client_online", 11, json!(null), json!(null), json!(null)),
    ];
    check(room(7, &["ann"]), &events, Applied::Changed, "ann(ann1=0) ?(x1=5) 3");
    let gone = [&events[..], &[single("client_offline", 12, json!(null), json!("x1"), json!(null))]].concat();
    check(room(7, &["ann"]), &gone, Applied::Changed, "ann(ann1=0) 3");
}

#[test]
fn counts_mode_drops_users_and_a_snapshot_restores_them() {
    let mut map = room(7, &["ann"]);
    let mode = |mode: &str, version: u64| json!({"event": "presence_mode", "mode": mode, "version": version});
    assert_eq!(map.apply(&mode("counts", 7)), Applied::Changed);
    map.apply(&json!({"event": "presence", "from_version": 7, "version": 9, "count": 6_000}));
    assert_eq!((show(&map).as_str(), map.mode), ("6000", PresenceMode::Counts));
    assert_eq!(map.apply(&mode("coalesced", 9)), Applied::Missing);
    map.restore(&json!({"version": 9, "count": 0, "users": []}));
    assert_eq!((show(&map).as_str(), map.mode), ("0", PresenceMode::Coalesced));
    assert_eq!(PresenceMap::default().restore(&json!({"version": 3, "count": 9_000})), Applied::Changed);
}

#[test]
fn changes_before_the_first_snapshot_are_kept() {
    let mut map = PresenceMap::default();
    assert_eq!(map.apply(&single("client_online", 8, json!("ann"), json!("a2"), json!(2))), Applied::Nothing);
    map.restore(&json!({"version": 7, "count": 1, "users": [{"user": "ann", "name": null, "clients": []}]}));
    assert_eq!(show(&map), "ann(a2=2) 1");
}
