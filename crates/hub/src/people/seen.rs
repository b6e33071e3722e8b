//! When somebody was last seen: written down now and then while he is there, in batches, and never when he comes, so
//! that "since you were last here" has an answer. His departure is written down with the departure itself.

use super::People;
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Timer};
use std::sync::Arc;
use tavern_engine::{Commit, Seen, Work};

/// Users in one commit.
const BATCH: usize = 500;

impl People {
    /// Writes down which users are here, now and then while there are any.
    pub(crate) fn note_seen(&mut self, core: &mut Core) {
        let now = core.now;
        self.notes_seen = core.users.names().next().is_some();
        if self.notes_seen {
            core.agenda.set(now + core.node.settings.last_seen_ms, Timer::LastSeen);
        }
        let is_seen = |user: &&Arc<str>| core.users.sessions(user).iter().any(|id| is_seen(core, *id));
        let users: Vec<Arc<str>> = core.users.names().filter(is_seen).cloned().collect();
        for part in users.chunks(BATCH) {
            let seen = part.iter().map(|user| Seen { user: user.clone(), at: now }).collect();
            let commit = Commit { writer: Some(core.writer()), seen, ..Commit::default() };
            core.submit(Feature::None, Work::Commit(commit));
        }
    }
}

/// Somebody is at this session, and has been for a while.
fn is_seen(core: &Core, id: ListenerId) -> bool {
    let now = core.now;
    let settings = &core.node.settings;
    let Some(listener) = core.listeners.get(id) else { return false };
    let Some(session) = listener.session() else { return false };
    let there = listener.link.is_some() || now < session.lost_at(settings.poll_idle_ms);
    there && now.since(session.since) >= settings.last_seen_ms
}
