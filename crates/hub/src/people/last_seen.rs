//! When users were last seen: recorded in batches, periodically while they are connected. Not when they connect, so
//! that "since your last visit" can be answered. A departure records it in the commit of the presence change.

use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Timer};
use tavern_store::{Commit, LastSeenUpdate, Work};

/// Users in one commit.
const BATCH: usize = 500;

#[derive(Default)]
pub(super) struct LastSeen {
    /// The timer is set.
    scheduled: bool,
}

impl LastSeen {
    /// There is a local user: sets the timer.
    pub fn schedule(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.scheduled, true) {
            core.agenda.set(core.now + core.node.settings.last_seen_ms, Timer::LastSeen);
        }
    }

    /// Records which users are connected, and sets the timer again while there are any.
    pub fn record(&mut self, core: &mut Core) {
        self.scheduled = false;
        if !core.users.is_empty() {
            self.schedule(core);
        }
        let mut users = core.users.names();
        users.retain(|user| core.users.sessions(user).iter().any(|id| is_seen(core, *id)));
        for part in users.chunks(BATCH) {
            let seen = part.iter().map(|user| LastSeenUpdate { user: user.clone(), at: core.now }).collect();
            let commit = Commit { writer: Some(core.writer()), seen, ..Commit::default() };
            core.submit(Feature::None, Work::Commit(commit));
        }
    }
}

/// Whether a session is connected, and has been open for a while.
fn is_seen(core: &Core, id: ListenerId) -> bool {
    let settings = &core.node.settings;
    let Some(listener) = core.listeners.get(id) else { return false };
    let Some(session) = listener.session() else { return false };
    let connected = listener.link.is_some() || core.now < session.lost_at(settings.poll_idle_ms);
    connected && core.now.since(session.since) >= settings.last_seen_ms
}
