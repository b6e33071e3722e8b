//! How many joins a store commits in a second: `joins ADDRESS [SECONDS] [IN FLIGHT] [CHANNELS]`. One node, many commits in flight,
//! each a user who was nowhere and comes into a channel.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tavern_domain::presence::{Attendance, ChannelClient, NodeEpoch, Visibility};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::{
    AnswerReceiver, ChannelVersionBump, Commit, Expect, NodeChange, PresenceKey, PresenceRow, Row, RowKey,
    Store, StoreAnswer, SystemClock, Ticket, Work, Writer,
};

#[derive(Default)]
struct Counter {
    done: AtomicU64,
    failed: AtomicU64,
    epoch: Mutex<Option<Epoch>>,
    changed: Condvar,
    free: Mutex<u64>,
}

impl AnswerReceiver for Counter {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        for (_, answer) in &answers {
            match answer {
                StoreAnswer::Committed(receipt) => {
                    if receipt.epoch.is_some() {
                        *self.epoch.lock().unwrap() = receipt.epoch;
                    }
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
                _ => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        *self.free.lock().unwrap() += answers.len() as u64;
        self.changed.notify_all();
    }
}

fn join(writer: &Writer, channel: String, user: String, n: u64) -> Commit {
    let key = PresenceKey::new(&channel, &user);
    let attendee = ChannelClient {
        client: ClientId::from_random(u128::from(n) << 50),
        node: NodeEpoch { node: writer.node.clone(), epoch: writer.epoch },
        state: None,
        since: Time(1_790_000_000_000),
        lost: None,
    };
    let presence = PresenceRow {
        key: key.clone(),
        anonymous: false,
        name: Some(user.as_str().into()),
        visibility: Visibility::Everyone,
        attendance: Attendance::restore(vec![attendee], Time(1_790_000_000_000), None),
    };
    Commit {
        writer: Some(writer.clone()),
        expects: vec![Expect { key: RowKey::Presence(key), version: 0 }],
        puts: vec![Row::Presence(presence)],
        raises: vec![ChannelVersionBump { channel: channel.as_str().into(), by: 2 }],
        ..Commit::default()
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (seconds, in_flight, channels) = (number(1, 5), number(2, 800), number(3, 1000));
    let counter = Arc::new(Counter::default());
    let store: Arc<dyn Store> =
        tavern_engines::open(&arguments[0], Arc::new(SystemClock), counter.clone()).unwrap();
    let node = Some(NodeChange::Open { name: "bench".into(), lease_ms: 600_000 });
    store.submit(vec![(Ticket(0), Work::Commit(Commit { node, ..Commit::default() }))]);
    let epoch = loop {
        if let Some(epoch) = *counter.epoch.lock().unwrap() {
            break epoch;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let writer = Writer::new("bench", epoch);
    *counter.free.lock().unwrap() = in_flight;
    let (begin, before) = (Instant::now(), counter.done.load(Ordering::Relaxed));
    let mut n = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        let free = counter.free.lock().unwrap();
        let mut free = counter.changed.wait_while(free, |free| *free == 0).unwrap();
        let room = std::mem::take(&mut *free);
        drop(free);
        let works = (n..n + room).map(|n| {
            let user = format!("user-{}-{n}", epoch.0);
            (Ticket(n), Work::Commit(join(&writer, format!("game#{}", n % channels), user, n)))
        });
        store.submit(works.collect());
        n += room;
    }
    let took = begin.elapsed();
    let done = counter.done.load(Ordering::Relaxed) - before;
    let failed = counter.failed.load(Ordering::Relaxed);
    println!("{:.0} joins/s, {done} in {took:?}, {failed} failed", done as f64 / took.as_secs_f64());
    store.stop();
}
