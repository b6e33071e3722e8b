//! The log of topics: order without gaps, deduplication by id, several topics read as one list, trimming.

use super::fixture::*;
use std::sync::Barrier;

fn event(topic: &str, id: Option<&str>, body: &str) -> Append {
    Append { topic: topic.into(), id: id.map(Arc::from), body: body.as_bytes().into() }
}

fn append(events: &[(&str, &str)]) -> Commit {
    let appends = events.iter().map(|(topic, body)| event(topic, None, body)).collect();
    Commit { appends, ..Commit::default() }
}

fn log(client: &BlockingStore, topics: &[&str], after: u64, limit: u32) -> LogPage {
    let topics = topics.iter().map(|topic| Arc::from(*topic)).collect();
    match client.read(Read::Log { topics, after, limit }) {
        Ok(Found::Log(page)) => page,
        other => panic!("no log but {other:?}"),
    }
}

fn counts(client: &BlockingStore, names: &[&str], after: Option<&str>, limit: u32) -> TopicPage {
    let names = names.iter().map(|name| Arc::from(*name)).collect();
    match client.read(Read::Topics { names, after: after.map(Arc::from), limit }) {
        Ok(Found::Topics(topics)) => topics,
        other => panic!("no topics but {other:?}"),
    }
}

/// `position topic count body`, in order.
fn shown(page: &LogPage) -> Vec<String> {
    let body = |entry: &LogEntry| String::from_utf8_lossy(&entry.body).into_owned();
    let line =
        |entry: &LogEntry| format!("{} {}{} {}", entry.position, entry.topic, entry.count, body(entry));
    page.page.rows.iter().map(line).collect()
}

pub(super) fn events_count_without_gaps(world: &dyn StoreUnderTest) {
    let client = client(world);
    assert_eq!(log(&client, &[], 0, 10).log, LogEnds { first: 1, head: 0, bytes: 0 });
    let receipt = client.commit(append(&[("a", "x"), ("b", "yy"), ("a", "z")])).unwrap();
    let places: Vec<_> = receipt.appended.iter().map(|at| (at.position, at.count, at.duplicate)).collect();
    assert_eq!(places, [(1, 1, false), (2, 1, false), (3, 2, false)]);
    client.commit(append(&[("b", "w")])).unwrap();
    let all = log(&client, &[], 0, 10);
    assert_eq!(shown(&all), ["1 a1 x", "2 b1 yy", "3 a2 z", "4 b2 w"]);
    assert_eq!(all.log, LogEnds { first: 1, head: 4, bytes: 5 });
    assert_eq!(all.page.rows[0].at, receipt.time);
    let topics = counts(&client, &[], None, 10);
    assert_eq!((topics.page.rows, topics.log.head), (vec![("a".into(), 2), ("b".into(), 2)], 4));
}

pub(super) fn a_refused_commit_appends_nothing(world: &dyn StoreUnderTest) {
    let client = client(world);
    let refused = Commit { expects: vec![expect("missing", 7)], ..append(&[("a", "x")]) };
    assert_conflict(client.commit(refused), (RowKey::Document(key("missing")), 7, 0));
    client.commit(append(&[("a", "y")])).unwrap();
    assert_eq!(shown(&log(&client, &[], 0, 10)), ["1 a1 y"]);
}

pub(super) fn an_event_id_is_accepted_once_per_topic(world: &dyn StoreUnderTest) {
    let client = client(world);
    let one = |topic, body| Commit { appends: vec![event(topic, Some("i"), body)], ..Commit::default() };
    let first = client.commit(one("a", "x")).unwrap().appended.remove(0);
    let again = client.commit(one("a", "other")).unwrap().appended.remove(0);
    assert_eq!((again.position, again.count, again.duplicate), (first.position, first.count, true));
    client.commit(one("b", "y")).unwrap();
    // In one list, and the second time too.
    let appends = vec![event("a", Some("i"), "x"), event("a", Some("j"), "z"), event("a", Some("j"), "z")];
    let list = client.commit(Commit { appends, ..Commit::default() }).unwrap().appended;
    let places: Vec<_> = list.iter().map(|at| (at.position, at.duplicate)).collect();
    assert_eq!(places, [(1, true), (3, false), (3, true)]);
    assert_eq!(shown(&log(&client, &[], 0, 10)), ["1 a1 x", "2 b1 y", "3 a2 z"]);
    let kept = log(&client, &["a"], 0, 10).page.rows.pop().unwrap();
    assert_eq!(kept.id.as_deref(), Some("j"));
}

pub(super) fn several_topics_are_read_as_one_list(world: &dyn StoreUnderTest) {
    let client = client(world);
    let names = ["a", "b", "c"];
    let events: Vec<_> = (0..30).map(|n| (names[n % 3], "x")).collect();
    client.commit(append(&events)).unwrap();
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = log(&client, &["c", "a", "nobody", "a"], after, 7);
        assert!(page.page.rows.len() <= 7);
        seen.extend(page.page.rows.iter().map(|entry| entry.position));
        after = *seen.last().unwrap();
        if !page.page.more {
            break;
        }
    }
    let wanted: Vec<u64> = (1..=30).filter(|position| position % 3 != 2).collect();
    assert_eq!(seen, wanted);
    let page = log(&client, &[], 10, 5);
    assert_eq!((page.page.rows[0].position, page.page.rows.len(), page.page.more), (11, 5, true));
    // Few among many.
    client.commit(append(&[("z", "x")])).unwrap();
    let few = log(&client, &["z", "b"], 26, 10);
    assert_eq!(few.page.rows.iter().map(|entry| entry.position).collect::<Vec<_>>(), [29, 31]);
    let few = log(&client, &["z", "nobody"], 0, 10);
    assert_eq!(few.page.rows.iter().map(|entry| entry.position).collect::<Vec<_>>(), [31]);
    let few = log(&client, &["z", "a"], 0, 5);
    assert_eq!(few.page.rows.iter().map(|entry| entry.position).collect::<Vec<_>>(), [1, 4, 7, 10, 13]);
}

pub(super) fn a_page_of_the_log_is_bounded_in_bytes(world: &dyn StoreUnderTest) {
    let client = client(world);
    let large = "x".repeat(limits::PAGE_BYTES / 2);
    client.commit(append(&[("a", &large), ("a", &large)])).unwrap();
    client.commit(append(&[("a", &large)])).unwrap();
    for topics in [&[][..], &["a"]] {
        let page = log(&client, topics, 0, 10);
        assert_eq!((page.page.rows.len(), page.page.more), (2, true), "{topics:?}");
    }
}

pub(super) fn trimming_removes_the_oldest_and_keeps_the_counts(world: &dyn StoreUnderTest) {
    let client = client(world);
    let named = |n: u32| event("a", Some(&format!("i{n}")), "xx");
    client.commit(Commit { appends: (1..=6).map(named).collect(), ..Commit::default() }).unwrap();
    let trim = Some(Trim { before: 4, ids_before: 2 });
    client.commit(Commit { trim, ..Commit::default() }).unwrap();
    let left = log(&client, &[], 0, 10);
    assert_eq!(left.log, LogEnds { first: 4, head: 6, bytes: 6 });
    assert_eq!(left.page.rows.iter().map(|entry| entry.count).collect::<Vec<_>>(), [4, 5, 6]);
    // An id may outlive its event, and can be used again when it was deleted.
    let again = client.commit(Commit { appends: vec![named(2), named(1)], ..Commit::default() }).unwrap();
    let places: Vec<_> = again.appended.iter().map(|at| (at.position, at.count, at.duplicate)).collect();
    assert_eq!(places, [(2, 2, true), (7, 7, false)]);
    let everything = Some(Trim { before: 100, ids_before: 100 });
    client.commit(Commit { trim: everything, ..Commit::default() }).unwrap();
    assert_eq!(log(&client, &["a"], 0, 10).log, LogEnds { first: 8, head: 7, bytes: 0 });
    client.commit(append(&[("a", "y")])).unwrap();
    assert_eq!(shown(&log(&client, &["a"], 0, 10)), ["8 a8 y"]);
}

pub(super) fn restored_events_keep_their_positions(world: &dyn StoreUnderTest) {
    let client = client(world);
    let entry = |position, topic: &str, count, id: Option<&str>, body: &str| LogEntry {
        position,
        topic: topic.into(),
        count,
        at: Time(7_000 + position),
        id: id.map(Arc::from),
        body: Arc::from(body.as_bytes()),
    };
    // An entry from before the start of the log only sets the count of its topic.
    let restores = vec![
        entry(20, "gone", 5, None, ""),
        entry(21, "a", 17, Some("i"), "x"),
        entry(22, "b", 4, None, "yy"),
        entry(23, "a", 18, Some("j"), "z"),
    ];
    let trim = Some(Trim { before: 21, ids_before: 0 });
    let receipt = client.commit(Commit { restores: restores.clone(), trim, ..Commit::default() }).unwrap();
    assert_eq!(receipt.appended, []);
    let kept = log(&client, &[], 0, 10);
    assert_eq!(kept.log, LogEnds { first: 21, head: 23, bytes: 4 });
    assert_eq!(kept.page.rows, restores[1..]);
    assert_eq!(shown(&log(&client, &["a"], 0, 10)), ["21 a17 x", "23 a18 z"]);
    let all = counts(&client, &[], None, 10).page.rows;
    assert_eq!(all, [("a".into(), 18), ("b".into(), 4), ("gone".into(), 5)]);
    // Existing entries stay, and the log continues after them.
    let again = vec![entry(22, "b", 9, None, "other"), entry(23, "b", 9, None, "other")];
    let appends = vec![event("a", Some("i"), "x"), event("gone", None, "w"), event("a", Some("k"), "v")];
    let receipt = client.commit(Commit { restores: again, appends, ..Commit::default() }).unwrap();
    let places: Vec<_> = receipt.appended.iter().map(|at| (at.position, at.count, at.duplicate)).collect();
    assert_eq!(places, [(21, 17, true), (24, 6, false), (25, 19, false)]);
    assert_eq!(shown(&log(&client, &["b"], 0, 10)), ["22 b4 yy"]);
}

pub(super) fn topics_come_in_pages_and_by_name(world: &dyn StoreUnderTest) {
    let client = client(world);
    let events: Vec<_> = ["d", "b", "a", "c", "a"].iter().map(|topic| (*topic, "x")).collect();
    client.commit(append(&events)).unwrap();
    let names = |topics: &TopicPage| topics.page.rows.iter().map(|(name, _)| &**name).collect::<String>();
    let first = counts(&client, &[], None, 3);
    assert_eq!((names(&first), first.page.more), ("abc".into(), true));
    let rest = counts(&client, &[], Some("c"), 3);
    assert_eq!((names(&rest), rest.page.more), ("d".into(), false));
    let some = counts(&client, &["c", "nobody", "a"], None, 10);
    assert_eq!(some.page.rows, [("a".into(), 2), ("c".into(), 1)]);
}

pub(super) fn a_reader_never_skips_concurrent_appends(world: &dyn StoreUnderTest) {
    const APPENDERS: usize = 3;
    const ROUNDS: usize = 40;
    let barrier = Barrier::new(APPENDERS + 1);
    std::thread::scope(|scope| {
        for appender in 0..APPENDERS {
            let barrier = &barrier;
            scope.spawn(move || {
                let client = client(world);
                barrier.wait();
                let topic = format!("t{appender}");
                for _ in 0..ROUNDS {
                    client.commit(append(&[(&topic, "x"), ("all", "y")])).unwrap();
                }
            });
        }
        let client = client(world);
        barrier.wait();
        let total = (APPENDERS * ROUNDS * 2) as u64;
        let mut after = 0;
        while after < total {
            for entry in log(&client, &[], after, 1000).page.rows {
                assert_eq!(entry.position, after + 1, "a position became visible after a later one");
                after = entry.position;
            }
        }
        assert_eq!(counts(&client, &["all"], None, 1).page.rows[0].1, (APPENDERS * ROUNDS) as u64);
    });
}
