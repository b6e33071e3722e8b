//! How long an append to the log of topics takes when many nodes write: each node has an engine of its own, and all of them
//! together append at one rate.
//!
//!     cargo run --release --example appends -- ADDRESS [NODES] [RATE] [SECONDS] [PID of the server]
//!
//! Each append is one commit with one event of 256 bytes; every node publishes to a topic of its own. On Postgres another
//! connection looks 50 times a second how many transactions wait for a lock: by Little's law their mean, divided by the rate, is
//! the time that an append waits for locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tavern_store::{AnswerReceiver, Append, Commit, Store, StoreAnswer, SystemClock, Ticket, Work};

#[derive(Default)]
struct Node {
    sent: Mutex<HashMap<Ticket, Instant>>,
    took_us: Mutex<Vec<u64>>,
    failed: AtomicU64,
}

impl AnswerReceiver for Node {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        let now = Instant::now();
        let (mut sent, mut took) = (self.sent.lock().unwrap(), self.took_us.lock().unwrap());
        for (ticket, answer) in answers {
            let began = sent.remove(&ticket).expect("it was sent");
            match answer {
                StoreAnswer::Committed(_) => took.push((now - began).as_micros() as u64),
                _ => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }
}

/// Transactions that wait for a lock on average, while it runs.
async fn waiting(url: String, is_over: Arc<AtomicBool>) -> f64 {
    let address = url.split('?').next().unwrap_or_default().to_owned();
    let (client, io) = tokio_postgres::connect(&address, tokio_postgres::NoTls).await.expect("it connects");
    tokio::spawn(io);
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let statement = client.prepare(sql).await.expect("it is a statement");
    let (mut looks, mut found) = (0.0, 0.0);
    while !is_over.load(Ordering::Relaxed) {
        let row = client.query_one(&statement, &[]).await.expect("it answers");
        looks += 1.0;
        found += row.get::<_, i64>(0) as f64;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    found / looks
}

/// Seconds of processor time of a process and its children, as they are now.
fn cpu(pid: &str) -> f64 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let of = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / 100.0
    };
    of(pid) + children.split_whitespace().map(of).sum::<f64>()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (url, nodes, rate, seconds) = (&arguments[0], number(1, 3), number(2, 600), number(3, 10));
    let server = arguments.get(4).map_or("none", String::as_str);
    let open = |_| {
        let node = Arc::new(Node::default());
        (tavern_engines::open(url, Arc::new(SystemClock), node.clone()).expect("the store opens"), node)
    };
    let nodes: Vec<(Arc<dyn Store>, Arc<Node>)> = (0..nodes).map(open).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let looking = url.starts_with("postgres").then(|| runtime.spawn(waiting(url.clone(), is_over.clone())));
    let (begin, before, mut sent) = (Instant::now(), cpu(server), 0);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let due = begin.elapsed().as_micros() as u64 * rate / 1_000_000;
        for n in sent..due {
            let at = (n % nodes.len() as u64) as usize;
            let event =
                Append { topic: format!("appends-{at}").into(), id: None, body: vec![b'x'; 256].into() };
            let (store, node) = &nodes[at];
            node.sent.lock().unwrap().insert(Ticket(n), Instant::now());
            store.submit(vec![(
                Ticket(n),
                Work::Commit(Commit { appends: vec![event], ..Commit::default() }),
            )]);
        }
        sent = due.max(sent);
        std::thread::sleep(Duration::from_micros(200));
    }
    while nodes.iter().any(|(_, node)| !node.sent.lock().unwrap().is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let used = cpu(server) - before;
    is_over.store(true, Ordering::Relaxed);
    let waiting = looking.map(|looking| runtime.block_on(looking).unwrap());
    let mut took: Vec<u64> =
        nodes.iter().flat_map(|(_, node)| node.took_us.lock().unwrap().clone()).collect();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    let failed: u64 = nodes.iter().map(|(_, node)| node.failed.load(Ordering::Relaxed)).sum();
    let lock = waiting.map_or("-".to_owned(), |waiting| format!("{:.2}", waiting * 1000.0 / rate as f64));
    println!(
        "nodes {} rate {rate} p50_ms {:.2} p99_ms {:.2} lock_wait_ms {lock} server_cpu_us {:.0} failed {failed}",
        nodes.len(),
        at(0.5),
        at(0.99),
        used * 1e6 / sent as f64
    );
    nodes.iter().for_each(|(store, _)| store.stop());
}
