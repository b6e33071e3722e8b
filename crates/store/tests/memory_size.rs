//! How much memory the in-memory engine needs for a presence. Counts every live allocation of the process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tavern_domain::presence::{Attendance, ChannelClient, NodeEpoch, Visibility};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::blocking::BlockingStore;
use tavern_store::memory::MemoryEngine;
use tavern_store::{ChannelVersionBump, Commit, ManualClock, PresenceKey, PresenceRow, Row};

/// Of one presence, with its channel, its indexes and the unused room of maps.
const MOST_BYTES: usize = 200;
const PRESENCES: usize = 20_000;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: only forwards to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// As a hub commits it: every commit has names of its own.
fn join(channel: usize, user: usize) -> Commit {
    let (channel, user) = (format!("room#{channel}"), format!("user-{user}"));
    let client = ChannelClient {
        client: ClientId::from_random((user.len() as u128) << 70 | 7),
        node: NodeEpoch { node: "node-1".into(), epoch: Epoch(1_790_000_000_000_000) },
        state: None,
        since: Time(1_790_000_000_000),
        lost: None,
    };
    let presence = PresenceRow {
        key: PresenceKey::new(&channel, &user),
        anonymous: false,
        name: Some(format!("The name of {user}").into()),
        visibility: Visibility::Everyone,
        attendance: Attendance::restore(vec![client], Time(1_790_000_000_000), None),
    };
    let raises = vec![ChannelVersionBump { channel: channel.as_str().into(), by: 2 }];
    Commit { puts: vec![Row::Presence(presence)], raises, ..Commit::default() }
}

fn bytes_each(place: impl Fn(usize) -> (usize, usize)) -> usize {
    let engine = MemoryEngine::new(Arc::new(ManualClock::at(Time(1_790_000_000_000))));
    let client =
        BlockingStore::with(Duration::from_secs(60), |answers| Ok(engine.store("node-1", answers))).unwrap();
    let before = LIVE.load(Ordering::Relaxed);
    for n in 0..PRESENCES {
        // Not in the order of their names.
        let (channel, user) = place(n * 7_919 % PRESENCES);
        client.commit(join(channel, user)).unwrap();
    }
    (LIVE.load(Ordering::Relaxed) - before) / PRESENCES
}

#[test]
fn a_presence_needs_little_memory() {
    for (what, each) in [
        ("100 users in 200 channels", bytes_each(|n| (n % 200, n / 200))),
        ("20,000 users in 200 channels", bytes_each(|n| (n % 200, n))),
        ("20,000 users in one channel", bytes_each(|n| (0, n))),
    ] {
        println!("{what}: {each} bytes a presence");
        assert!(each <= MOST_BYTES, "{what}: {each} bytes a presence, at most {MOST_BYTES}");
    }
}
