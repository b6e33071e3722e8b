//! Commits and reads that the tests of the network engines share.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tavern_domain::presence::{Attendance, ChannelClient, NodeEpoch, Visibility};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::blocking::BlockingStore;
use tavern_store::{
    ChannelVersionBump, Commit, Document, DocumentKey, Expect, Found, NodeChange, PresenceKey, PresenceRow,
    Read, Row, RowKey, StoreError, SystemClock, Writer,
};

/// Long enough for a loaded machine; nothing waits for it unless a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn open(url: &str) -> Result<BlockingStore, StoreError> {
    tavern_engines::open_client(url, Arc::new(SystemClock), PATIENCE)
}

pub fn open_node(client: &BlockingStore, name: &str) -> Writer {
    let node = Some(NodeChange::Open { name: name.into(), lease_ms: 60_000 });
    let receipt = client.commit(Commit { node, ..Commit::default() }).unwrap();
    Writer::new(name, receipt.epoch.unwrap())
}

pub fn key(name: &str) -> DocumentKey {
    DocumentKey::new("thing", name)
}

pub fn document(name: &str, body: &str) -> Row {
    Row::Document(Document { key: key(name), body: body.as_bytes().into() })
}

pub fn put(name: &str) -> Commit {
    Commit { puts: vec![document(name, "x")], ..Commit::default() }
}

pub fn version(client: &BlockingStore, name: &str) -> u64 {
    match client.read(Read::Document(key(name))).unwrap() {
        Found::Document(found) => found.map_or(0, |found| found.version),
        other => panic!("{other:?}"),
    }
}

pub fn arrive(channel: &str, user: &str) -> Commit {
    let client = ChannelClient {
        client: ClientId::from_random(1),
        node: NodeEpoch { node: "n1".into(), epoch: Epoch(1) },
        state: None,
        since: Time(7),
        lost: None,
    };
    let row = Row::Presence(PresenceRow {
        key: PresenceKey::new(channel, user),
        anonymous: false,
        name: None,
        visibility: Visibility::Everyone,
        attendance: Attendance::restore(vec![client], Time(7), None),
    });
    Commit {
        puts: vec![row],
        raises: vec![ChannelVersionBump { channel: channel.into(), by: 2 }],
        ..Commit::default()
    }
}

pub fn go(channel: &str, user: &str) -> Commit {
    let deletes = vec![RowKey::Presence(PresenceKey::new(channel, user))];
    Commit {
        deletes,
        raises: vec![ChannelVersionBump { channel: channel.into(), by: 2 }],
        ..Commit::default()
    }
}

pub fn roster(client: &BlockingStore, channel: &str) -> (u64, u64) {
    match client.read(Read::Roster { channel: channel.into(), after: None, limit: 10 }).unwrap() {
        Found::Roster(roster) => (roster.version, roster.users),
        other => panic!("{other:?}"),
    }
}

/// Makes documents, each once, while `cut` ends the connections of the store again and again. How many were made.
pub fn make_through_cuts(client: &BlockingStore, max: usize, cut: impl Fn()) -> i64 {
    let done = AtomicBool::new(false);
    let make = || {
        let mut cuts = 0;
        for n in 0..max {
            let name = format!("d{n}");
            let expects = vec![Expect { key: RowKey::Document(key(&name)), version: 0 }];
            let (begin, before) = (Instant::now(), cuts);
            loop {
                match client.commit(Commit { expects: expects.clone(), ..put(&name) }) {
                    Ok(_) => break,
                    // The commit was applied, but its answer was lost.
                    Err(StoreError::Conflict { .. }) if cuts > before => break,
                    Err(StoreError::Unavailable { .. }) => cuts += 1,
                    Err(error) => panic!("{error:?}"),
                }
                assert!(begin.elapsed() < PATIENCE, "it does not come back");
            }
            if n > 300 && cuts > 2 {
                return (n + 1, cuts);
            }
        }
        (max, cuts)
    };
    thread::scope(|scope| {
        let making = scope.spawn(|| {
            let made = make();
            done.store(true, Ordering::SeqCst);
            made
        });
        while !done.load(Ordering::SeqCst) && !making.is_finished() {
            cut();
        }
        let (made, cuts) = making.join().unwrap();
        assert!(cuts > 0, "no commit met a cut");
        made as i64
    })
}
