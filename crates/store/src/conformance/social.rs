//! Users and follows.

use super::fixture::*;
use super::presence;

fn user(name: &str, last_seen: Option<u64>) -> UserRow {
    UserRow { user: name.into(), last_seen: last_seen.map(Time), visibility: Visibility::Everyone }
}

fn keep(client: &BlockingStore, user: UserRow) -> u64 {
    client.commit(Commit { puts: vec![Row::User(user)], ..Commit::default() }).unwrap().put[0].version
}

fn people(client: &BlockingStore, names: &[&str], viewer: Option<&str>) -> Vec<UserSnapshot> {
    let users = names.iter().map(|name| Arc::from(*name)).collect();
    match client.read(Read::People { users, viewer: viewer.map(Arc::from) }) {
        Ok(Found::People(people)) => people,
        other => panic!("no people but {other:?}"),
    }
}

fn users(client: &BlockingStore, names: &[&str]) -> Vec<Option<Versioned<UserRow>>> {
    people(client, names, None).into_iter().map(|person| person.known).collect()
}

pub(super) fn follow(follower: &str, followee: &str, since: u64) -> Commit {
    let follow = Follow { follower: follower.into(), followee: followee.into(), since: Time(since) };
    Commit { puts: vec![Row::Follow(follow)], ..Commit::default() }
}

fn edges(client: &BlockingStore, read: Read) -> Page<FollowRow> {
    match client.read(read) {
        Ok(Found::Edges(page)) => page,
        other => panic!("no follows but {other:?}"),
    }
}

fn following(client: &BlockingStore, user: &str, after: Option<&str>, limit: u32) -> Page<FollowRow> {
    edges(client, Read::Following { user: user.into(), after: after.map(Arc::from), limit })
}

fn followers(client: &BlockingStore, user: &str, after: Option<&str>, limit: u32) -> Page<FollowRow> {
    edges(client, Read::Followers { user: user.into(), after: after.map(Arc::from), limit })
}

fn shown(page: &Page<FollowRow>) -> Vec<String> {
    let arrow = |edge: &FollowRow| if edge.mutual { "<>" } else { ">" };
    page.rows
        .iter()
        .map(|edge| format!("{}{}{}", edge.follow.follower, arrow(edge), edge.follow.followee))
        .collect()
}

pub(super) fn users_are_read_together_in_the_order_asked(world: &dyn StoreUnderTest) {
    let client = client(world);
    let ann = UserRow { visibility: Visibility::FollowersIFollow, ..user("ann", Some(5)) };
    let version = keep(&client, ann.clone());
    keep(&client, user("bob", None));
    let found = users(&client, &["bob", "nobody", "ann"]);
    assert_eq!(found[0].as_ref().map(|row| &row.row), Some(&user("bob", None)));
    assert_eq!((&found[1], &found[2]), (&None, &Some(Versioned { version, row: ann })));
}

pub(super) fn people_are_read_with_their_presences(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (channel, user) in [("lobby", "ann"), ("game#1", "ann"), ("game#1", "bob"), ("game#2", "cid")] {
        client.commit(presence::arrive(channel, user)).unwrap();
    }
    let found = people(&client, &["ann", "dan"], None);
    let channels = |person: &UserSnapshot| -> Vec<String> {
        person.presences.iter().map(|row| row.row.key.channel.to_string()).collect()
    };
    assert_eq!((&*found[0].user, channels(&found[0])), ("ann", vec!["game#1".into(), "lobby".into()]));
    assert_eq!((&*found[1].user, channels(&found[1]), &found[1].known), ("dan", vec![], &None));
}

pub(super) fn people_are_read_with_mutual_follows(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (follower, followee) in [("ann", "bob"), ("bob", "ann"), ("ann", "cid"), ("dan", "ann")] {
        client.commit(follow(follower, followee, 1)).unwrap();
    }
    let found = people(&client, &["bob", "cid", "dan"], Some("ann"));
    let mutual: Vec<bool> = found.iter().map(|person| person.mutual).collect();
    assert_eq!(mutual, [true, false, false]);
    assert!(!people(&client, &["bob"], None)[0].mutual, "there is no viewer");
}

pub(super) fn last_seen_changes_nothing_else(world: &dyn StoreUnderTest) {
    let client = client(world);
    let hidden = UserRow { visibility: Visibility::Nobody, ..user("ann", Some(5)) };
    let version = keep(&client, hidden);
    let see = |user: &str, at| LastSeenUpdate { user: user.into(), at: Time(at) };
    let seen = vec![see("ann", 9), see("ann", 7), see("bob", 3)];
    client.commit(Commit { seen, ..Commit::default() }).unwrap();
    let found = users(&client, &["ann", "bob"]);
    let ann = found[0].clone().unwrap();
    assert_eq!((ann.version, ann.row.last_seen), (version, Some(Time(9))));
    assert_eq!(ann.row.visibility, Visibility::Nobody);
    let bob = found[1].clone().unwrap();
    assert_eq!((bob.row, bob.version > 0), (user("bob", Some(3)), true));
}

pub(super) fn last_seen_never_goes_back(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (given, kept) in [(Some(5), Some(5)), (Some(3), Some(5)), (None, Some(5)), (Some(9), Some(9))] {
        keep(&client, user("ann", given));
        let found = users(&client, &["ann"]);
        assert_eq!(found[0].as_ref().unwrap().row.last_seen, kept.map(Time), "{given:?}");
    }
}

pub(super) fn follows_are_found_from_both_ends(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (follower, followee) in
        [("ann", "bob"), ("ann", "cid"), ("bob", "ann"), ("cid", "bob"), ("anna", "bob")]
    {
        client.commit(follow(follower, followee, 1)).unwrap();
    }
    assert_eq!(shown(&following(&client, "ann", None, 10)), ["ann<>bob", "ann>cid"]);
    assert_eq!(shown(&followers(&client, "bob", None, 10)), ["ann<>bob", "anna>bob", "cid>bob"]);
    let first = followers(&client, "bob", None, 2);
    assert!(first.more);
    assert_eq!(shown(&followers(&client, "bob", Some("anna"), 2)), ["cid>bob"]);
    assert_eq!(shown(&following(&client, "ann", Some("bob"), 1)), ["ann>cid"]);
}

pub(super) fn a_follow_is_one_row_and_can_end(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(follow("ann", "bob", 1)).unwrap();
    client.commit(follow("ann", "bob", 2)).unwrap();
    let page = following(&client, "ann", None, 10);
    assert_eq!((page.rows.len(), page.rows[0].follow.since), (1, Time(2)));
    let key = RowKey::Follow { follower: "ann".into(), followee: "bob".into() };
    let stop = || Commit { deletes: vec![key.clone()], ..Commit::default() };
    client.commit(stop()).unwrap();
    client.commit(stop()).unwrap();
    assert!(following(&client, "ann", None, 10).rows.is_empty());
    assert!(followers(&client, "bob", None, 10).rows.is_empty());
}
