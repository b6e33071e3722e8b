//! Looks for the node that has a session: the one that its secret names, or the one that its forward names. However many
//! nodes there are, a lookup asks one at a time and reads a few rows.
//! Must hold: a client that waits gets a result within a bounded time; a session that a live node has, or that is in the
//! store, is not denied unless messages are lost or late for a second.

use super::entry::{ASK_MS, IncomingMove, IncomingStage, MOVE_MS};
use super::{IncomingMoves, IncomingRequest};
use crate::connection::LinkId;
use crate::core::{Core, Timer};
use crate::migration::forward::{SessionForward, document_of};
use crate::migration::lookup::{LookupResult, SessionLookup};
use crate::migration::protocol::{MoveId, RETRY_MS, send};
use std::sync::Arc;
use tavern_domain::Epoch;
use tavern_store::{Document, NodeRow, Page, Read, Versioned, Work, Writer};
use tavern_wire::bus::migration::MigrationAction;

/// Sessions migrating to one shard. Above this, nobody is asked: made-up secrets must not flood bus and store.
const INCOMING_MAX: usize = 20_000;
/// Epochs of one node that are read to learn whether it lives.
const EPOCHS_READ: u32 = 16;

/// What a lookup knows of where its session may be.
#[derive(Default)]
pub(super) struct OwnerSearch {
    /// The node that is asked.
    asked: Option<Arc<str>>,
    /// The node that answered that it does not have the session, since the forward has changed.
    without: Option<Arc<str>>,
    /// The version of the forward that was read last; 0: there is none.
    forward_version: u64,
    is_reading: bool,
}

impl IncomingMoves {
    /// Waits for a session that is migrating here, or looks for it on the other nodes.
    pub fn look_up(&mut self, core: &mut Core, lookup: &SessionLookup<'_>, link: LinkId) -> LookupResult {
        if let Some(incoming) = self.moves.get_mut(&lookup.key.half()) {
            incoming.add_link(link);
            self.waiting.insert(link, lookup.key.half());
            return LookupResult::Wait;
        }
        if !core.node.bus_interests.reaches_others() || self.moves.len() >= INCOMING_MAX {
            return LookupResult::NotFound;
        }
        let id = MoveId::new(core, lookup.key);
        let mut incoming = self.begin(core, id, IncomingStage::Asking);
        incoming.add_link(link);
        (incoming.claim, incoming.detached_only) = (lookup.claim(), lookup.detached_only);
        incoming.named = lookup.node.into();
        let named = incoming.named.clone();
        self.moves.insert(id.half(), incoming);
        self.waiting.insert(link, id.half());
        match core.node.other_nodes().contains(&named) {
            true => self.ask(core, id.half(), named),
            false => self.read_forward(core, id.half()),
        }
        LookupResult::Wait
    }

    fn ask(&mut self, core: &mut Core, half: u64, node: Arc<str>) {
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        send(core, &node, incoming.id, incoming.question());
        incoming.search.asked = Some(node);
    }

    fn read_forward(&mut self, core: &mut Core, half: u64) {
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        if !std::mem::replace(&mut incoming.search.is_reading, true) {
            let (id, read) = (incoming.id, Read::Document(document_of(incoming.id.key)));
            self.submit(core, id, IncomingRequest::Forward, Work::Read(read));
        }
    }

    /// The move that waits for this answer, if it still looks for its session.
    fn searching(&mut self, id: MoveId) -> Option<&mut IncomingMove> {
        let incoming = self.moves.get_mut(&id.half()).filter(|known| known.id.number == id.number)?;
        incoming.search.is_reading = false;
        (!incoming.is_under_way()).then_some(incoming)
    }

    /// The store did not answer: the timer reads again.
    pub(super) fn not_read(&mut self, id: MoveId) {
        self.searching(id);
    }

    pub(super) fn forward_read(
        &mut self,
        core: &mut Core,
        id: MoveId,
        document: Option<&Versioned<Document>>,
    ) {
        let own = core.node.name.clone();
        let Some(incoming) = self.searching(id) else { return };
        let (version, named) = (document.map_or(0, |found| found.version), incoming.named.clone());
        let search = &mut incoming.search;
        if version != search.forward_version {
            (search.forward_version, search.without) = (version, None);
        }
        match document.and_then(|found| SessionForward::read(&found.row)) {
            // A node adopts it, or takes it for a move, soon.
            Some(SessionForward::InStore) => incoming.wait_longer(core.now),
            // It was taken by this node, and is on its way to its shard.
            Some(SessionForward::Node(node)) if node == own => {}
            Some(SessionForward::Node(node)) => self.follow(core, id, node),
            // It never moved, and its node does not have it.
            None if search.without.is_some() || named == own => {
                self.fail(core, id.half(), &LookupResult::NotFound);
            }
            None => self.follow(core, id, named),
        }
    }

    /// The session is on this node, if anywhere.
    fn follow(&mut self, core: &mut Core, id: MoveId, node: Arc<str>) {
        let Some(incoming) = self.moves.get_mut(&id.half()) else { return };
        if incoming.search.without.as_ref() == Some(&node) {
            return self.fail(core, id.half(), &LookupResult::NotFound);
        }
        if incoming.search.asked.as_ref() == Some(&node) {
            // It has not answered yet; the timer asks again.
            return;
        }
        if core.node.other_nodes().contains(&node) {
            return self.ask(core, id.half(), node);
        }
        // It may have started a moment ago.
        let after = Some(Writer::new(&node, Epoch(0)));
        incoming.search.is_reading = true;
        self.submit(
            core,
            id,
            IncomingRequest::Node(node),
            Work::Read(Read::Nodes { after, limit: EPOCHS_READ }),
        );
    }

    /// The epochs of a node that this one did not know to be alive.
    pub(super) fn node_read(&mut self, core: &mut Core, id: MoveId, node: Arc<str>, page: &Page<NodeRow>) {
        if self.searching(id).is_none() {
            return;
        }
        let mut epochs = page.rows.iter().filter(|found| found.writer.node == node);
        let has_more = page.more && page.rows.last().is_some_and(|last| last.writer.node == node);
        match has_more || epochs.any(|found| found.closed_at.is_none()) {
            true => self.ask(core, id.half(), node),
            // The session has ended with its node.
            false => self.fail(core, id.half(), &LookupResult::NotFound),
        }
    }

    /// Nobody has answered for a while: messages may be lost, and the session may have moved.
    pub(super) fn search_again(&mut self, core: &mut Core, half: u64) {
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        incoming.back_off(core.now);
        core.agenda.set(incoming.due, Timer::Migration(half));
        if let Some(node) = incoming.search.asked.clone() {
            self.ask(core, half, node);
        }
        self.read_forward(core, half);
    }

    /// A node does not have the session, or refuses to move it.
    pub fn not_found(&mut self, core: &mut Core, from: &Arc<str>, id: MoveId, step: &MigrationAction) {
        let half = id.half();
        let Some(incoming) = self.moves.get_mut(&half).filter(|known| known.id.number == id.number) else {
            return;
        };
        let asking = !incoming.is_under_way();
        match step {
            MigrationAction::No if !asking && incoming.owner == *from => {
                self.fail(core, half, &LookupResult::NotFound)
            }
            _ if !asking => {}
            MigrationAction::Refused => self.fail(core, half, &LookupResult::NotFound),
            MigrationAction::Attached => self.fail(core, half, &LookupResult::AttachedTo(from.clone())),
            MigrationAction::Ended => self.fail(core, half, &LookupResult::Ended),
            MigrationAction::No => {
                incoming.search.without = Some(from.clone());
                incoming.search.asked.take_if(|asked| asked == from);
                self.read_forward(core, half);
            }
            // It is migrating.
            _ => {
                incoming.wait_longer(core.now);
                self.read_forward(core, half);
            }
        }
    }
}

impl IncomingMove {
    /// The session exists and is on its way: it is asked for again, soon and for longer.
    fn wait_longer(&mut self, now: tavern_domain::Time) {
        self.retry_ms = RETRY_MS;
        self.ask_until = (now + ASK_MS).min(self.began + MOVE_MS);
    }
}
