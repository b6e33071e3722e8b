//! Sessions that are packed up to live on elsewhere, or come back from the store: every feature gives its part.

use super::Shard;
use crate::connection::Goodbye;
use crate::core::Watched;
use crate::core::listener::ListenerId;
use crate::migration::{self, Packed};
use std::sync::Arc;
use tavern_domain::Time;

impl Shard {
    /// Takes every session out, its transports told `closing`. Nothing is delivered here afterwards. What lies in the
    /// store already, on its way to another node, is not packed again.
    pub fn pack(&mut self, now: Time) -> Vec<Packed> {
        self.core.now = now;
        self.migration.leaves = true;
        let ids: Vec<ListenerId> = self.core.listeners.ids().collect();
        let mut all = Vec::new();
        for id in ids {
            let Some(listener) = self.core.listeners.get(id).filter(|listener| !listener.is_redis()) else {
                continue;
            };
            if let Some(link) = listener.link {
                self.core.effects.closes.push((link.id, Goodbye::Closing));
                self.detach(now, id, link.id);
            }
            if self.migration.has(&self.core, id) {
                if self.migration.is_offered_with_transport(id) {
                    self.migration.begin_window(&mut self.core, id);
                }
                if let Some(mut packed) = self.pack_session(id) {
                    packed.body.window_ms = self.migration.stop_window_ms(&self.core, id, 0);
                    all.push(packed);
                }
            }
            // It goes on elsewhere: its client is not lost.
            if let Some(session) = self.core.session_mut(id) {
                session.present.clear();
            }
            self.end_session(id);
            self.route();
        }
        self.core.effects.dirty.clear();
        all
    }

    /// A session that leaves for another node.
    pub(super) fn pack_leaving(&mut self, half: u64) {
        let Some((id, window_ms)) = self.migration.to_pack(half) else { return };
        let packed = self.pack_session(id).map(|mut packed| {
            packed.body.window_ms = window_ms;
            packed.expires_at = packed.expires_at + window_ms;
            packed
        });
        self.migration.put(&mut self.core, half, packed.as_ref());
    }

    /// What was put off to the end of a tick is told first: afterwards watchers know as much as this node.
    fn pack_session(&mut self, id: ListenerId) -> Option<Packed> {
        let channels = migration::watched_by(&self.core, id);
        for channel in &channels {
            self.presence.rooms().end_tick(&mut self.core, channel);
        }
        let told = |channel: Arc<str>| self.presence.told(&channel).map(|told| (channel, told));
        let told = channels.into_iter().filter_map(told).collect();
        let statuses = self.people.told_statuses(&self.core, id);
        migration::pack(&self.core, id, told, statuses)
    }

    /// Takes a packed session in, detached and listening. False: its time is over, or it is here already.
    pub fn adopt(&mut self, now: Time, packed: &Packed) -> bool {
        self.core.now = now;
        let adopted = self.migration.adopt(&mut self.core, &self.presence, packed);
        self.route();
        adopted
    }

    /// The same for a session that lay in the store while nodes lived: what they published meanwhile was not kept for it,
    /// and it is told so.
    pub fn adopt_late(&mut self, now: Time, packed: &Packed) -> bool {
        self.core.now = now;
        let adopted = self.migration.adopt_late(&mut self.core, &self.presence, packed);
        self.route();
        adopted
    }
}
