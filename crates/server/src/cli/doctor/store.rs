//! The store: its server, the latency of a commit and a read, its clock, and its nodes.
//! Must hold: missing or old tables are not changed, and then nothing is written.

use super::{Finding, bad, doubtful, failure, from_engine, ok};
use crate::cli::moment;
use crate::config::Config;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tavern_domain::Time;
use tavern_store::blocking::BlockingStore;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{
    Clock, Commit, Document, DocumentKey, Found, NodeRow, Read, Row, StoreError, SystemClock,
};

const TIMEOUT: Duration = Duration::from_secs(5);
/// A commit slower than this makes commands noticeably slow.
const SLOW_COMMIT: Duration = Duration::from_millis(100);
/// Nodes that are shown, one per line.
const NODES_SHOWN: usize = 20;

/// The names of the live nodes, if the store could be read.
pub fn check(config: &Config, findings: &mut Vec<Finding>) -> Option<Vec<Arc<str>>> {
    // Opening would create the folder, and the doctor must not.
    if config.store.starts_with("sqlite:") && !config.data.exists() {
        let detail = format!("{} does not exist yet; the first start creates it", config.data.display());
        findings.push(doubtful("store", detail));
        return None;
    }
    match tavern_engines::store_facts(&config.store) {
        Ok(found) => {
            findings.extend(found.facts.into_iter().map(|fact| from_engine("store", fact)));
            if !found.is_made {
                return None;
            }
        }
        Err(error) => {
            findings.push(failure("store", error));
            return None;
        }
    }
    match probe(config) {
        Ok(report) => {
            findings.push(report.latency());
            findings.push(clock(report.apart_ms));
            findings.extend(stored_time(report.ahead_ms));
            Some(nodes(config, &report, findings))
        }
        Err(error) => {
            findings.push(failure("store", error));
            None
        }
    }
}

struct StoreReport {
    name: &'static str,
    write: Duration,
    read: Duration,
    apart_ms: u64,
    /// How far the stored time is ahead of the clock.
    ahead_ms: u64,
    now: Time,
    nodes: Vec<NodeRow>,
}

/// Writes a document, reads it back, removes it; then reads the store's clock and its nodes.
fn probe(config: &Config) -> Result<StoreReport, StoreError> {
    let server = Arc::new(ServerClock::default());
    let client = tavern_engines::open_client(&config.store, server.clone(), TIMEOUT)?;
    let key = DocumentKey::new("doctor", &format!("{:032x}", crate::random::random_bits()));
    let document = Row::Document(Document { key: key.clone(), body: Arc::from(*b"doctor") });
    let row = document.key();
    let began = Instant::now();
    client.commit(Commit { puts: vec![document], ..Commit::default() })?;
    let write = began.elapsed();
    let began = Instant::now();
    let found = client.read(Read::Document(key));
    let read = began.elapsed();
    client.commit(Commit { deletes: vec![row], ..Commit::default() })?;
    if !matches!(found?, Found::Document(Some(_))) {
        let what = "a document was missing right after it was written".to_owned();
        return Err(StoreError::Corrupt { what, source: None });
    }
    let (asked, began) = (SystemClock.now(), Instant::now());
    let Found::Time(stored) = client.read(Read::Time)? else { unreachable!("a time was asked for") };
    // The store read its clock at some moment between request and answer.
    let midway = asked + began.elapsed().as_millis() as u64 / 2;
    let wall = server.wall().unwrap_or(midway);
    let apart_ms = wall.ms().abs_diff(midway.ms());
    let nodes = all_nodes(&client)?;
    let (ahead_ms, now) = (stored.since(wall), stored.max(wall));
    Ok(StoreReport { name: client.store().name(), write, read, apart_ms, ahead_ms, now, nodes })
}

fn all_nodes(client: &BlockingStore) -> Result<Vec<NodeRow>, StoreError> {
    let mut nodes: Vec<NodeRow> = Vec::new();
    loop {
        let after = nodes.last().map(|node| node.writer.clone());
        let Found::Nodes(page) = client.read(Read::Nodes { after, limit: PAGE_ROWS })? else {
            unreachable!("nodes were asked for")
        };
        nodes.extend(page.rows);
        if !page.more {
            return Ok(nodes);
        }
    }
}

impl StoreReport {
    fn latency(&self) -> Finding {
        let detail = format!("{}: wrote in {:.1?}, read in {:.1?}", self.name, self.write, self.read);
        if self.write > SLOW_COMMIT {
            doubtful("store", format!("{detail}; slow: is the disk busy, or the store far away?"))
        } else {
            ok("store", detail)
        }
    }
}

fn clock(apart_ms: u64) -> Finding {
    let detail = format!("{apart_ms} ms between this machine and the store");
    match apart_ms {
        0..1_000 => ok("clock", detail),
        1_000..30_000 => doubtful("clock", format!("{detail}; synchronise the clocks (NTP)")),
        _ => bad(
            "clock",
            format!("{detail}; tokens and deadlines will be wrong: synchronise the clocks (NTP)"),
        ),
    }
}

/// Node time may be a little ahead of the clock, which it follows slowly.
const AHEAD_MS: u64 = 10_000;

/// A stored time ahead of the clock is left by a server whose clock was wrong.
fn stored_time(ahead_ms: u64) -> Option<Finding> {
    let ahead = moment::span(ahead_ms);
    (ahead_ms > AHEAD_MS).then(|| {
        bad(
            "clock",
            format!(
                "the stored time is {ahead} ahead of the clock; what is stored meanwhile is deleted by age that much later. \
                 Check that the clock is right: a server of this store ran with one that was ahead"
            ),
        )
    })
}

/// Notes the clock of the store's server, and leaves the stored time as it is.
#[derive(Default)]
struct ServerClock(AtomicU64);

impl ServerClock {
    fn wall(&self) -> Option<Time> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&ms| ms > 0).map(Time)
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn latest(&self) -> Time {
        Time::ZERO
    }

    fn observe_server(&self, wall: Time) {
        self.0.store(wall.0, Ordering::Relaxed);
    }
}

/// The nodes on this store. A lease that has expired without being closed means that no live node has taken over yet.
fn nodes(config: &Config, report: &StoreReport, findings: &mut Vec<Finding>) -> Vec<Arc<str>> {
    let now = report.now;
    let open: Vec<&NodeRow> = report.nodes.iter().filter(|node| node.closed_at.is_none()).collect();
    for node in open.iter().take(NODES_SHOWN) {
        let subject = format!("node {}", node.writer.node);
        let epoch = format!("epoch {}, since {}", node.writer.epoch.0, moment::show(node.opened_at));
        findings.push(if now < node.lease_until {
            let own = if *node.writer.node == *config.node { " (this configuration's name)" } else { "" };
            ok(
                subject,
                format!("alive, lease for {} more, {epoch}{own}", moment::span(node.lease_until.since(now))),
            )
        } else {
            let ago = moment::span(now.since(node.lease_until));
            doubtful(
                subject,
                format!(
                    "its lease expired {ago} ago, {epoch}; the next server to start takes over its clients"
                ),
            )
        });
    }
    if open.len() > NODES_SHOWN {
        findings.push(ok("nodes", format!("{} more", open.len() - NODES_SHOWN)));
    }
    open.into_iter().filter(|node| now < node.lease_until).map(|node| node.writer.node.clone()).collect()
}
