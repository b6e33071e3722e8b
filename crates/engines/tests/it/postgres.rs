//! What only the Postgres engine promises: many stores on one database, tables that others may read meanwhile, lost
//! connections.

use crate::fixture::*;
use crate::postgres_server;
use crate::table_reader::*;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tavern_store::blocking::BlockingStore;
use tavern_store::{
    CloseProof, Commit, Found, NodeChange, PresenceHold, PresenceKey, Read, Receipt, Row, RowKey,
    StoreAnswer, StoreError, Work, Writer,
};

#[test]
fn racing_stores_lose_nothing_and_never_deadlock() {
    const STORES: usize = 4;
    const ROUNDS: usize = 20;
    const TOGETHER: usize = 30;
    let url = postgres_server::fresh();
    let stores: Vec<BlockingStore> = (0..STORES).map(|_| open(&url).unwrap()).collect();
    // Every commit writes two of few documents, in an order of its own, and all of them raise few channels.
    let commit = |store: usize, round: usize, n: usize| {
        let (one, two) = ((n * 7 + store) % 10, (n * 3 + round) % 10);
        let mut commit = arrive(&format!("game#{}", n % 3), &format!("u{store}-{round}-{n}"));
        commit.puts.push(document(&format!("d{one}"), "x"));
        commit.puts.push(document(&format!("d{two}"), "y"));
        Work::Commit(commit)
    };
    let raised: Vec<(usize, u64)> = thread::scope(|scope| {
        let race = |store: usize| {
            let client = &stores[store];
            let mut raised = Vec::new();
            for round in 0..ROUNDS {
                let works = (0..TOGETHER).map(|n| commit(store, round, n)).collect();
                for (n, answer) in client.run(works).into_iter().enumerate() {
                    let StoreAnswer::Committed(receipt) = answer else { panic!("{answer:?}") };
                    raised.push((n % 3, receipt.raised[0].version));
                }
            }
            raised
        };
        let racers: Vec<_> = (0..STORES).map(|store| scope.spawn(move || race(store))).collect();
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(raised.len(), STORES * ROUNDS * TOGETHER);
    for channel in 0..3 {
        let mut versions: Vec<u64> =
            raised.iter().filter(|(of, _)| *of == channel).map(|(_, at)| *at).collect();
        versions.sort_unstable();
        assert!(
            versions.windows(2).all(|pair| pair[1] == pair[0] + 2),
            "every number is given once, without holes"
        );
        let (version, users) = roster(&stores[0], &format!("game#{channel}"));
        assert_eq!((version, users), (versions[versions.len() - 1], versions.len() as u64));
    }
    let reader = Reader::new(&url);
    let users = reader.number("SELECT count(*) FROM user_channel_presences");
    assert_eq!(users as usize, STORES * ROUNDS * TOGETHER);
    assert_eq!(reader.number("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"), 0);
}

#[test]
fn a_reader_of_the_tables_never_sees_half_a_change() {
    let url = postgres_server::fresh();
    let stores = [open(&url).unwrap(), open(&url).unwrap()];
    let done = AtomicBool::new(false);
    // One statement is one moment.
    let half = "SELECT
        (SELECT count(*) FROM channel_presences c
            WHERE c.users <> (SELECT count(*) FROM presences p WHERE p.channel_name = c.channel_name) OR c.users = 0)
        + (SELECT count(*) FROM presences p WHERE p.version = 0
            OR NOT EXISTS (SELECT FROM channel_presences c WHERE c.channel_name = p.channel_name)
            OR NOT EXISTS (SELECT FROM user_channel_presences u
                WHERE u.channel_name = p.channel_name AND u.user_id = p.user_id))";
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let reader = Reader::new(&url);
            let mut looks = 0;
            while !done.load(Ordering::SeqCst) || looks < 20 {
                assert_eq!(reader.number(half), 0);
                looks += 1;
            }
        });
        let writers: Vec<_> = stores
            .iter()
            .enumerate()
            .map(|(n, store)| {
                scope.spawn(move || {
                    for round in 0..40 {
                        let user = format!("u{n}-{}", round % 3);
                        let channel = |n: usize| format!("game#{}", n % 2);
                        let works = [arrive(&channel(round), &user), go(&channel(round + 1), &user)];
                        for answer in store.run(works.into_iter().map(Work::Commit).collect()) {
                            assert!(matches!(answer, StoreAnswer::Committed(_)), "{answer:?}");
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::SeqCst);
        reading.join().unwrap();
    });
}

#[test]
fn the_version_that_a_reader_sees_of_a_channel_never_goes_back() {
    let url = postgres_server::fresh();
    let stores = [open(&url).unwrap(), open(&url).unwrap(), open(&url).unwrap()];
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        // Moves the floor all the time.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                stores[1].commit(put("other")).unwrap();
                let deletes = vec![RowKey::Document(key("other"))];
                stores[1].commit(Commit { deletes, ..Commit::default() }).unwrap();
            }
        });
        let reading = scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let (version, users) = roster(&stores[2], "game#A");
                assert!(version >= last, "{version} with {users} users after {last}");
                last = version;
            }
        });
        let mut last = 0;
        for _ in 0..100 {
            for commit in [arrive("game#A", "ann"), go("game#A", "ann")] {
                let raised = stores[0].commit(commit).unwrap().raised[0].version;
                assert!(raised > last);
                last = raised;
            }
        }
        done.store(true, Ordering::SeqCst);
        reading.join().unwrap();
    });
}

/// Blocks the first store's commit just before its end, and runs `other` until it is done or waits too.
fn while_a_commit_ends<T: Send>(
    name: &str,
    held_up: impl Fn(&BlockingStore, &Writer) -> Receipt + Send + Sync,
    meanwhile: impl Fn(&BlockingStore, &Writer) -> T + Send + Sync,
) -> (Receipt, T) {
    let url = postgres_server::fresh();
    let stores = [0, 1].map(|_| open(&format!("{url}&application_name={name}")).unwrap());
    // A store takes its lane with its first commit, in turn.
    stores.iter().for_each(|store| drop(store.commit(put("first")).unwrap()));
    let node = open_node(&stores[0], "n1");
    let outside = Reader::new(&url);
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND wait_event_type = 'Lock'"
    );
    outside.run("BEGIN; SELECT FROM store_clock WHERE lane = 1 FOR UPDATE");
    let watching = Reader::new(&url);
    thread::scope(|scope| {
        let first = scope.spawn(|| held_up(&stores[0], &node));
        while watching.number(&waiting) < 1 {
            assert!(!first.is_finished(), "it was not held up");
        }
        let second = scope.spawn(|| meanwhile(&stores[1], &node));
        while !second.is_finished() && watching.number(&waiting) < 2 {}
        outside.run("ROLLBACK");
        (first.join().unwrap(), second.join().unwrap())
    })
}

#[test]
fn an_empty_channel_has_a_lower_version_than_a_concurrent_arrival() {
    let (arrived, (version, users)) = while_a_commit_ends(
        "empty",
        |store, _| store.commit(arrive("game#A", "ann")).unwrap(),
        |store, _| {
            // The floor is now above the number with which the channel begins.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(5) {
                store.commit(put("other")).unwrap();
            }
            store
                .commit(Commit { deletes: vec![RowKey::Document(key("other"))], ..Commit::default() })
                .unwrap();
            roster(store, "game#A")
        },
    );
    let last = arrived.raised[0].version;
    assert!(if users == 0 { version < last } else { version == last }, "{users} at {version}, {last}");
}

#[test]
fn a_hold_and_a_concurrent_arrival_see_each_other() {
    let hold = || {
        let (key, held_with) = (PresenceKey::new("active#1", "ann"), Some("game#1".into()));
        Row::Hold(PresenceHold { key, held_with, until: None })
    };
    let (arrived, seen) = while_a_commit_ends(
        "held",
        |node, _| node.commit(arrive("game#1", "ann")).unwrap(),
        |app, _| {
            app.commit(Commit { puts: vec![hold()], ..Commit::default() }).unwrap();
            app.read(Read::Presence(PresenceKey::new("game#1", "ann"))).unwrap()
        },
    );
    assert!(!arrived.held.is_empty() || seen != Found::Presence(None));
}

#[test]
fn closing_an_epoch_waits_for_its_commits_in_flight() {
    let (written, left) = while_a_commit_ends(
        "fence",
        |store, node| store.commit(Commit { writer: Some(node.clone()), ..put("late") }).unwrap(),
        |store, node| {
            let close = NodeChange::Close { node: node.clone(), proof: CloseProof::ProcessGone };
            store.commit(Commit { node: Some(close), ..Commit::default() }).unwrap();
            version(store, "late")
        },
    );
    assert_eq!(left, written.put[0].version, "nothing is written after the closing was answered");
}

#[test]
fn an_epoch_that_ends_inside_a_batch_writes_nothing_after_it() {
    let client = open(&postgres_server::fresh()).unwrap();
    let node = open_node(&client, "n1");
    let by_it = |name: &str| Commit { writer: Some(node.clone()), ..put(name) };
    let close = NodeChange::Close { node: node.clone(), proof: CloseProof::ProcessGone };
    let close = Commit { node: Some(close), ..Commit::default() };
    let batch = [by_it("before"), close, by_it("after"), put("by another writer")];
    let answers = client.run(batch.into_iter().map(Work::Commit).collect());
    let fenced = |answer: &StoreAnswer| matches!(answer, StoreAnswer::Failed(StoreError::Fenced { .. }));
    assert_eq!(answers.iter().map(fenced).collect::<Vec<_>>(), [false, false, true, false]);
    assert!(version(&client, "before") > 0 && version(&client, "after") == 0);
}

#[test]
fn of_a_name_that_many_open_one_epoch_stays_open() {
    let url = postgres_server::fresh();
    let stores: Vec<BlockingStore> = (0..4).map(|_| open(&url).unwrap()).collect();
    let mut epochs: Vec<Writer> = thread::scope(|scope| {
        let open = |store| (0..15).map(|_| open_node(store, "n1")).collect::<Vec<_>>();
        let opening: Vec<_> = stores.iter().map(|store| scope.spawn(move || open(store))).collect();
        opening.into_iter().flat_map(|opening| opening.join().unwrap()).collect()
    });
    epochs.sort();
    epochs.dedup();
    assert_eq!(epochs.len(), 60, "an epoch is given once");
    let by = |writer: &Writer| Commit { writer: Some(writer.clone()), ..put("a") };
    let last = epochs.pop().unwrap();
    stores[0].commit(by(&last)).unwrap();
    for closed in &epochs {
        assert!(matches!(stores[0].commit(by(closed)), Err(StoreError::Fenced { .. })));
    }
}

#[test]
fn users_do_not_wait_for_each_other() {
    let url = postgres_server::fresh();
    let client = open(&url).unwrap();
    client.commit(arrive("user#ann", "ann")).unwrap();
    client.commit(arrive("user#bob", "bob")).unwrap();
    let other = Reader::new(&url);
    other.run(
        "BEGIN; SELECT FROM presences WHERE user_id = 'ann' FOR UPDATE; SELECT FROM channel_presences
        WHERE channel_name = 'user#ann' FOR UPDATE",
    );
    client.commit(go("user#bob", "bob")).unwrap();
    client.commit(arrive("user#eve", "eve")).unwrap();
    other.run("ROLLBACK");
    client.commit(go("user#ann", "ann")).unwrap();
}

#[test]
fn cut_connection_reconnects_without_loss() {
    let url = postgres_server::fresh();
    let client = open(&format!("{url}&application_name=cut")).unwrap();
    let reader = Reader::new(&url);
    let made = make_through_cuts(&client, 2000, || {
        let cut =
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'cut'";
        reader.number(cut);
        // The pace of the cuts, not a wait for anything.
        thread::sleep(Duration::from_millis(20));
    });
    assert_eq!(reader.number("SELECT count(*) FROM documents WHERE version > 0"), made);
    assert!(version(&client, "d0") > 0, "reading goes on too");
}

#[test]
fn without_a_server_work_is_answered_soon() {
    let server = postgres_server::Server::start();
    let client = open(&server.fresh()).unwrap();
    client.commit(put("a")).unwrap();
    drop(server);
    let begin = Instant::now();
    for answer in client.run(vec![Work::Commit(put("c")), Work::Read(Read::Time)]) {
        assert!(matches!(answer, StoreAnswer::Failed(StoreError::Unavailable { .. })), "{answer:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_value_that_postgres_does_not_take_refuses_its_own_commit() {
    let client = open(&postgres_server::fresh()).unwrap();
    let works = ["a", "zero\0", "b"].map(|name| Work::Commit(put(name)));
    let answers = client.run(works.into());
    assert!(matches!(answers[1], StoreAnswer::Failed(StoreError::TooLarge { .. })), "{:?}", answers[1]);
    assert!(version(&client, "a") > 0 && version(&client, "b") > 0);
}

#[test]
fn time_is_the_servers() {
    let client = open(&postgres_server::fresh()).unwrap();
    let receipt = client.commit(put("a")).unwrap();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(receipt.time.0.abs_diff(wall) < 60_000);
    assert!(matches!(client.read(Read::Time), Ok(Found::Time(time)) if time >= receipt.time));
}
