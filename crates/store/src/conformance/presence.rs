//! Presences, the versions of channels, and the lists they are found in.

use super::fixture::*;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason,
};

fn attendee(n: u128, node: &str) -> ChannelClient {
    ChannelClient {
        client: ClientId::from_random(n),
        node: NodeEpoch { node: node.into(), epoch: Epoch(1) },
        state: None,
        since: Time(7),
        lost: None,
    }
}

fn presence(channel: &str, user: &str, clients: Vec<ChannelClient>) -> PresenceRow {
    PresenceRow {
        key: PresenceKey::new(channel, user),
        anonymous: false,
        name: None,
        visibility: Visibility::Everyone,
        attendance: Attendance::restore(clients, Time(7), None),
    }
}

fn raise(channel: &str, by: u32) -> ChannelVersionBump {
    ChannelVersionBump { channel: channel.into(), by }
}

/// A user joins a channel, which is two changes.
pub(super) fn arrive(channel: &str, user: &str) -> Commit {
    let row = Row::Presence(presence(channel, user, vec![attendee(1, "n1")]));
    Commit { puts: vec![row], raises: vec![raise(channel, 2)], ..Commit::default() }
}

fn go(channel: &str, user: &str) -> Commit {
    let key = RowKey::Presence(PresenceKey::new(channel, user));
    Commit { deletes: vec![key], raises: vec![raise(channel, 2)], ..Commit::default() }
}

fn get(client: &BlockingStore, channel: &str, user: &str) -> Option<Versioned<PresenceRow>> {
    match client.read(Read::Presence(PresenceKey::new(channel, user))) {
        Ok(Found::Presence(found)) => found,
        other => panic!("no presence but {other:?}"),
    }
}

fn roster(client: &BlockingStore, channel: &str, after: Option<&str>, limit: u32) -> PresencePage {
    match client.read(Read::Roster { channel: channel.into(), after: after.map(Arc::from), limit }) {
        Ok(Found::Roster(roster)) => roster,
        other => panic!("no roster but {other:?}"),
    }
}

fn presences(client: &BlockingStore, read: Read) -> Page<Versioned<PresenceRow>> {
    match client.read(read) {
        Ok(Found::Presences(page)) => page,
        other => panic!("no presences but {other:?}"),
    }
}

fn names(page: &Page<Versioned<PresenceRow>>) -> Vec<String> {
    page.rows.iter().map(|row| format!("{} in {}", row.row.key.user, row.row.key.channel)).collect()
}

pub(super) fn a_presence_is_read_as_it_was_put(world: &dyn StoreUnderTest) {
    let client = client(world);
    let state = |text: &str, digest| Some(ClientState { text: text.into(), digest });
    let clients = vec![
        ChannelClient { state: state("{\"ü\": 1}", u64::MAX), ..attendee(9, "n1") },
        ChannelClient { lost: Some(LostClient { at: Time(8), until: Time::NEVER }), ..attendee(1, "n2") },
        ChannelClient { state: state("null", 0), ..attendee(5, "n2") },
    ];
    let departed = Some(LastDeparture { reason: OfflineReason::NodeDown, seen: Time(8) });
    let full = PresenceRow {
        name: Some("Älice".into()),
        visibility: Visibility::FollowersIFollow,
        attendance: Attendance::restore(clients, Time(3), departed),
        ..presence("game#A b", "al/ice", Vec::new())
    };
    let bare = PresenceRow { anonymous: true, ..presence("game#A b", "zoe", vec![attendee(2, "n1")]) };
    let puts = [&full, &bare].map(|row| Row::Presence(row.clone())).to_vec();
    let commit = Commit { puts, raises: vec![raise("game#A b", 4)], ..Commit::default() };
    let receipt = client.commit(commit).unwrap();
    for (row, version) in [full.clone(), bare].into_iter().zip(versions(&receipt.put)) {
        assert_eq!(get(&client, "game#A b", &row.key.user), Some(Versioned { version, row }));
    }
    let less =
        PresenceRow { attendance: Attendance::restore(vec![attendee(9, "n3")], Time(3), None), ..full };
    let put = vec![Row::Presence(less.clone())];
    client.commit(Commit { puts: put, raises: vec![raise("game#A b", 1)], ..Commit::default() }).unwrap();
    assert_eq!(get(&client, "game#A b", "al/ice").unwrap().row, less, "nothing of the earlier one stays");
}

pub(super) fn a_channels_version_counts_its_changes(world: &dyn StoreUnderTest) {
    let client = client(world);
    let first = client.commit(arrive("game#A", "ann")).unwrap();
    let begun = first.raised[0].version;
    assert!(first.raised[0].was_empty);
    assert!(begun > first.time.0 * 1000, "it begins at the store's time and counts both changes");
    let second = client.commit(arrive("game#A", "bob")).unwrap();
    assert_eq!((second.raised[0].version, second.raised[0].was_empty), (begun + 2, false));
    let silent = Commit { raises: vec![raise("game#A", 0)], ..arrive("game#A", "bob") };
    assert_eq!(client.commit(silent).unwrap().raised[0].version, begun + 2, "watchers see no change");
    let both = Commit {
        puts: [arrive("game#A", "eve").puts, arrive("game#B", "eve").puts].concat(),
        raises: vec![raise("game#B", 2), raise("game#A", 2)],
        ..Commit::default()
    };
    let raised = client.commit(both).unwrap();
    let raised = ["game#A", "game#B"].map(|channel| raised.channel(channel).unwrap().version);
    assert_eq!(raised[0], begun + 4);
    assert_eq!(
        (roster(&client, "game#A", None, 10).version, roster(&client, "game#B", None, 10).version),
        (raised[0], raised[1])
    );
}

pub(super) fn a_channel_exists_as_long_as_it_has_users(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(arrive("game#A", "ann")).unwrap();
    client.commit(arrive("game#A", "bob")).unwrap();
    client.commit(go("game#A", "ann")).unwrap();
    assert_eq!(roster(&client, "game#A", None, 10).users, 1);
    let last = client.commit(go("game#A", "bob")).unwrap().raised[0].version;
    let empty = roster(&client, "game#A", None, 10);
    assert_eq!((empty.users, empty.page.rows.len()), (0, 0));
    assert!(empty.version >= last, "an empty snapshot comes after every earlier change");
    client.commit(go("game#A", "bob")).unwrap();
    let again = client.commit(arrive("game#A", "ann")).unwrap();
    assert!(again.raised[0].was_empty);
    assert!(again.raised[0].version > last, "a number is never given twice, through emptiness too");
    assert!(again.raised[0].version > empty.version, "and before every later change");
}

pub(super) fn users_of_a_channel_do_not_conflict_with_each_other(world: &dyn StoreUnderTest) {
    let client = client(world);
    let absent = |user: &str| Expect { key: RowKey::Presence(PresenceKey::new("game#A", user)), version: 0 };
    for user in ["ann", "bob"] {
        client.commit(Commit { expects: vec![absent(user)], ..arrive("game#A", user) }).unwrap();
    }
    let before = roster(&client, "game#A", None, 10);
    let found = get(&client, "game#A", "ann").unwrap().version;
    let outcome = client.commit(Commit { expects: vec![absent("ann")], ..arrive("game#A", "ann") });
    assert_conflict(outcome, (absent("ann").key, 0, found));
    assert_eq!(roster(&client, "game#A", None, 10), before, "a refused commit changes nothing");
    let current = Expect { version: found, ..absent("ann") };
    let receipt = client.commit(Commit { expects: vec![current], ..arrive("game#A", "ann") }).unwrap();
    assert_eq!(versions(&receipt.put), [found + 1]);
}

pub(super) fn a_roster_comes_in_pages_with_its_version(world: &dyn StoreUnderTest) {
    let client = client(world);
    let users: Vec<String> = (0..25).map(|n| format!("user {n:02}")).collect();
    for user in users.iter().rev() {
        client.commit(arrive("game#A", user)).unwrap();
    }
    client.commit(arrive("game#", "zoe")).unwrap();
    client.commit(arrive("game#AB", "zoe")).unwrap();
    let mut listed: Vec<String> = Vec::new();
    loop {
        let roster = roster(&client, "game#A", listed.last().map(String::as_str), 10);
        assert_eq!(roster.users, 25);
        listed.extend(roster.page.rows.iter().map(|row| row.row.key.user.to_string()));
        if !roster.page.more {
            break;
        }
    }
    assert_eq!(listed, users);
}

pub(super) fn a_users_channels_come_in_pages(world: &dyn StoreUnderTest) {
    let client = client(world);
    for channel in ["lobby#1", "game#A", "game#B"] {
        client.commit(arrive(channel, "ann")).unwrap();
        client.commit(arrive(channel, "anna")).unwrap();
    }
    client.commit(go("game#B", "ann")).unwrap();
    let page = |after: Option<&str>| {
        presences(&client, Read::ChannelsOf { user: "ann".into(), after: after.map(Arc::from), limit: 1 })
    };
    let first = page(None);
    assert_eq!((names(&first), first.more), (vec!["ann in game#A".to_string()], true));
    let second = page(Some("game#A"));
    assert_eq!((names(&second), second.more), (vec!["ann in lobby#1".to_string()], false));
}

pub(super) fn presences_of_an_epoch_are_found(world: &dyn StoreUnderTest) {
    let client = client(world);
    let lost =
        |n| ChannelClient { lost: Some(LostClient { at: Time(1), until: Time(2) }), ..attendee(n, "n1") };
    let rows = [
        presence("game#A", "ann", vec![attendee(1, "n1"), attendee(2, "n2")]),
        presence("game#A", "bob", vec![attendee(3, "n2")]),
        presence("game#A", "cid", vec![lost(4)]),
        presence("game#B", "ann", vec![attendee(1, "n1"), attendee(5, "n1")]),
    ];
    let puts = rows.into_iter().map(Row::Presence).collect();
    let raises = vec![raise("game#A", 6), raise("game#B", 3)];
    client.commit(Commit { puts, raises, ..Commit::default() }).unwrap();
    let at = |home: Writer, after: Option<PresenceKey>| {
        presences(&client, Read::PresencesAt { node: home, after, limit: 1 })
    };
    let first = at(Writer::new("n1", Epoch(1)), None);
    assert_eq!((names(&first), first.more), (vec!["ann in game#A".to_string()], true));
    let second = at(Writer::new("n1", Epoch(1)), Some(first.rows[0].row.key.clone()));
    assert_eq!((names(&second), second.more), (vec!["ann in game#B".to_string()], false));
    assert!(at(Writer::new("n1", Epoch(2)), None).rows.is_empty(), "another epoch of the node");
}

fn stale(client: &BlockingStore, before: Time, limit: u32) -> Page<StalePresence> {
    match client.read(Read::StalePresences { before, limit }) {
        Ok(Found::StalePresences(page)) => page,
        other => panic!("no stale presences but {other:?}"),
    }
}

fn put_all(client: &BlockingStore, rows: Vec<PresenceRow>) {
    let puts = rows.into_iter().map(Row::Presence).collect();
    let raises = vec![raise("game#A", 9), raise("game#B", 9)];
    client.commit(Commit { puts, raises, ..Commit::default() }).unwrap();
}

pub(super) fn a_presence_of_an_unknown_epoch_is_stale(world: &dyn StoreUnderTest) {
    let client = client(world);
    let (open, closed) = (open_node(&client, "n1"), open_node(&client, "n2"));
    let close = NodeChange::Stop { node: closed.clone() };
    client.commit(Commit { node: Some(close), ..Commit::default() }).unwrap();
    let at = |n, home: &Writer| ChannelClient { node: NodeEpoch::from(home), ..attendee(n, "") };
    let late = |n| ChannelClient { since: Time(9), ..attendee(n, "n9") };
    let rows = vec![
        presence("game#A", "ann", vec![at(1, &open), attendee(2, "n1"), attendee(3, "n9")]),
        presence("game#A", "bob", vec![at(4, &open), at(5, &closed), late(6)]),
        presence("game#A", "cid", vec![late(7), attendee(8, "n9"), attendee(9, "n9")]),
        presence("game#B", "ann", vec![attendee(3, "n9")]),
    ];
    put_all(&client, rows);
    let home = |node: &str| NodeEpoch { node: node.into(), epoch: Epoch(1) };
    let ann = StalePresence { key: PresenceKey::new("game#A", "ann"), nodes: vec![home("n1"), home("n9")] };
    let also = StalePresence { key: PresenceKey::new("game#B", "ann"), nodes: vec![home("n9")] };
    let cid = StalePresence { key: PresenceKey::new("game#A", "cid"), nodes: vec![home("n9")] };
    let found = stale(&client, Time(8), 10);
    let mut rows = found.rows;
    rows.iter_mut().for_each(|presence| presence.nodes.sort_by(|one, two| one.node.cmp(&two.node)));
    assert_eq!((rows, found.more), (vec![ann.clone(), also, cid], false), "by user");
    let first = stale(&client, Time(8), 1);
    assert_eq!((first.rows[0].key.clone(), first.rows.len(), first.more), (ann.key, 1, true));
    assert!(stale(&client, Time(6), 10).rows.is_empty(), "too young");
}

pub(super) fn a_presence_after_its_last_deadline_is_stale(world: &dyn StoreUnderTest) {
    let client = client(world);
    let known = open_node(&client, "n1");
    let lost = |n, until| ChannelClient {
        lost: Some(LostClient { at: Time(8), until: Time(until) }),
        ..attendee(n, "n9")
    };
    let here = ChannelClient { node: NodeEpoch::from(&known), ..attendee(5, "") };
    let rows = vec![
        presence("game#A", "ann", vec![lost(1, 20), lost(2, 30)]),
        presence("game#A", "bob", vec![lost(3, 20), lost(4, 31)]),
        presence("game#A", "cid", vec![lost(6, 20), here]),
    ];
    put_all(&client, rows);
    let ann = StalePresence { key: PresenceKey::new("game#A", "ann"), nodes: Vec::new() };
    assert_eq!(stale(&client, Time(30), 10).rows, [ann]);
}

pub(super) fn a_fenced_node_changes_no_presence(world: &dyn StoreUnderTest) {
    let client = client(world);
    let old = open_node(&client, "n1");
    open_node(&client, "n1");
    let outcome = client.commit(Commit { writer: Some(old.clone()), ..arrive("game#A", "ann") });
    assert_fenced(outcome, &old);
    assert_eq!(roster(&client, "game#A", None, 10).users, 0);
}

fn hold(channel: &str, user: &str, held_with: Option<&str>, until: Option<u64>) -> PresenceHold {
    PresenceHold {
        key: PresenceKey::new(channel, user),
        held_with: held_with.map(Arc::from),
        until: until.map(Time),
    }
}

pub(super) fn a_hold_is_read_as_it_was_put(world: &dyn StoreUnderTest) {
    let client = client(world);
    let read = |key: &PresenceKey| match client.read(Read::Hold(key.clone())) {
        Ok(Found::Hold(found)) => found,
        other => panic!("no hold but {other:?}"),
    };
    let holds = [hold("active#1", "ann", Some("game#1"), None), hold("active#1", "bob", None, Some(99))];
    for row in holds {
        let put = Commit { puts: vec![Row::Hold(row.clone())], ..Commit::default() };
        let version = client.commit(put).unwrap().put[0].version;
        assert_eq!(read(&row.key), Some(Versioned { version, row: row.clone() }));
        let delete = Commit { deletes: vec![RowKey::Hold(row.key.clone())], ..Commit::default() };
        client.commit(delete).unwrap();
        assert_eq!(read(&row.key), None);
    }
}

pub(super) fn a_changed_presence_reports_the_holds_that_follow_it(world: &dyn StoreUnderTest) {
    let client = client(world);
    assert_eq!(client.commit(arrive("game#1", "ann")).unwrap().held, []);
    let holds = [
        hold("active#2", "ann", Some("game#1"), None),
        hold("active#1", "ann", Some("game#1"), None),
        hold("active#3", "ann", Some("game#2"), None),
        hold("active#4", "bob", Some("game#1"), None),
        hold("active#5", "ann", None, Some(9)),
    ];
    let puts = holds.into_iter().map(Row::Hold).collect();
    client.commit(Commit { puts, ..Commit::default() }).unwrap();
    let held = |channel: &str| HeldPresence {
        held_with: PresenceKey::new("game#1", "ann"),
        channel: channel.into(),
    };
    assert_eq!(client.commit(arrive("game#1", "ann")).unwrap().held, [held("active#1"), held("active#2")]);
    let moved = hold("active#2", "ann", Some("game#9"), None);
    client.commit(Commit { puts: vec![Row::Hold(moved)], ..Commit::default() }).unwrap();
    assert_eq!(client.commit(go("game#1", "ann")).unwrap().held, [held("active#1")], "leaving too");
}

pub(super) fn commits_of_one_batch_count_one_by_one(world: &dyn StoreUnderTest) {
    let client = client(world);
    let users: Vec<String> = (0..9).map(|n| format!("user {n}")).collect();
    let key = |user: &str| RowKey::Presence(PresenceKey::new("game#A", user));
    let together = |commit: fn(&str, &str) -> Commit| {
        let stale = Expect { key: key("nobody"), version: 7 };
        let refused = Commit { expects: vec![stale], ..commit("game#A", "user 4") };
        let mut works: Vec<Work> = users.iter().map(|user| Work::Commit(commit("game#A", user))).collect();
        works.insert(4, Work::Commit(refused));
        works.push(Work::Commit(commit("game#B", "ann")));
        let mut answers = client.run(works);
        assert!(matches!(answers.remove(4), StoreAnswer::Failed(StoreError::Conflict { .. })));
        let receipt = |answer| match answer {
            StoreAnswer::Committed(receipt) => receipt,
            other => panic!("no receipt but {other:?}"),
        };
        let mut receipts: Vec<_> = answers.into_iter().take(users.len()).map(receipt).collect();
        receipts.sort_by_key(|receipt| receipt.raised[0].version);
        let raised: Vec<u64> = receipts.iter().map(|receipt| receipt.raised[0].version).collect();
        assert!(raised.windows(2).all(|pair| pair[1] == pair[0] + 2), "{raised:?}");
        (raised, receipts.iter().filter(|receipt| receipt.raised[0].was_empty).count())
    };
    let (raised, begun) = together(arrive);
    let full = roster(&client, "game#A", None, 20);
    assert_eq!((full.version, full.users, full.page.rows.len(), begun), (raised[8], 9, 9, 1));
    let (left, begun) = together(go);
    assert_eq!((left[0], begun), (raised[8] + 2, 0));
    assert_eq!(roster(&client, "game#A", None, 20).users, 0);
    assert_eq!(roster(&client, "game#B", None, 20).users, 0);
}

fn totals(client: &BlockingStore) -> (i64, i64, i64) {
    match client.read(Read::Totals) {
        Ok(Found::Totals(totals)) => (totals.users, totals.presences, totals.parties),
        other => panic!("no totals but {other:?}"),
    }
}

pub(super) fn totals_count_rows_as_they_come_and_go(world: &dyn StoreUnderTest) {
    let (client, other) = (super::fixture::client(world), client(world));
    assert_eq!(totals(&client), (0, 0, 0));
    for (channel, user) in [("user#ann", "ann"), ("game#1", "ann"), ("game#1", "bob"), ("user#bob", "bob")] {
        client.commit(arrive(channel, user)).unwrap();
        // The same user again changes no total.
        other.commit(arrive(channel, user)).unwrap();
    }
    assert_eq!(totals(&other), (2, 2, 0));
    let document = |kind: &str| Document { key: DocumentKey::new(kind, "7"), body: Arc::from(*b"{}") };
    let puts = vec![Row::Document(document("party")), Row::Document(document("thing"))];
    client.commit(Commit { puts, ..Commit::default() }).unwrap();
    assert_eq!(totals(&other), (2, 2, 1));
    // What is refused changes no total, nor does deleting what is not there.
    let refused = vec![Expect { key: RowKey::Document(DocumentKey::new("thing", "7")), version: 1 }];
    assert!(client.commit(Commit { expects: refused, ..go("user#ann", "ann") }).is_err());
    client.commit(go("user#ann", "cid")).unwrap();
    assert_eq!(totals(&client), (2, 2, 1));
    other.commit(go("user#ann", "ann")).unwrap();
    other.commit(go("game#1", "bob")).unwrap();
    let deletes = vec![RowKey::Document(DocumentKey::new("party", "7"))];
    other.commit(Commit { deletes, ..Commit::default() }).unwrap();
    assert_eq!(totals(&client), (1, 1, 0));
    // Deleted and put in one commit: it stays.
    client.commit(Commit { deletes: go("user#bob", "bob").deletes, ..arrive("user#bob", "bob") }).unwrap();
    assert_eq!(totals(&client), (1, 1, 0));
}
