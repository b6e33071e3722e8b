//! Asks other nodes for a session: first the node that its secret names, then all.
//! Must hold: a client that waits gets a result within a bounded time.

use super::IncomingMoves;
use super::entry::{ASK_MS, IncomingStage, MOVE_MS};
use crate::connection::LinkId;
use crate::core::{Core, Timer};
use crate::migration::lookup::{LookupResult, SessionLookup};
use crate::migration::protocol::{MoveId, RETRY_MS, send};
use std::sync::Arc;
use tavern_wire::bus::migration::MigrationAction;

/// Sessions migrating to one shard. Above this, other nodes are not asked: made-up secrets must not flood the bus.
const INCOMING_MAX: usize = 20_000;

impl IncomingMoves {
    /// Waits for a session that is migrating here, or asks the other nodes for it.
    pub fn look_up(&mut self, core: &mut Core, lookup: &SessionLookup<'_>, link: LinkId) -> LookupResult {
        if let Some(incoming) = self.moves.get_mut(&lookup.key.half()) {
            incoming.add_link(link);
            self.waiting.insert(link, lookup.key.half());
            return LookupResult::Wait;
        }
        if !core.node.bus_interests.reaches_others() || self.moves.len() >= INCOMING_MAX {
            return LookupResult::NotFound;
        }
        self.ask(core, lookup, link);
        LookupResult::Wait
    }

    fn ask(&mut self, core: &mut Core, lookup: &SessionLookup<'_>, link: LinkId) {
        let named = core.node.other_nodes().iter().find(|name| &***name == lookup.node).cloned();
        let id = MoveId::new(core, lookup.key);
        let mut incoming = self.begin(core, id, IncomingStage::Asking);
        incoming.add_link(link);
        (incoming.claim, incoming.detached_only) = (lookup.claim(), lookup.detached_only);
        incoming.asked_all = named.is_none();
        let question = incoming.question();
        self.moves.insert(id.half(), incoming);
        self.waiting.insert(link, id.half());
        send(core, named.as_deref(), id, question);
    }

    pub(super) fn ask_all(&mut self, core: &mut Core, half: u64) {
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        incoming.asked_all = true;
        incoming.back_off(core.now);
        core.agenda.set(incoming.due, Timer::Migration(half));
        send(core, None, incoming.id, incoming.question());
    }

    /// A node does not have the session, or refuses to move it.
    pub fn not_found(&mut self, core: &mut Core, from: &Arc<str>, id: MoveId, step: &MigrationAction) {
        let half = id.half();
        let other_nodes = core.node.other_nodes();
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
                incoming.without.insert(from.clone());
                let has_none = |node: &Arc<str>| incoming.without.contains(node);
                if !incoming.asked_all {
                    self.ask_all(core, half);
                } else if other_nodes.is_empty() || !other_nodes.iter().all(has_none) {
                    // Others have not answered yet.
                } else if core.node.adoption.is_in_progress() {
                    // A node that stopped may have left it in the store, and another one may adopt it.
                    incoming.without.clear();
                } else {
                    self.fail(core, half, &LookupResult::NotFound);
                }
            }
            // It is migrating: a node that did not have it may have it when it is asked again.
            _ => {
                incoming.without.clear();
                incoming.retry_ms = RETRY_MS;
                incoming.ask_until = (core.now + ASK_MS).min(incoming.began + MOVE_MS);
            }
        }
    }
}
