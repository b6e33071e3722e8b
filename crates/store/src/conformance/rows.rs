//! Whole lists of rows, as an export reads them.

use super::fixture::*;
use super::presence;

fn all(client: &BlockingStore, kind: RowKind, limit: u32) -> Vec<Versioned<Row>> {
    let (mut rows, mut after): (Vec<Versioned<Row>>, _) = (Vec::new(), None);
    loop {
        let page = match client.read(Read::Rows { kind, after, limit }) {
            Ok(Found::Rows(page)) => page,
            other => panic!("no rows but {other:?}"),
        };
        assert!(page.rows.len() <= limit as usize);
        rows.extend(page.rows);
        after = rows.last().map(|row| row.row.key());
        if !page.more {
            return rows;
        }
    }
}

pub(super) fn every_row_of_a_kind_is_listed_by_its_key(world: &dyn StoreUnderTest) {
    let client = client(world);
    let document =
        |kind, name| Row::Document(Document { key: DocumentKey::new(kind, name), body: Arc::from(*b"x") });
    let hold = |channel, user, held_with: Option<&str>| {
        Row::Hold(PresenceHold {
            key: PresenceKey::new(channel, user),
            held_with: held_with.map(Arc::from),
            until: Some(Time(9)),
        })
    };
    let follow = |follower: &str, followee: &str| {
        Row::Follow(Follow { follower: follower.into(), followee: followee.into(), since: Time(3) })
    };
    let user = |name: &str, last_seen| {
        Row::User(UserRow { user: name.into(), last_seen, visibility: Visibility::Nobody })
    };
    for (kind, wanted) in [
        (RowKind::Document, vec![document("a", "2"), document("a", "3"), document("b", "1")]),
        (RowKind::Hold, vec![hold("a#1", "x", None), hold("a#1", "y", Some("user#y")), hold("b", "x", None)]),
        (RowKind::Follow, vec![follow("a", "c"), follow("a", "d"), follow("b", "a")]),
        (RowKind::User, vec![user("a", None), user("b", Some(Time(5))), user("c", None)]),
    ] {
        let puts: Vec<Row> = wanted.iter().rev().cloned().collect();
        let mut versions = versions(&client.commit(Commit { puts, ..Commit::default() }).unwrap().put);
        versions.reverse();
        let wanted: Vec<_> =
            wanted.into_iter().zip(versions).map(|(row, version)| Versioned { version, row }).collect();
        assert_eq!(all(&client, kind, 2), wanted);
        assert_eq!(all(&client, kind, 1000), wanted);
    }
}

pub(super) fn every_presence_is_listed_by_channel_and_user(world: &dyn StoreUnderTest) {
    let client = client(world);
    for (channel, user) in [("b", "ann"), ("a", "bob"), ("a", "ann"), ("c", "ann")] {
        client.commit(presence::arrive(channel, user)).unwrap();
    }
    let shown =
        |rows: Vec<Versioned<Row>>| rows.iter().map(|row| row.row.key().to_string()).collect::<Vec<_>>();
    let wanted = ["presence:1:a/ann", "presence:1:a/bob", "presence:1:b/ann", "presence:1:c/ann"];
    assert_eq!(shown(all(&client, RowKind::Presence, 2)), wanted);
    let Some(Row::Presence(first)) = all(&client, RowKind::Presence, 9).first().map(|row| row.row.clone())
    else {
        panic!("no presence")
    };
    assert!(first.attendance.is_present());
}
