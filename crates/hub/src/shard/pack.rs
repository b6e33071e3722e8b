//! Packs sessions that migrate to another node or into the store, and adopts sessions from the store. Every feature
//! contributes its part of a packed session.

use super::Shard;
use crate::connection::CloseReason;
use crate::core::WatchedVersions;
use crate::core::detached;
use crate::core::listener::ListenerId;
use crate::migration::{self, PackedSession};
use std::sync::Arc;
use tavern_domain::Time;

impl Shard {
    /// Packs every session of a stopping node, for the store. Connections are closed with `closing`, and nothing is
    /// delivered afterwards. Sessions that are already in the store, migrating to another node, are not packed again.
    pub fn pack(&mut self, now: Time) -> Vec<PackedSession> {
        self.core.now = now;
        self.migration.refuse_sessions();
        let ids: Vec<ListenerId> = self.core.listeners.ids().collect();
        let mut all = Vec::new();
        for id in ids {
            let Some(listener) = self.core.listeners.get(id).filter(|listener| !listener.is_redis()) else {
                continue;
            };
            if let Some(link) = listener.link {
                self.core.effects.closes.push((link.id, CloseReason::Closing));
                self.detach(now, id, link.id);
            }
            if self.migration.owns_session(&self.core, id) {
                if self.migration.is_offered_with_transport(id) {
                    migration::restart_window(&mut self.core, id);
                }
                if let Some(mut packed) = self.pack_session(id) {
                    packed.body.window_ms = migration::drain_window_ms(&self.core, id, 0);
                    all.push(packed);
                }
            }
            // The session continues elsewhere: its client is not lost.
            if let Some(session) = self.core.session_mut(id) {
                session.present.clear();
            }
            self.end_session(id);
            self.route();
        }
        self.core.effects.dirty.clear();
        all
    }

    /// Packs a session that migrates to another node.
    pub(super) fn pack_outgoing(&mut self, half: u64) {
        let Some((id, window_ms)) = self.migration.to_pack(half) else { return };
        let packed = self.pack_session(id).map(|mut packed| {
            packed.body.window_ms = window_ms;
            packed.expires_at = packed.expires_at + window_ms;
            packed
        });
        self.migration.store(&mut self.core, half, packed.as_ref());
    }

    /// Flushes presence changes that wait for the next tick, so that the mailbox is as recent as the versions.
    fn pack_session(&mut self, id: ListenerId) -> Option<PackedSession> {
        detached::collect(&mut self.core, id);
        let channels = migration::watched_by(&self.core, id);
        for channel in &channels {
            self.presence.rooms().end_tick(&mut self.core, channel);
        }
        let marks = self.core.listener(id).and_then(|listener| listener.received_elsewhere.as_deref());
        let known = |channel: Arc<str>| {
            // It may come from a node that knew more.
            let elsewhere = marks.map_or(0, |marks| marks.presence_version(&channel));
            let version = self.presence.known_version(&channel)?.max(elsewhere);
            Some((channel, version))
        };
        let versions = channels.into_iter().filter_map(known).collect();
        let statuses = self.people.known_statuses(&self.core, id);
        let history = self.history.positions_of(&self.core, id);
        migration::pack(&self.core, id, versions, statuses, history)
    }

    /// Adopts a session from the store, detached. False: it has expired, or is here already.
    pub fn adopt(&mut self, now: Time, packed: &PackedSession) -> bool {
        self.core.now = now;
        let adopted = self.migration.adopt(&mut self.core, &self.presence, packed);
        self.route();
        adopted
    }

    /// The same for a session that was in the store while other nodes published: each subscription gets a gap.
    pub fn adopt_late(&mut self, now: Time, packed: &PackedSession) -> bool {
        self.core.now = now;
        let adopted = self.migration.adopt_late(&mut self.core, &self.presence, packed);
        self.route();
        adopted
    }
}
