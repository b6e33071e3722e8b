//! The log of topics on Postgres: thousands of transactions of several stores race, and a reader with a cursor skips none
//! of their events; an event is read by nobody before it is durable.

use crate::fixture::*;
use crate::postgres_server;
use crate::table_reader::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tavern_store::{Append, Commit, Found, LogEntry, NewInboxMessage, Read, Work};

const STORES: usize = 6;
/// Each is a transaction of its own: the next is submitted when it is answered.
const TRANSACTIONS: usize = 400;

fn commit(store: usize, n: usize) -> Commit {
    let event = |topic: String| Append { topic: topic.into(), id: None, body: Arc::from(*b"x") };
    // Some are slower than others because they do more.
    let message = |user: usize| NewInboxMessage {
        user: format!("u{user}").into(),
        body: Arc::from(*b"y"),
        max_messages: 10,
        max_bytes: 1000,
    };
    let inbox_messages = if n.is_multiple_of(3) { (0..5).map(message).collect() } else { Vec::new() };
    let appends = vec![event(format!("own{store}")), event("all".into())];
    Commit { appends, inbox_messages, puts: vec![document(&format!("d{}", n % 4), "z")], ..Commit::default() }
}

#[test]
fn no_reader_skips_an_event_of_racing_transactions() {
    let url = postgres_server::fresh();
    let writing = AtomicUsize::new(STORES);
    thread::scope(|scope| {
        for store in 0..STORES {
            let (url, writing) = (&url, &writing);
            scope.spawn(move || {
                let client = open(url).unwrap();
                for n in 0..TRANSACTIONS {
                    client.commit(commit(store, n)).unwrap();
                }
                writing.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for topics in [vec![], vec!["all"], vec!["own1", "own4"]] {
            let (url, writing) = (&url, &writing);
            scope.spawn(move || {
                let client = open(url).unwrap();
                let seen = follow(&client, &topics, writing);
                let Found::Log(whole) = client.read(read(&topics, 0, 1)).unwrap() else { unreachable!() };
                assert_eq!(whole.log.head, (STORES * TRANSACTIONS * 2) as u64);
                let wanted = match topics.len() {
                    0 => 2 * STORES * TRANSACTIONS,
                    1 => STORES * TRANSACTIONS,
                    _ => 2 * TRANSACTIONS,
                };
                assert_eq!(seen.len(), wanted, "{topics:?}: something was skipped");
                for topic in ["own1", "all"] {
                    let counts: Vec<u64> =
                        seen.iter().filter(|entry| *entry.topic == *topic).map(|entry| entry.count).collect();
                    assert!(counts.iter().copied().eq(1..=counts.len() as u64), "{topic} has holes");
                }
            });
        }
    });
}

/// Reads from its own cursor on, as a worker does, until the writers have ended and nothing is left.
fn follow(
    client: &tavern_store::blocking::BlockingStore,
    topics: &[&str],
    writing: &AtomicUsize,
) -> Vec<LogEntry> {
    let mut seen: Vec<LogEntry> = Vec::new();
    loop {
        let over = writing.load(Ordering::SeqCst) == 0;
        let after = seen.last().map_or(0, |entry| entry.position);
        let Found::Log(stretch) = client.read(read(topics, after, 500)).unwrap() else { unreachable!() };
        if stretch.page.rows.is_empty() {
            if over {
                return seen;
            }
            thread::sleep(Duration::from_millis(1));
        }
        seen.extend(stretch.page.rows);
    }
}

fn read(topics: &[&str], after: u64, limit: u32) -> Read {
    Read::Log { topics: topics.iter().map(|topic| Arc::from(*topic)).collect(), after, limit }
}

#[test]
fn a_batch_of_many_commits_appends_in_their_order() {
    let client = open(&postgres_server::fresh()).unwrap();
    let works = (0..300).map(|n| Work::Commit(commit(0, n))).collect();
    let answers = client.run(works);
    assert_eq!(answers.len(), 300);
    let Found::Log(stretch) = client.read(read(&["own0"], 0, 1000)).unwrap() else { unreachable!() };
    let counts: Vec<u64> = stretch.page.rows.iter().map(|entry| entry.count).collect();
    assert!(counts.iter().copied().eq(1..=300), "{counts:?}");
}

#[test]
fn an_append_that_waits_to_be_durable_holds_no_lock_and_is_not_read() {
    let server = postgres_server::Server::start();
    let url = server.fresh();
    let (writer, other) = (open(&url).unwrap(), open(&url).unwrap());
    // Its own commits wait for nothing.
    let table = Reader::new(&url);
    table.run("SET synchronous_commit = off");
    let set_standby = |sql: &str| {
        table.run(&format!("ALTER SYSTEM {sql}"));
        table.run("SELECT pg_reload_conf()");
    };
    let until_waiting = |sessions: i64| {
        let begin = Instant::now();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%emit_message%'";
        while table.number(sql) < sessions {
            assert!(begin.elapsed() < PATIENCE, "no commit waits for the standby");
        }
    };
    let event = || Append { topic: "all".into(), id: None, body: Arc::from(*b"x") };
    let append = || writer.commit(Commit { appends: vec![event()], ..Commit::default() }).unwrap();
    append();
    let (answered, is_over) = (AtomicUsize::new(1), AtomicBool::new(false));
    thread::scope(|scope| {
        set_standby("SET synchronous_standby_names = 'none_is_there'");
        let writing = scope.spawn(|| {
            // The setting takes effect a moment later.
            while !is_over.load(Ordering::SeqCst) {
                append();
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
        until_waiting(1);
        let visible = table.number("SELECT head FROM event_log");
        assert_eq!(visible as usize, answered.load(Ordering::SeqCst) + 1, "visible, and not answered");
        table.run("SELECT FROM event_log FOR UPDATE NOWAIT");
        let reading = scope.spawn(|| other.read(read(&[], 0, 500)).unwrap());
        until_waiting(2);
        assert!(!reading.is_finished() && !writing.is_finished());
        is_over.store(true, Ordering::SeqCst);
        set_standby("RESET synchronous_standby_names");
        let Found::Log(found) = reading.join().unwrap() else { unreachable!() };
        assert_eq!(found.log.head as i64, visible);
    });
}
