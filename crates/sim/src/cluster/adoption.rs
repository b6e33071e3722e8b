//! A process reads which other nodes are alive, and adopts the sessions that stopped nodes left in the store: before
//! it is ready, at each heartbeat, and when another node announces that it left some. Each session is removed from
//! the store before it is used. The server does the same (`adoption`).

use super::Cluster;
use super::port::{Asker, Port};
use super::process;
use super::process::adopt;
use super::signal::{Exit, Signal};
use crate::planted::PlantedFault;
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_hub::{may_have_missed, take_session};
use tavern_store::{
    Found, NodeRow, Read, StoreAnswer, StoreError, StoredSession, Ticket, Versioned, Work, Writer,
};

const PAGE: u32 = 100;
/// The check itself sends one request at a time; sessions have their own tickets.
const LOOK: Ticket = Ticket(0);

#[derive(Default)]
pub struct SimAdoption {
    stage: AdoptionStage,
    /// The first check is done: the process is ready.
    looked: bool,
    /// Another node left sessions while a check was in progress: check again afterwards.
    again: bool,
    /// The next check.
    due: Option<Time>,
    tickets: u64,
    /// Sessions that are being removed from the store, and whether they missed events there.
    taking: BTreeMap<u64, (StoredSession, bool)>,
}

#[derive(Default)]
enum AdoptionStage {
    #[default]
    Idle,
    AskingTime,
    AskingNodes(Time),
    AskingSessions(Vec<NodeRow>),
    Taking,
}

impl SimAdoption {
    /// Starts a check, now or after the one in progress.
    pub fn begin(&mut self, port: &mut Port) {
        if self.is_idle() {
            self.stage = AdoptionStage::AskingTime;
            port.submit(Asker::Adoption, LOOK, Work::Read(Read::Time));
        } else {
            self.again = true;
        }
    }

    pub fn is_idle(&self) -> bool {
        matches!(self.stage, AdoptionStage::Idle)
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.due.filter(|_| self.is_idle())
    }
}

pub(super) fn adoption_answered(cluster: &mut Cluster, at: usize, ticket: Ticket, answer: StoreAnswer) {
    let Some(running) = cluster.nodes[at].running() else { return };
    let (adoption, port) = (&mut running.adoption, &mut running.port);
    if ticket != LOOK {
        return session_answered(cluster, at, ticket, answer);
    }
    match (std::mem::take(&mut adoption.stage), answer) {
        (AdoptionStage::AskingTime, StoreAnswer::Read(Found::Time(time))) => {
            adoption.stage = AdoptionStage::AskingNodes(time);
            port.submit(Asker::Adoption, LOOK, Work::Read(Read::Nodes { after: None, limit: PAGE }));
        }
        (AdoptionStage::AskingNodes(time), StoreAnswer::Read(Found::Nodes(page))) => {
            let own = running.hub.settings.node.as_str();
            let lives = |node: &&NodeRow| {
                node.closed_at.is_none() && time < node.lease_until && *node.writer.node != *own
            };
            let living = page.rows.iter().filter(lives).map(|node| node.writer.node.clone());
            running.hub.set_other_nodes(living.collect());
            adoption.stage = AdoptionStage::AskingSessions(page.rows);
            let read = Read::Sessions { node: None, after: None, limit: PAGE };
            port.submit(Asker::Adoption, LOOK, Work::Read(read));
        }
        (AdoptionStage::AskingSessions(nodes), StoreAnswer::Read(Found::Sessions(page))) => {
            adoption.stage = AdoptionStage::Taking;
            let writer = Writer::new(&running.hub.settings.node, running.hub.epoch());
            let open =
                |owner: &Writer| nodes.iter().any(|node| node.writer == *owner && node.closed_at.is_none());
            for found in page.rows.into_iter().filter(|found| !open(&found.row.owner)) {
                let late = adoption.looked || may_have_missed(&found.row.owner, &writer, &nodes);
                adoption.take(port, &writer, found, late);
            }
            end_look(cluster, at);
        }
        _ if !adoption.looked => process::exit(cluster, at, Exit::StoreFailed),
        // Postponed to the next heartbeat.
        _ => end_look(cluster, at),
    }
}

pub(super) fn session_answered(cluster: &mut Cluster, at: usize, ticket: Ticket, answer: StoreAnswer) {
    let local = cluster.nodes[at].local(cluster.now);
    let Some(running) = cluster.nodes[at].running() else { return };
    let Some((stored, mut late)) = running.adoption.taking.remove(&ticket.0) else { return };
    if late && cluster.planted.is(PlantedFault::UntoldGap) {
        cluster.planted.strike();
        late = false;
    }
    let Some(running) = cluster.nodes[at].running() else { return };
    let client = stored.client;
    match answer {
        StoreAnswer::Committed(_) => {
            let adopted = adopt(running, stored, local, late);
            cluster.signals.extend(adopted.then_some(Signal::Adopted { node: at, session: client }));
        }
        // Another node was faster.
        StoreAnswer::Failed(StoreError::Conflict { .. }) => {}
        _ if !running.adoption.looked => return process::exit(cluster, at, Exit::StoreFailed),
        _ => {}
    }
    end_look(cluster, at);
}

/// All sessions that were found are here, or on other nodes.
pub(super) fn end_look(cluster: &mut Cluster, at: usize) {
    let (now, heartbeat_ms) = (cluster.now, cluster.rules.heartbeat_ms);
    let Some(running) = cluster.nodes[at].running() else { return };
    if !running.adoption.taking.is_empty() {
        return;
    }
    running.adoption.stage = AdoptionStage::Idle;
    running.hub.adoption.end();
    let again = std::mem::take(&mut running.adoption.again);
    running.adoption.due = Some(if again { now } else { now + heartbeat_ms });
    running.adoption.looked = true;
    running.ready = true;
}

/// A check is due, or another node announces that it left sessions.
pub(super) fn look_for_sessions(cluster: &mut Cluster, at: usize) {
    if let Some(running) = cluster.nodes[at].awake().filter(|running| running.leaves_by.is_none()) {
        // A subscription that the bus refused at the start is requested again, as an engine does when it reconnects.
        running.hub.listen();
        running.hub.adoption.begin();
        running.adoption.begin(&mut running.port);
    }
}

impl SimAdoption {
    fn take(&mut self, port: &mut Port, writer: &Writer, found: Versioned<StoredSession>, late: bool) {
        self.tickets += 1;
        let commit = take_session(writer.clone(), &found);
        port.submit(Asker::Adoption, Ticket(self.tickets), Work::Commit(commit));
        self.taking.insert(self.tickets, (found.row, late));
    }
}
