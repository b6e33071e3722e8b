//! How a process of a node starts and ends, as the server does it. It opens an epoch, adopts sessions that were left in
//! the store, and runs; when it stops it migrates its sessions to other nodes, puts the rest into the store, closes
//! its lease and ends. A failure of the store on the way ends the process.

use super::Cluster;
use super::node::{Life, Running, Start};
use super::port::{Asker, Port};
use super::signal::{Exit, Signal};
use crate::planted::PlantedFault;
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch, Time};
use tavern_hub::{Node as HubNode, PackedSession, Settings, store_session};
use tavern_store::{
    Bus, Commit, Found, NodeChange, Page, Read, RowKey, StoreAnswer, StoredSession, Ticket, Versioned, Work,
    Writer,
};

pub struct Starting {
    pub port: Port,
    settings: Settings,
    epoch: Option<Epoch>,
    left: Vec<StoredSession>,
}

pub struct Stopping {
    pub port: Port,
    hub: Arc<HubNode>,
    bus: Arc<dyn Bus>,
    writer: Writer,
    /// The sessions are in the store.
    sessions: bool,
}

const ONLY: Ticket = Ticket(0);
const PAGE: u32 = 100;

impl Cluster {
    /// A process of this node starts, with a clock that may be off.
    pub fn start(&mut self, at: usize, start: Start) {
        if !self.nodes[at].is_down() {
            return;
        }
        let lease_ms = self.rules.lease_ms;
        let node = &mut self.nodes[at];
        node.skew = start.skew;
        if self.planted.is(PlantedFault::ClockAhead) && at == 0 {
            self.planted.strike();
            node.skew = 9_000;
        }
        if self.planted.is(PlantedFault::ShortResume) {
            self.planted.strike();
        }
        node.process += 1;
        let mut port = Port::new(&self.engine, &node.name);
        let open = NodeChange::Open { name: node.name.as_str().into(), lease_ms };
        port.submit(Asker::Process, ONLY, Work::Commit(Commit { node: Some(open), ..Commit::default() }));
        let settings = Settings { node: node.name.clone(), shards: node.shards, ..start.settings };
        node.life = Life::Starting(Box::new(Starting { port, settings, epoch: None, left: Vec::new() }));
    }

    /// The process ends without a clean stop.
    pub fn crash(&mut self, at: usize) {
        exit(self, at, Exit::Crash);
    }

    /// A clean stop starts: no more commands. Where sessions migrate, they are offered to other nodes.
    pub fn stop(&mut self, at: usize) {
        // Messages between shards are delivered before anything is packed.
        self.deliver_all_mail(at);
        let (by, local) = (self.now + self.rules.drain_ms / 3 * 2, self.nodes[at].local(self.now));
        let moves = self.moves;
        let Some(running) = self.nodes[at].running() else { return };
        if !moves {
            return pack(self, at);
        }
        running.leaves_by = Some(by);
        if let Some(delivery) = &mut running.delivery {
            delivery.worker.stop(local);
        }
        running.ask(Work::Read(Read::Nodes { after: None, limit: PAGE }));
    }

    /// The process does nothing from now on, and its inputs wait.
    pub fn sleep(&mut self, at: usize) {
        if let Some(running) = self.nodes[at].running() {
            running.asleep = true;
        }
    }

    /// A process that slept continues: first it learns which connections were closed.
    pub fn wake(&mut self, at: usize) {
        let local = self.nodes[at].local(self.now);
        let Some(running) = self.nodes[at].running().filter(|running| running.asleep) else { return };
        running.asleep = false;
        if let Some(delivery) = &mut running.delivery {
            delivery.take_answers(local);
        }
        for id in std::mem::take(&mut running.gone) {
            self.detach(id);
            self.sockets.remove(&id);
            self.polls.remove(&id);
        }
        let waiting: Vec<_> =
            self.sockets.iter().filter(|(_, socket)| socket.node == at).map(|(id, _)| *id).collect();
        self.carry_out(at);
        waiting.into_iter().for_each(|id| self.run_input(id));
        self.carry_out(at);
    }
}

pub(super) fn exit(cluster: &mut Cluster, at: usize, how: Exit) {
    cluster.end_connections_of(at);
    match std::mem::replace(&mut cluster.nodes[at].life, Life::Down) {
        Life::Up(running) => {
            running.bus.stop();
            running.port.store.crash();
        }
        Life::Starting(starting) => starting.port.store.crash(),
        Life::Stopping(stopping) => {
            stopping.bus.stop();
            stopping.port.store.crash();
        }
        Life::Down => return,
    }
    cluster.trace.say(cluster.now, || format!("n{at} ends: {how:?}"));
    cluster.signals.push_back(Signal::Ended { node: at, how });
}

pub(super) fn continue_start(cluster: &mut Cluster, at: usize) {
    let name = cluster.nodes[at].name.clone();
    let Life::Starting(starting) = &mut cluster.nodes[at].life else { return };
    // It sends one request at a time.
    let Some((_, _, answer)) = starting.port.take_answers().pop() else { return };
    match answer {
        StoreAnswer::Committed(receipt) => {
            starting.epoch = receipt.epoch;
            match cluster.moves {
                // Sessions are adopted by the node that finds them, before it is ready.
                true => open(cluster, at),
                false => starting.ask_sessions(&name, None),
            }
        }
        StoreAnswer::Read(Found::Sessions(page)) => {
            let more = page.more;
            let last = starting.keep(page);
            match more {
                true => starting.ask_sessions(&name, last),
                false => open(cluster, at),
            }
        }
        _ => exit(cluster, at, Exit::StoreFailed),
    }
}

pub(super) fn open(cluster: &mut Cluster, at: usize) {
    let Life::Starting(starting) = std::mem::replace(&mut cluster.nodes[at].life, Life::Down) else {
        return;
    };
    let Starting { port, settings, epoch, left } = *starting;
    let epoch = epoch.unwrap_or(Epoch(0));
    let node = &cluster.nodes[at];
    let settings = Settings { epoch, ..settings };
    let times = (cluster.now, node.local(cluster.now));
    let rules = (cluster.rules, cluster.deliveries);
    let mut running =
        Running::new(&node.name, settings, port, &cluster.engine, &mut cluster.rng, times, rules);
    if cluster.moves {
        running.hub.listen();
    }
    let adopted: Vec<ClientId> = left.iter().map(|stored| stored.client).collect();
    for stored in left {
        adopt(&mut running, stored, node.local(cluster.now), false);
    }
    if cluster.moves {
        running.hub.adoption.begin();
        running.adoption.begin(&mut running.port);
    } else if adopted.is_empty() {
        running.ready = true;
    } else {
        let writer = Some(Writer::new(&node.name, epoch));
        let deletes = adopted.iter().map(|client| RowKey::Session(*client)).collect();
        running.ask(Work::Commit(Commit { writer, deletes, ..Commit::default() }));
    }
    cluster.trace.say(cluster.now, || format!("n{at} is up: epoch {}, {} sessions", epoch.0, adopted.len()));
    cluster.nodes[at].life = Life::Up(Box::new(running));
    cluster.nodes[at].started_at = cluster.now;
    cluster.signals.push_back(Signal::Started { node: at, adopted });
    cluster.carry_out(at);
}

/// The store has answered the process itself.
pub(super) fn process_answered(cluster: &mut Cluster, at: usize, answer: StoreAnswer) {
    let Some(running) = cluster.nodes[at].running() else { return };
    if running.leaves_by.is_some() {
        return neighbours_found(cluster, at, answer);
    }
    match answer {
        // The adopted sessions could not be removed: the start has failed.
        StoreAnswer::Failed(_) => exit(cluster, at, Exit::StoreFailed),
        _ => running.ready = true,
    }
}

/// The live nodes are known: the sessions are offered to them.
pub(super) fn neighbours_found(cluster: &mut Cluster, at: usize, answer: StoreAnswer) {
    let (now, own) = (cluster.now, cluster.nodes[at].name.clone());
    let local = cluster.nodes[at].local(now);
    let drain_ms = cluster.rules.drain_ms;
    let Some(running) = cluster.nodes[at].running() else { return };
    let nodes = match answer {
        StoreAnswer::Read(Found::Nodes(page)) => page.rows,
        _ => Vec::new(),
    };
    let lives = |node: &tavern_store::NodeRow| {
        node.closed_at.is_none() && now < node.lease_until && *node.writer.node != *own
    };
    let living: Vec<Arc<str>> =
        nodes.into_iter().filter(lives).map(|node| node.writer.node.clone()).collect();
    running.offered = true;
    running.shards.iter_mut().for_each(|shard| shard.drain(local, &living, drain_ms));
    cluster.carry_out(at);
}

/// A node that stops has migrated its sessions, or its drain time has passed.
pub(super) fn continue_leaving(cluster: &mut Cluster, at: usize) {
    let now = cluster.now;
    let Some(running) = cluster.nodes[at].awake() else { return };
    let Some(by) = running.leaves_by else { return };
    let left: usize = running.shards.iter().map(|shard| shard.in_transit()).sum();
    let delivers = running.delivery.as_ref().is_some_and(|delivery| !delivery.worker.is_at_rest());
    if now >= by || (left == 0 && running.adoption.is_idle() && running.offered && !delivers) {
        pack(cluster, at);
    }
}

/// The sessions that are still here are stored.
pub(super) fn pack(cluster: &mut Cluster, at: usize) {
    cluster.end_connections_of(at);
    let (local, drain_ms) = (cluster.nodes[at].local(cluster.now), cluster.rules.drain_ms);
    let mut packed: Vec<PackedSession> = Vec::new();
    let Some(running) = cluster.nodes[at].running() else { return };
    running.leaves_by = None;
    for shard in &mut running.shards {
        packed.extend(shard.pack(local));
    }
    let writer = Writer::new(&running.hub.settings.node, running.hub.epoch());
    cluster.carry_out(at);
    let Life::Up(running) = std::mem::replace(&mut cluster.nodes[at].life, Life::Down) else { return };
    if cluster.planted.is(PlantedFault::LostSessions) && !packed.is_empty() {
        cluster.planted.strike();
        packed.clear();
    }
    let mut commit = Commit { writer: Some(writer.clone()), ..Commit::default() };
    for session in &mut packed {
        store_session(&mut commit, stored(session, &writer, drain_ms));
    }
    let Running { mut port, hub, bus, .. } = *running;
    port.submit(Asker::Process, ONLY, Work::Commit(commit));
    cluster.nodes[at].life = Life::Stopping(Box::new(Stopping { port, hub, bus, writer, sessions: false }));
}

pub(super) fn continue_stop(cluster: &mut Cluster, at: usize) {
    let Life::Stopping(stopping) = &mut cluster.nodes[at].life else { return };
    // It has no session any more that could receive them.
    stopping.port.take_messages();
    for (asker, _, answer) in stopping.port.take_answers() {
        if asker != Asker::Process {
            continue;
        }
        if !matches!(answer, StoreAnswer::Committed(_)) {
            return exit(cluster, at, Exit::StoreFailed);
        }
        if stopping.sessions {
            stopping.hub.announce_departure();
            cluster.nodes[at].stopped = Some(cluster.nodes[at].process);
            return exit(cluster, at, Exit::Clean);
        }
        stopping.sessions = true;
        let stop = NodeChange::Stop { node: stopping.writer.clone() };
        let writer = Some(stopping.writer.clone());
        let commit = Commit { writer, node: Some(stop), ..Commit::default() };
        stopping.port.submit(Asker::Process, ONLY, Work::Commit(commit));
    }
}

/// A session from the store is in this process from now on.
pub(super) fn adopt(running: &mut Running, stored: StoredSession, local: Time, late: bool) -> bool {
    let shard = stored.secret.shard(running.shards.len());
    let Ok(packed) = PackedSession::from_row(stored, local) else { return false };
    match late {
        true => running.shards[shard].adopt_late(local, &packed),
        false => running.shards[shard].adopt(local, &packed),
    }
}

fn stored(packed: &mut PackedSession, owner: &Writer, drain_ms: u64) -> StoredSession {
    // The hub lists them unordered; a run must be the same each time.
    packed.body.subscriptions.sort_by(|one, two| one.name.cmp(&two.name));
    packed.body.window_ms = packed.body.window_ms.max(drain_ms);
    let stored = packed.to_row(owner);
    StoredSession { expires_at: stored.expires_at + drain_ms, ..stored }
}

impl Starting {
    fn ask_sessions(&mut self, name: &str, after: Option<ClientId>) {
        let node: Option<Arc<str>> = Some(name.into());
        self.port.submit(Asker::Process, ONLY, Work::Read(Read::Sessions { node, after, limit: PAGE }));
    }

    fn keep(&mut self, page: Page<Versioned<StoredSession>>) -> Option<ClientId> {
        self.left.extend(page.rows.into_iter().map(|row| row.row));
        self.left.last().map(|stored| stored.client)
    }
}
