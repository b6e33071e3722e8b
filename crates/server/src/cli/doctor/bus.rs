//! The bus: its server, its latency, and which nodes answer on it. The doctor opens two connections, as two nodes would.
//! Must hold: a folder without a bus gets none; only the doctor receives its own messages.

use super::{Finding, bad, doubtful, failure, from_engine, ok};
use crate::bus_probe::BusProbe;
use crate::cli::{local, table};
use crate::config::Config;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_domain::Epoch;
use tavern_hub::NodeQuery;
use tavern_local::Stat;
use tavern_store::{BusPacket, Interest, Subject, Writer};

const TIMEOUT: Duration = Duration::from_secs(3);
/// How long to wait for nodes that the store does not know, once all that it knows have answered.
const UNKNOWN_NODES: Duration = Duration::from_millis(300);
/// A bus slower than this delays every message between nodes.
const SLOW_MESSAGE: Duration = Duration::from_millis(50);
/// The kind of the subject of the doctor's own messages.
const DOCTOR: &str = "_doctor";

/// `nodes` are the live nodes of the store.
pub fn check(config: &Config, nodes: Option<&[Arc<str>]>, findings: &mut Vec<Finding>) {
    if config.bus == "local" && !folder(&config.data, findings) {
        return;
    }
    match tavern_engines::bus_facts(&config.bus) {
        Ok(facts) => findings.extend(facts.into_iter().map(|fact| from_engine("bus", fact))),
        Err(error) => return findings.push(failure("bus", error)),
    }
    match probe(config, nodes.unwrap_or_default()) {
        Ok(probe) => {
            findings.push(probe.latency(&config.bus));
            if let Some(nodes) = nodes {
                findings.extend(membership(config, nodes, &probe.answered));
            }
        }
        Err(error) => findings.push(failure("bus", error)),
    }
}

struct Probe {
    trip: Option<Duration>,
    answered: BTreeSet<Arc<str>>,
}

fn probe(config: &Config, nodes: &[Arc<str>]) -> Result<Probe, anyhow::Error> {
    let lot = crate::random::random_bits();
    let names = [format!("doctor-{lot:032x}"), format!("patient-{lot:032x}")];
    let speaker = BusProbe::open(config, &names[0])?;
    let listener = BusProbe::open(config, &names[1])?;
    let subject = Subject::new(&config.prefix, DOCTOR, names[0].as_bytes())?;
    let roll = NodeQuery::call(&config.prefix, &names[1], lot)?;
    let interests = vec![Interest::Subject(subject.clone()), roll.answers];
    listener.subscribe(interests, TIMEOUT)?;
    let message = BusPacket {
        subject: subject.clone(),
        from: Writer::new(&names[0], Epoch(0)),
        n: 1,
        header: Arc::from([]),
        payload: Arc::from(*b"doctor"),
    };
    let began = Instant::now();
    speaker.publish(message);
    let trip = listener.message(TIMEOUT).filter(|packet| packet.subject == subject).map(|_| began.elapsed());
    listener.publish(roll.question);
    let mut answered = BTreeSet::new();
    let end = Instant::now() + TIMEOUT;
    loop {
        let all = nodes.iter().all(|node| answered.contains(node));
        let wait = if all { UNKNOWN_NODES } else { end.saturating_duration_since(Instant::now()) };
        match listener.message(wait) {
            Some(packet) => drop(answered.insert(packet.from.node.clone())),
            None => break,
        }
    }
    Ok(Probe { trip, answered })
}

impl Probe {
    fn latency(&self, url: &str) -> Finding {
        let kind = url.split(':').next().unwrap_or_default();
        match self.trip {
            None => bad(
                "bus latency",
                format!(
                    "{kind}: a published message did not arrive: check that this login may publish and subscribe (docs/deploy/security.md)"
                ),
            ),
            Some(trip) if trip > SLOW_MESSAGE => doubtful(
                "bus latency",
                format!("{kind}: a message took {trip:.1?}; slow: is the server busy or far away?"),
            ),
            Some(trip) => ok("bus latency", format!("{kind}: a message took {trip:.1?}")),
        }
    }
}

/// The nodes of the store and those on the bus must be the same.
fn membership(config: &Config, nodes: &[Arc<str>], answered: &BTreeSet<Arc<str>>) -> Vec<Finding> {
    let prefix = &config.prefix;
    let silent: Vec<&str> =
        nodes.iter().filter(|node| !answered.contains(*node)).map(|node| &**node).collect();
    let unknown: Vec<&str> =
        answered.iter().filter(|node| !nodes.contains(node)).map(|node| &**node).collect();
    let mut found = Vec::new();
    if !silent.is_empty() {
        found.push(bad(
            "cluster",
            format!(
                "{} are in this store but do not answer on this bus: they use another bus or another `prefix` than {prefix:?}, or have stopped",
                silent.join(", ")
            ),
        ));
    }
    if !unknown.is_empty() {
        found.push(bad(
            "cluster",
            format!(
                "{} answer on this bus but are not in this store: two clusters share the prefix {prefix:?}; set another `prefix` for one of them",
                unknown.join(", ")
            ),
        ));
    }
    if found.is_empty() && !nodes.is_empty() {
        let count = local::counted(nodes.len() as u64, "node", "nodes");
        found.push(ok("cluster", format!("{count} in the store, the same on the bus")));
    }
    found
}

/// The bus in the folder, if there is one. True: it may be probed. Not with dead processes in it: joining would remove
/// them, and the doctor changes nothing.
fn folder(folder: &Path, findings: &mut Vec<Finding>) -> bool {
    let outcome = local::open(folder).and_then(|bus| Ok(bus.map(|bus| bus.stat()).transpose()?));
    match outcome {
        Ok(Some(stat)) => {
            findings.push(folder_health(folder, &stat));
            return stat.processes.iter().all(|process| process.alive);
        }
        Ok(None) => {}
        Err(error) => findings.push(bad("bus", crate::cli::describe(&error))),
    }
    false
}

fn folder_health(folder: &Path, stat: &Stat) -> Finding {
    let bounds = tavern_local::Options::default();
    let living = stat.processes.iter().filter(|process| process.alive);
    let alive = living.clone().count();
    let dead = stat.processes.len() - alive;
    let listening = local::counted(alive as u64, "process listens", "processes listen");
    let log = local::counted(stat.log_messages, "message", "messages");
    let detail = format!("{listening}, {log} ({}) in the log", table::size(stat.log_bytes));
    let full =
        stat.log_messages >= bounds.log_messages / 10 * 9 || stat.log_bytes >= bounds.log_bytes / 10 * 9;
    let slowest = living.max_by_key(|process| process.queued);
    if dead > 0 {
        let remedy = format!("clean up with `tavern local stat --sweep --data {}`", folder.display());
        doubtful("bus", format!("{detail}, {dead} dead: {remedy}"))
    } else if let (true, Some(slowest)) = (full, slowest) {
        let fault = format!("process {} does not keep up and loses messages: check it", slowest.pid);
        doubtful("bus", format!("{detail}; the log is full: {fault}"))
    } else {
        ok("bus", detail)
    }
}
