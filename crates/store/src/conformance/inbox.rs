//! Inboxes: messages are numbered, kept until they are freed, and bounded; what was dropped is reported.

use super::fixture::*;

const MOST: usize = 1000;

fn message(user: &str, body: &str) -> NewInboxMessage {
    NewInboxMessage { user: user.into(), body: body.as_bytes().into(), max_messages: MOST, max_bytes: MOST }
}

fn add(inbox_messages: Vec<NewInboxMessage>) -> Commit {
    Commit { inbox_messages, ..Commit::default() }
}

fn free(user: &str, through: u64, unread: bool) -> Commit {
    Commit { freed_messages: vec![FreedMessages { user: user.into(), through, unread }], ..Commit::default() }
}

fn inbox(client: &BlockingStore, user: &str, after: u64, limit: u32) -> InboxPage {
    match client.read(Read::Inbox { user: user.into(), after, limit }) {
        Ok(Found::Inbox(inbox)) => inbox,
        other => panic!("no inbox but {other:?}"),
    }
}

fn bodies(inbox: &InboxPage) -> Vec<String> {
    inbox.page.rows.iter().map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
}

pub(super) fn messages_are_numbered_per_inbox(world: &dyn StoreUnderTest) {
    let client = client(world);
    let receipt =
        client.commit(add(vec![message("ann", "1"), message("bob", "x"), message("ann", "2")])).unwrap();
    let first = receipt.inbox_numbers[0];
    assert_eq!(receipt.inbox_numbers, [first, first, first + 1]);
    world.clock().advance(7);
    assert_eq!(client.commit(add(vec![message("ann", "3")])).unwrap().inbox_numbers, [first + 2]);
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["1".into(), "2".into(), "3".into()], 0));
    assert_eq!((ann.page.rows[0].at, ann.page.rows[2].at), (receipt.time, receipt.time + 7));
    assert_eq!(bodies(&inbox(&client, "ann", first, 10)), ["2", "3"]);
    let page = inbox(&client, "ann", 0, 2);
    assert_eq!((page.page.rows.len(), page.page.more), (2, true));
    assert_eq!(inbox(&client, "nobody", 0, 10).page.rows, []);
}

pub(super) fn a_message_is_added_with_its_commit(world: &dyn StoreUnderTest) {
    let client = client(world);
    let refused = Commit { expects: vec![expect("party", 7)], ..add(vec![message("ann", "no")]) };
    assert_conflict(client.commit(refused), (RowKey::Document(key("party")), 7, 0));
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), Vec::<String>::new());
    let both = Commit {
        expects: vec![expect("party", 0)],
        puts: vec![row("party", "1")],
        ..add(vec![message("ann", "yes")])
    };
    client.commit(both).unwrap();
    assert_eq!(
        (text(&client, "party").as_deref(), bodies(&inbox(&client, "ann", 0, 10))),
        (Some("1"), vec!["yes".into()])
    );
}

pub(super) fn freed_messages_are_removed_and_numbers_continue(world: &dyn StoreUnderTest) {
    let client = client(world);
    let numbers = client.commit(add(vec![message("ann", "1"), message("ann", "2")])).unwrap().inbox_numbers;
    client.commit(free("ann", numbers[0], false)).unwrap();
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), ["2"]);
    client.commit(free("ann", numbers[1], false)).unwrap();
    client.commit(free("ann", numbers[1], false)).expect("freeing again changes nothing");
    // The clock stops and goes back: an empty inbox still starts above its earlier numbers.
    world.clock().set(Time(1_000));
    let next = client.commit(add(vec![message("ann", "3")])).unwrap().inbox_numbers[0];
    assert!(next > numbers[1], "{next} after {}", numbers[1]);
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}

pub(super) fn a_full_inbox_drops_the_oldest_and_reports_it(world: &dyn StoreUnderTest) {
    let client = client(world);
    let two = |body: &str| NewInboxMessage { max_messages: 2, ..message("ann", body) };
    let numbers = client.commit(add(vec![two("1"), two("2"), two("3")])).unwrap().inbox_numbers;
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["2".into(), "3".into()], numbers[0]));
    let small = NewInboxMessage { max_bytes: 5, ..message("ann", "1234") };
    client.commit(add(vec![small])).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["3".into(), "1234".into()], numbers[1]));
    // The newest is kept, however large it is; reading past dropped messages clears the mark.
    let large = NewInboxMessage { max_bytes: 5, ..message("ann", "123456789") };
    let last = client.commit(add(vec![large])).unwrap().inbox_numbers[0];
    assert_eq!(bodies(&inbox(&client, "ann", 0, 10)), ["123456789"]);
    client.commit(free("ann", numbers[0], false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, last - 1, "reported until the user has read past it");
    client.commit(free("ann", last, false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}

pub(super) fn expired_messages_are_reported_as_dropped(world: &dyn StoreUnderTest) {
    let client = client(world);
    let numbers = client.commit(add(vec![message("ann", "1"), message("ann", "2")])).unwrap().inbox_numbers;
    client.commit(free("ann", numbers[1], true)).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (Vec::new(), numbers[1]));
    let next = client.commit(add(vec![message("ann", "3")])).unwrap().inbox_numbers[0];
    assert_eq!(next, numbers[1] + 1);
    let again = Commit {
        freed_messages: vec![FreedMessages { user: "ann".into(), through: next, unread: false }],
        ..add(vec![message("ann", "4")])
    };
    client.commit(again).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (vec!["4".into()], 0), "freed first, then added");
    // All of them.
    client.commit(free("ann", u64::MAX, true)).unwrap();
    let ann = inbox(&client, "ann", 0, 10);
    assert_eq!((bodies(&ann), ann.dropped), (Vec::new(), next + 1));
    client.commit(free("ann", u64::MAX, false)).unwrap();
    assert_eq!(inbox(&client, "ann", 0, 10).dropped, 0);
}
