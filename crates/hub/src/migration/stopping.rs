//! A node that stops offers its sessions to the nodes that live, a few at a time; each is then taken like one that was
//! asked for (`leaving`). Its transport stays open, unwritten, until somebody has it.
//! Must hold: every session is offered until somebody has it or nobody wants it; the others go on being heard meanwhile.

use super::leaving::{FROZEN_MS, Stage};
use super::moves::{Migration, Sought};
use crate::connection::{Goodbye, LinkId};
use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::core::session::Session;
use crate::user::is_own_channel;
use std::sync::Arc;
use tavern_wire::bus::letter::Says;

/// How many nodes a session is offered to when its own node stops.
const OFFERS: usize = 2;
/// How many sessions of one shard are on their way at once when their node stops: the others wait where they are heard.
const OFFERED_MAX: usize = 256;
/// An offer that was not answered is written again after this long.
pub(super) const OFFER_MS: u64 = 1_000;

/// What is different for a session whose node stops.
pub(super) struct Stops {
    pub link: Option<LinkId>,
    offers: usize,
    pub window_ms: u64,
}

impl Migration {
    /// The node stops: its sessions are offered to the others in turn. Their clients are told when they are gone.
    pub(crate) fn leave_node(&mut self, core: &mut Core, to: &[Arc<str>], drain_ms: u64) {
        self.leaves = true;
        self.drain_ms = drain_ms;
        core.node.set_neighbours(to.to_vec());
        self.turn_away(core);
        if !to.is_empty() {
            self.queue = core.listeners.ids().collect();
        }
        self.offer_some(core);
    }

    /// Offers as many sessions as may be on their way at once.
    pub(super) fn offer_some(&mut self, core: &mut Core) {
        let to = core.node.neighbours();
        while self.leavings.len() < OFFERED_MAX
            && !to.is_empty()
            && let Some(id) = self.queue.pop_front()
        {
            let free = |session: &Session| !session.frozen;
            if core.session(id).is_some_and(free) {
                let window_ms = self.stop_window_ms(core, id, self.drain_ms);
                let link = self.let_go_of_link(core, id);
                let number = core.dice.roll() as u64;
                let taker = to[self.queue.len() % to.len()].clone();
                self.freeze(core, id, taker, number, Some(Stops { link, offers: 0, window_ms }));
                self.write_offer(core, id);
            }
        }
    }

    /// Sessions that were about to come stay where they are, unless they are being taken out of the store.
    fn turn_away(&mut self, core: &mut Core) {
        let comings = self.comings.iter().filter(|(_, coming)| !coming.is_being_taken());
        let halves: Vec<u64> = comings.map(|(half, _)| *half).collect();
        halves.into_iter().for_each(|half| self.fail(core, half, Sought::Nowhere));
    }

    /// Sessions that are still on their way, to others or out of the store to here.
    pub(crate) fn under_way(&self) -> usize {
        self.leavings.len() + self.queue.len() + self.comings.len()
    }

    /// The transport stays open, and is written to no more.
    fn let_go_of_link(&mut self, core: &mut Core, id: ListenerId) -> Option<LinkId> {
        let listener = core.listeners.get_mut(id)?;
        listener.dirty = false;
        if let Some(session) = listener.session_mut() {
            session.parked_until = None;
        }
        let link = listener.link.take();
        core.effects.dirty.retain(|dirty| *dirty != id);
        link.map(|link| link.id)
    }

    /// It was offered and not taken yet, and its transport is still open.
    pub(crate) fn is_offered_with_transport(&self, id: ListenerId) -> bool {
        let open = |stops: &Stops| stops.link.is_some();
        self.leavings.values().any(|l| l.id == id && l.stops.as_ref().is_some_and(open))
    }

    fn write_offer(&mut self, core: &mut Core, id: ListenerId) {
        let half = core.session(id).map(|session| session.key.half());
        let Some(leaving) = half.and_then(|half| self.leavings.get(&half)) else { return };
        let (key, number, taker) = (leaving.key, leaving.number, leaving.taker.clone());
        let names = self.names(core, id);
        self.write_letter(core, Some(&taker), key, number, Says::Offer { names });
    }

    /// Nobody answered: the next node is asked, and after a few nobody.
    pub(super) fn offer_next(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let neighbours = core.node.neighbours();
        let number = core.dice.roll() as u64;
        let Some(leaving) = self.leavings.get_mut(&half) else { return };
        let (id, last) = (leaving.id, leaving.taker.clone());
        let Some(stops) = leaving.stops.as_mut() else { return };
        stops.offers += 1;
        let next = neighbours.iter().position(|name| *name == last).map_or(0, |at| at + 1);
        if stops.offers >= OFFERS || neighbours.is_empty() {
            let link = stops.link;
            self.thaw(core, half);
            core.effects.closes.extend(link.map(|link| (link, Goodbye::Closing)));
            self.offer_some(core);
            return;
        }
        leaving.taker = neighbours[next % neighbours.len()].clone();
        (leaving.number, leaving.until, leaving.stage) = (number, now + FROZEN_MS, Stage::Named);
        self.look_again(core, half, OFFER_MS);
        self.write_offer(core, id);
    }

    /// How long a session of a node that stops may stay without a transport before its client is lost: the longest grace
    /// of the channels it joined. Its user's own channel counts only when there is no other. A client that is away already
    /// cannot come back while its node is down, so it gets as long as the others, but never more than twice that after
    /// its disconnect: a client that does not come back does not stay from stop to stop.
    pub(crate) fn stop_window_ms(&self, core: &Core, id: ListenerId, drain_ms: u64) -> u64 {
        let now = core.now;
        let Some(listener) = core.listeners.get(id) else { return 0 };
        let Some(session) = listener.session() else { return 0 };
        let lost_at = session.lost_at(core.node.settings.poll_idle_ms);
        let away_ms = if listener.link.is_some() { 0 } else { now.since(lost_at) };
        let channels: Vec<&Arc<str>> = session.present.channels().collect();
        let joined = channels.iter().filter(|channel| !is_own_channel(channel));
        let longest = joined.map(|channel| core.grace_ms(channel)).max();
        let own = || channels.iter().map(|channel| core.grace_ms(channel)).max();
        let window_ms = longest.or_else(own).unwrap_or(0).max(drain_ms);
        window_ms + away_ms.min(window_ms)
    }
}
