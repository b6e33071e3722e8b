//! Measures a bus between nodes in this process: messages a second, latency at a steady rate, processor time of nodes
//! and server.
//!
//!     cargo run --release --example buses -- URL [PID of the server] [NODES]
//!
//! Two of the nodes (3) have subscribed to all 100 subjects. One of the others publishes as fast as it can, then all others
//! publish in turn at the steady rate. Each message is 256 bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tavern_domain::Epoch;
use tavern_engines::{BusOptions, LogBounds, open_bus};
use tavern_store::{
    BusError, BusLoss, BusPacket, BusReceiver, Interest, Subject, SystemClock, Ticket, Writer,
};

const BURST: u64 = 200_000;
const RATE: u64 = 1_000;
const STEADY: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(10);
const SUBJECTS: u64 = 100;

struct Node {
    began: Instant,
    received: AtomicU64,
    lost: AtomicU64,
    confirmed: AtomicU64,
    latencies_us: Mutex<Vec<u64>>,
}

impl BusReceiver for Node {
    fn confirmed(&self, _: Ticket, outcome: Result<(), BusError>) {
        outcome.expect("the subscription holds");
        self.confirmed.fetch_add(1, Ordering::SeqCst);
    }

    fn messages(&self, messages: Vec<BusPacket>) {
        let now = self.began.elapsed().as_micros() as u64;
        let sent =
            |message: &BusPacket| message.payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut latencies = self.latencies_us.lock().unwrap();
        latencies.extend(messages.iter().map(|message| now.saturating_sub(sent(message))));
        self.received.fetch_add(messages.len() as u64, Ordering::SeqCst);
    }

    fn lost(&self, _: BusLoss) {
        self.lost.fetch_add(1, Ordering::SeqCst);
    }
}

/// Seconds of processor time of a process.
fn cpu(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// A process and its children, as they are now.
fn cpu_of_server(pid: &str) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    cpu(pid) + children.split_whitespace().map(cpu).sum::<f64>()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().expect("the address of a bus");
    let server = arguments.next();
    let nodes: usize = arguments.next().map_or(3, |text| text.parse().expect("a number of nodes"));
    let began = Instant::now();
    let open = |name: &str| {
        let node = Arc::new(Node {
            began,
            received: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            latencies_us: Mutex::default(),
        });
        let options = BusOptions {
            node: name,
            prefix: "measured",
            folder: "/nowhere".as_ref(),
            bounds: LogBounds::default(),
        };
        let bus = open_bus(&url, &options, Arc::new(SystemClock), node.clone()).expect("the bus opens");
        (bus, node)
    };
    let subject = |n: u64| Subject::new("measured", "room", (n % SUBJECTS).to_string().as_bytes()).unwrap();
    let listeners = [open("listener-1"), open("listener-2")];
    let names: Vec<String> = (2..nodes).map(|n| format!("sender-{n}")).collect();
    let senders: Vec<_> = names.iter().map(|name| open(name)).collect();
    for (bus, node) in &listeners {
        let interests: Vec<Interest> = (0..SUBJECTS).map(|n| subject(n).into()).collect();
        bus.subscribe(interests, Ticket(1));
        while node.confirmed.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let message = |n: u64, sender: usize| {
        let mut payload = vec![b'x'; 256];
        payload[..8].copy_from_slice(&(began.elapsed().as_micros() as u64).to_le_bytes());
        let from = Writer::new(&names[sender], Epoch(1));
        BusPacket { subject: subject(n), from, n, header: Arc::from([]), payload: payload.into() }
    };
    let used = || (cpu("self"), server.as_deref().map_or(0.0, cpu_of_server));
    let until = |count: u64| {
        let end = Instant::now() + Duration::from_secs(60);
        while listeners.iter().any(|(_, node)| node.received.load(Ordering::SeqCst) < count) {
            assert!(Instant::now() < end, "messages are missing");
            std::thread::sleep(Duration::from_millis(1));
        }
    };

    let (before, start) = (used(), Instant::now());
    for part in 0..BURST / 100 {
        while senders[0].0.is_full() {
            std::thread::sleep(Duration::from_millis(1));
        }
        senders[0].0.publish((part * 100..part * 100 + 100).map(|n| message(n, 0)).collect());
    }
    until(BURST);
    let (seconds, after) = (start.elapsed().as_secs_f64(), used());
    let per_million = |seconds: f64, count: u64| seconds * 1e6 / count as f64;
    println!("burst: {:.0} messages/s to each of two nodes", BURST as f64 / seconds);
    println!(
        "       processor seconds per million: nodes {:.1}, server {:.1}",
        per_million(after.0 - before.0, BURST),
        per_million(after.1 - before.1, BURST)
    );

    listeners.iter().for_each(|(_, node)| node.latencies_us.lock().unwrap().clear());
    let (before, start) = (used(), Instant::now());
    let mut sent = 0;
    while start.elapsed() < STEADY {
        let due = start.elapsed().as_micros() as u64 * RATE / 1_000_000;
        for n in sent..due {
            let at = (n % senders.len() as u64) as usize;
            senders[at].0.publish(vec![message(n, at)]);
        }
        sent = due.max(sent);
        std::thread::sleep(Duration::from_micros(200));
    }
    until(BURST + sent);
    let after = used();
    let mut latencies: Vec<u64> =
        listeners.iter().flat_map(|(_, node)| node.latencies_us.lock().unwrap().clone()).collect();
    latencies.sort_unstable();
    let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!("{RATE}/s: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms", at(0.5), at(0.99), at(1.0));
    println!(
        "       processor seconds per million: nodes {:.1}, server {:.1}",
        per_million(after.0 - before.0, sent),
        per_million(after.1 - before.1, sent)
    );

    let before = used();
    std::thread::sleep(IDLE);
    let after = used();
    let share = |before: f64, after: f64| (after - before) * 100.0 / IDLE.as_secs_f64();
    println!(
        "idle: nodes {:.2} %, server {:.2} % of a core",
        share(before.0, after.0),
        share(before.1, after.1)
    );
    let lost: u64 = listeners.iter().map(|(_, node)| node.lost.load(Ordering::SeqCst)).sum();
    println!("losses reported: {lost}");
}
