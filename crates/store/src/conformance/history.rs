//! Channel history: offsets without holes, limits, ids, clearing, pages.

use super::fixture::*;
use crate::history::*;

const KEEP: HistoryLimits = HistoryLimits { messages: 1000, bytes: 1 << 20, ttl_ms: 60_000 };

fn message(channel: &str, body: &str) -> NewHistoryMessage {
    NewHistoryMessage {
        channel: channel.into(),
        id: None,
        sender: None,
        json: false,
        body: body.as_bytes().into(),
        keep: KEEP,
    }
}

fn add(history: Vec<NewHistoryMessage>) -> Commit {
    Commit { history, ..Commit::default() }
}

fn append(client: &BlockingStore, channel: &str, body: &str) -> HistoryPosition {
    client.commit(add(vec![message(channel, body)])).unwrap().history[0].position
}

fn clear(channel: &str, only_at: Option<HistoryPosition>) -> Commit {
    Commit { history_clears: vec![HistoryClear { channel: channel.into(), only_at }], ..Commit::default() }
}

fn read(
    client: &BlockingStore,
    channel: &str,
    after: u64,
    before: u64,
    newest: bool,
    limit: u32,
) -> HistoryPage {
    match client.read(Read::History { channel: channel.into(), after, before, newest, limit }) {
        Ok(Found::History(page)) => page,
        other => panic!("no history but {other:?}"),
    }
}

fn all(client: &BlockingStore, channel: &str) -> HistoryPage {
    read(client, channel, 0, u64::MAX, false, 1000)
}

fn bodies(page: &HistoryPage) -> Vec<(u64, String)> {
    let text = |message: &HistoryMessage| String::from_utf8_lossy(&message.body).into_owned();
    page.page.rows.iter().map(|message| (message.offset, text(message))).collect()
}

fn offsets(page: &HistoryPage) -> Vec<u64> {
    page.page.rows.iter().map(|message| message.offset).collect()
}

fn list(client: &BlockingStore, after: Option<(Time, Arc<str>)>, limit: u32) -> HistoryList {
    match client.read(Read::Histories { after, limit }) {
        Ok(Found::Histories(list)) => list,
        other => panic!("no list but {other:?}"),
    }
}

pub(super) fn offsets_count_per_channel(world: &dyn StoreUnderTest) {
    let client = client(world);
    assert_eq!(all(&client, "chat#1"), HistoryPage { head: HistoryPosition::default(), page: empty() });
    let receipt = client
        .commit(add(vec![message("chat#1", "a"), message("chat#2", "x"), message("chat#1", "b")]))
        .unwrap();
    let found: Vec<u64> = receipt.history.iter().map(|appended| appended.position.offset).collect();
    assert_eq!(found, [1, 1, 2]);
    let epoch = receipt.history[0].position.epoch;
    assert!(epoch > 0 && epoch == receipt.history[2].position.epoch);
    assert_eq!(append(&client, "chat#1", "c"), HistoryPosition { epoch, offset: 3 });
    let page = all(&client, "chat#1");
    assert_eq!(page.head, HistoryPosition { epoch, offset: 3 });
    assert_eq!(bodies(&page), [(1, "a".into()), (2, "b".into()), (3, "c".into())]);
    assert_eq!(page.page.rows[0].at, receipt.time);
}

fn empty() -> Page<HistoryMessage> {
    Page { rows: Vec::new(), more: false }
}

pub(super) fn a_message_is_stored_as_it_was_sent(world: &dyn StoreUnderTest) {
    let client = client(world);
    let body: Arc<[u8]> = (0..=255u8).collect::<Vec<_>>().into();
    let sender = HistorySender { user: Some("anné".into()), client: ClientId::from_random(7) };
    let anonymous = HistorySender { user: None, client: ClientId::from_random(8) };
    let messages = vec![
        NewHistoryMessage { body: body.clone(), sender: Some(sender.clone()), ..message("chat#é", "") },
        NewHistoryMessage { id: Some("m-1".into()), json: true, ..message("chat#é", "{\"a\":1}") },
        NewHistoryMessage { sender: Some(anonymous.clone()), ..message("chat#é", "") },
    ];
    client.commit(add(messages)).unwrap();
    let rows = all(&client, "chat#é").page.rows;
    assert_eq!(
        (&rows[0].body, &rows[0].sender, rows[0].json, &rows[0].id),
        (&body, &Some(sender), false, &None)
    );
    assert_eq!((rows[1].json, rows[1].id.as_deref(), &rows[1].sender), (true, Some("m-1"), &None));
    assert_eq!((rows[2].body.len(), &rows[2].sender), (0, &Some(anonymous)));
}

pub(super) fn a_refused_commit_adds_no_message(world: &dyn StoreUnderTest) {
    let client = client(world);
    let refused = Commit { expects: vec![expect("nothing", 7)], ..add(vec![message("chat#1", "a")]) };
    assert!(matches!(client.commit(refused), Err(StoreError::Conflict { .. })));
    assert_eq!(all(&client, "chat#1").head, HistoryPosition::default());
    assert_eq!(append(&client, "chat#1", "b").offset, 1);
}

pub(super) fn the_oldest_beyond_the_limits_are_removed(world: &dyn StoreUnderTest) {
    let client = client(world);
    let few = HistoryLimits { messages: 3, ..KEEP };
    let many: Vec<_> =
        (1..=5).map(|n| NewHistoryMessage { keep: few, ..message("chat#1", &n.to_string()) }).collect();
    client.commit(add(many)).unwrap();
    let page = all(&client, "chat#1");
    assert_eq!((offsets(&page), page.head.offset), (vec![3, 4, 5], 5));
    client.commit(add(vec![NewHistoryMessage { keep: few, ..message("chat#1", "6") }])).unwrap();
    assert_eq!(offsets(&all(&client, "chat#1")), [4, 5, 6]);
    let each = message("chat#2", "aaaa").stored_bytes();
    let small = HistoryLimits { bytes: 2 * each + each / 2, ..KEEP };
    let large = "x".repeat(3 * each as usize);
    for body in ["aaaa", "bbbb", "cccc"] {
        client.commit(add(vec![NewHistoryMessage { keep: small, ..message("chat#2", body) }])).unwrap();
    }
    assert_eq!(offsets(&all(&client, "chat#2")), [2, 3]);
    client.commit(add(vec![NewHistoryMessage { keep: small, ..message("chat#2", &large) }])).unwrap();
    assert_eq!(offsets(&all(&client, "chat#2")), [4], "the newest stays");
    let one = message("chat#1", "1").stored_bytes();
    assert_eq!(list(&client, None, 10).bytes, 3 * one + message("chat#2", &large).stored_bytes());
    let last = HistoryLimits { messages: 1, ..KEEP };
    client.commit(add(vec![NewHistoryMessage { keep: last, ..message("chat#1", "7") }])).unwrap();
    assert_eq!(offsets(&all(&client, "chat#1")), [7]);
}

pub(super) fn limits_count_what_messages_take(world: &dyn StoreUnderTest) {
    let client = client(world);
    let keep = HistoryLimits { bytes: 10_000, ..KEEP };
    let tiny = |n: u64| NewHistoryMessage { keep, ..message("chat#1", &(n % 10).to_string()) };
    client.commit(add((1..=200).map(tiny).collect())).unwrap();
    let kept = offsets(&all(&client, "chat#1")).len();
    assert!(kept <= 100, "{kept} messages of one byte, each of which takes a hundred or more");
    client.commit(clear("chat#1", None)).unwrap();
    let bytes = |message: NewHistoryMessage| {
        client.commit(add(vec![message])).unwrap();
        let bytes = list(&client, None, 10).bytes;
        client.commit(clear("chat#1", None)).unwrap();
        bytes
    };
    let plain = bytes(message("chat#1", "x"));
    let named = bytes(NewHistoryMessage { id: Some("an id".into()), ..message("chat#1", "x") });
    assert_eq!(named - plain, "an id".len() as u64);
    let sender = Some(HistorySender { user: Some("ann".into()), client: ClientId::from_random(1) });
    let sent = bytes(NewHistoryMessage { sender, ..message("chat#1", "x") });
    assert_eq!(sent - plain, ("ann".len() + ClientId::CHARS) as u64, "the user and the client");
}

pub(super) fn messages_that_are_too_old_are_removed(world: &dyn StoreUnderTest) {
    let client = client(world);
    let keep = HistoryLimits { ttl_ms: 1_000, ..KEEP };
    let short = |body: &str| add(vec![NewHistoryMessage { keep, ..message("chat#1", body) }]);
    client.commit(short("a")).unwrap();
    world.clock().advance(600);
    client.commit(short("b")).unwrap();
    world.clock().advance(600);
    client.commit(short("c")).unwrap();
    assert_eq!(offsets(&all(&client, "chat#1")), [2, 3]);
    world.clock().advance(5_000);
    client.commit(short("d")).unwrap();
    assert_eq!(offsets(&all(&client, "chat#1")), [4]);
    assert_eq!(list(&client, None, 1).bytes, message("chat#1", "d").stored_bytes());
}

pub(super) fn a_message_id_is_taken_once_while_it_is_stored(world: &dyn StoreUnderTest) {
    let client = client(world);
    let two = HistoryLimits { messages: 2, ..KEEP };
    let named = |channel: &str, id: &str| NewHistoryMessage {
        id: Some(id.into()),
        keep: two,
        ..message(channel, id)
    };
    let receipt =
        client.commit(add(vec![named("chat#1", "a"), named("chat#1", "a"), named("chat#2", "a")])).unwrap();
    let found: Vec<_> =
        receipt.history.iter().map(|appended| (appended.position.offset, appended.duplicate)).collect();
    assert_eq!(found, [(1, false), (1, true), (1, false)]);
    let again = client.commit(add(vec![named("chat#1", "a"), named("chat#1", "b")])).unwrap();
    assert_eq!((again.history[0].duplicate, again.history[0].position), (true, receipt.history[0].position));
    client.commit(add(vec![named("chat#1", "c")])).unwrap();
    let after = client.commit(add(vec![named("chat#1", "a")])).unwrap();
    assert_eq!((after.history[0].duplicate, after.history[0].position.offset), (false, 4));
    assert_eq!(offsets(&all(&client, "chat#1")), [3, 4]);
}

pub(super) fn pages_are_read_in_both_directions(world: &dyn StoreUnderTest) {
    let client = client(world);
    client.commit(add((1..=9).map(|n| message("chat#1", &n.to_string())).collect())).unwrap();
    append(&client, "chat#10", "other");
    for (after, before, newest, limit, expected, more) in [
        (0, u64::MAX, false, 4, vec![1, 2, 3, 4], true),
        (4, u64::MAX, false, 9, vec![5, 6, 7, 8, 9], false),
        (9, u64::MAX, false, 9, vec![], false),
        (0, u64::MAX, true, 3, vec![7, 8, 9], true),
        (0, 4, true, 2, vec![2, 3], true),
        (0, 4, true, 9, vec![1, 2, 3], false),
        (3, 6, false, 9, vec![4, 5], false),
        (6, 3, false, 9, vec![], false),
        (u64::MAX - 1, u64::MAX, false, 9, vec![], false),
    ] {
        let page = read(&client, "chat#1", after, before, newest, limit);
        assert_eq!((offsets(&page), page.page.more), (expected, more), "{after} {before} {newest} {limit}");
        assert_eq!(page.head.offset, 9);
    }
    let large = "x".repeat(limits::PAGE_BYTES / 2);
    let keep = HistoryLimits { bytes: 1 << 24, ..KEEP };
    for _ in 0..3 {
        client.commit(add(vec![NewHistoryMessage { keep, ..message("chat#4", &large) }])).unwrap();
    }
    let page = read(&client, "chat#4", 0, u64::MAX, true, 9);
    assert_eq!((offsets(&page), page.page.more), (vec![2, 3], true));
    let page = read(&client, "chat#4", 0, u64::MAX, false, 9);
    assert_eq!((offsets(&page), page.page.more), (vec![1, 2], true));
}

pub(super) fn a_cleared_history_begins_anew_in_another_epoch(world: &dyn StoreUnderTest) {
    let client = client(world);
    let named = NewHistoryMessage { id: Some("a".into()), ..message("chat#1", "a") };
    let first = client.commit(add(vec![named.clone()])).unwrap().history[0].position;
    let stale = Some(HistoryPosition { offset: 2, ..first });
    client.commit(clear("chat#1", stale)).unwrap();
    assert_eq!(all(&client, "chat#1").head, first, "something was appended since");
    client.commit(clear("chat#1", Some(first))).unwrap();
    assert_eq!(all(&client, "chat#1"), HistoryPage { head: HistoryPosition::default(), page: empty() });
    assert_eq!(
        list(&client, None, 10),
        HistoryList { bytes: 0, page: Page { rows: Vec::new(), more: false } }
    );
    client.commit(clear("chat#1", None)).expect("clearing nothing is no error");
    let again = Commit { history: vec![named.clone(), named], ..clear("chat#1", None) };
    let receipt = client.commit(again).unwrap();
    let second = receipt.history[0];
    assert!(second.position.epoch > first.epoch && second.position.offset == 1 && !second.duplicate);
    assert!(receipt.history[1].duplicate);
    assert_eq!(offsets(&all(&client, "chat#1")), [1]);
}

pub(super) fn histories_are_listed_by_their_expiry(world: &dyn StoreUnderTest) {
    let client = client(world);
    let within = |channel: &str, ttl_ms: u64, body: &str| NewHistoryMessage {
        keep: HistoryLimits { ttl_ms, ..KEEP },
        ..message(channel, body)
    };
    let receipt = client
        .commit(add(vec![within("b", 30, "12"), within("a", 20, "1"), within("c", 10, "123")]))
        .unwrap();
    let total = |bodies: &[&str]| bodies.iter().map(|body| message("a", body).stored_bytes()).sum::<u64>();
    let page = list(&client, None, 2);
    let names = |list: &HistoryList| -> Vec<String> {
        list.page.rows.iter().map(|summary| summary.channel.to_string()).collect()
    };
    assert_eq!(
        (page.bytes, names(&page), page.page.more),
        (total(&["12", "1", "123"]), vec!["c".into(), "a".into()], true)
    );
    let last = &page.page.rows[1];
    assert_eq!(
        (last.expires_at, last.bytes, last.head),
        (receipt.time + 20, total(&["1"]), receipt.history[1].position)
    );
    let rest = list(&client, Some((last.expires_at, last.channel.clone())), 2);
    assert_eq!((names(&rest), rest.page.more), (vec!["b".into()], false));
    client.commit(add(vec![within("c", 90, "4")])).unwrap();
    assert_eq!(names(&list(&client, None, 9)), ["a", "b", "c"]);
    client.commit(clear("a", None)).unwrap();
    let page = list(&client, None, 9);
    assert_eq!((page.bytes, names(&page)), (total(&["12", "123", "4"]), vec!["b".into(), "c".into()]));
}

pub(super) fn concurrent_appends_leave_no_hole(world: &dyn StoreUnderTest) {
    const EACH: u64 = 40;
    let found: Vec<HistoryPosition> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                scope.spawn(move || {
                    let client = client(world);
                    let one = |n| append(&client, "chat#1", &format!("{writer} {n}"));
                    (0..EACH).map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    let mut offsets: Vec<u64> = found.iter().map(|position| position.offset).collect();
    offsets.sort_unstable();
    assert_eq!(offsets, (1..=3 * EACH).collect::<Vec<_>>());
    assert!(found.iter().all(|position| position.epoch == found[0].epoch));
    assert_eq!(all(&client(world), "chat#1").page.rows.len() as u64, 3 * EACH);
}
