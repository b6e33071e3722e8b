//! A stopping node offers its sessions to the other nodes, some at a time; then each migrates like one that was
//! requested. Its connection stays open, without events, until another node has the session. Must hold: every session
//! is offered until another node has it or a few have declined; sessions that are not offered yet still receive
//! events.

use super::entry::OutgoingStage;
use super::{FROZEN_MS, OutgoingMoves, subscriptions_of};
use crate::connection::{CloseReason, LinkId};
use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::migration::protocol::{MoveId, send};
use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_wire::bus::migration::MigrationAction;

/// How many nodes a session is offered to.
const OFFERS_MAX: usize = 2;
/// How many sessions of one shard are offered at once; the others wait.
const OFFERED_MAX: usize = 256;
/// An offer without an answer is sent again after this time.
pub(super) const OFFER_MS: u64 = 1_000;

/// The additional state of a session whose node stops.
pub(super) struct DrainOffer {
    /// Its connection, to be closed when the session has migrated.
    pub link: Option<LinkId>,
    pub declined: usize,
    /// How long its client has to resume it.
    pub window_ms: u64,
}

impl OutgoingMoves {
    /// Offers all sessions of this shard to the other nodes.
    pub fn drain(&mut self, core: &mut Core, drain_ms: u64) {
        self.drain_ms = drain_ms;
        if !core.node.other_nodes().is_empty() {
            self.queue = core.listeners.ids().collect();
        }
        self.offer_queued(core);
    }

    /// Offers as many sessions as the limit allows.
    pub(super) fn offer_queued(&mut self, core: &mut Core) {
        let nodes = core.node.other_nodes();
        while self.moves.len() < OFFERED_MAX
            && !nodes.is_empty()
            && let Some(listener) = self.queue.pop_front()
        {
            let Some(key) = core.session(listener).filter(|session| !session.frozen).map(|s| s.key) else {
                continue;
            };
            let window_ms = drain_window_ms(core, listener, self.drain_ms);
            let link = take_link(core, listener);
            let id = MoveId::new(core, key);
            let to = nodes[self.queue.len() % nodes.len()].clone();
            let offer = DrainOffer { link, declined: 0, window_ms };
            self.freeze(core, listener, id, to, Some(offer));
            self.send_offer(core, id.half());
        }
    }

    pub(super) fn send_offer(&self, core: &mut Core, half: u64) {
        let Some(outgoing) = self.moves.get(&half) else { return };
        let names = subscriptions_of(core, outgoing.listener);
        send(core, &outgoing.to, outgoing.id, MigrationAction::Offer { names });
    }

    /// Offers a session to the next node. After a few it stays here, and is stored when the node closes its lease.
    pub(super) fn offer_next(&mut self, core: &mut Core, half: u64) {
        let nodes = core.node.other_nodes();
        let Some(outgoing) = self.moves.get_mut(&half) else { return };
        let Some(offer) = outgoing.drain.as_mut() else { return };
        offer.declined += 1;
        if offer.declined >= OFFERS_MAX || nodes.is_empty() {
            let link = offer.link;
            self.unfreeze(core, half);
            core.effects.closes.extend(link.map(|link| (link, CloseReason::Closing)));
            return self.offer_queued(core);
        }
        let next = nodes.iter().position(|name| *name == outgoing.to).map_or(0, |at| at + 1);
        outgoing.to = nodes[next % nodes.len()].clone();
        outgoing.id = MoveId::new(core, outgoing.id.key);
        (outgoing.until, outgoing.stage) = (core.now + FROZEN_MS, OutgoingStage::Announced);
        self.wake_in(core, half, OFFER_MS);
        self.send_offer(core, half);
    }

    /// Whether a session is offered and its connection is still open.
    pub fn is_offered_with_transport(&self, id: ListenerId) -> bool {
        self.moves.values().any(|known| known.listener == id && known.has_transport())
    }
}

/// Takes the connection from a session: it stays open and gets no more events.
fn take_link(core: &mut Core, id: ListenerId) -> Option<LinkId> {
    let listener = core.listeners.get_mut(id)?;
    listener.dirty = false;
    if let Some(session) = listener.session_mut() {
        session.parked_until = None;
    }
    let link = listener.link.take();
    core.effects.dirty.retain(|dirty| *dirty != id);
    link.map(|link| link.id)
}

/// How long the client of a stopped node may be disconnected before it is lost: the longest grace period of its
/// channels, at least `drain_ms`. The user's own channel counts only if there is no other. A client that is already
/// detached cannot reconnect while its node is down, so it gets the same time from the stop on, but at most twice
/// that after its disconnect: otherwise it would survive from one stop to the next.
pub(crate) fn drain_window_ms(core: &Core, id: ListenerId, drain_ms: u64) -> u64 {
    let Some(listener) = core.listeners.get(id) else { return 0 };
    let Some(session) = listener.session() else { return 0 };
    let lost_at = session.lost_at(core.node.settings.poll_idle_ms);
    let away_ms = if listener.link.is_some() { 0 } else { core.now.since(lost_at) };
    let channels: Vec<&Arc<str>> = session.present.channels().collect();
    let joined = channels.iter().filter(|channel| !is_own_channel(channel));
    let longest = joined.map(|channel| core.node.settings.grace_ms(channel)).max();
    let own = || channels.iter().map(|channel| core.node.settings.grace_ms(channel)).max();
    let window_ms = longest.or_else(own).unwrap_or(0).max(drain_ms);
    window_ms + away_ms.min(window_ms)
}
