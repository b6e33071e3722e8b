//! When somebody was last seen: written down now and then while he is there, in batches, and never when he comes, so
//! that "since you were last here" has an answer. His departure is written down with the departure itself.

use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_engine::{Commit, Seen, Work};

/// Users in one commit.
const BATCH: usize = 500;

impl Shard {
    /// What is due by now.
    pub(crate) fn settle_people(&mut self, now: Time) {
        self.wake_followees(now);
        self.tell_services(now);
        if self.people.retries.iter().any(|(due, _)| *due <= now) {
            self.retry_loads(now);
        }
        if now >= self.people.seen_at && !self.people.here.is_empty() {
            self.people.seen_at = now + self.node.settings.last_seen_ms;
            self.note_seen(now);
        }
    }

    fn note_seen(&mut self, now: Time) {
        let here =
            self.people.here.iter().filter(|(_, here)| here.sessions.iter().any(|id| self.is_seen(now, *id)));
        let users: Vec<Arc<str>> = here.map(|(user, _)| user.clone()).collect();
        for part in users.chunks(BATCH) {
            let seen = part.iter().map(|user| Seen { user: user.clone(), at: now }).collect();
            let commit = Commit { writer: Some(self.writer()), seen, ..Commit::default() };
            self.submit(crate::presence::Task::Tidy, Work::Commit(commit));
        }
    }

    /// Somebody is at this session, and has been for a while.
    fn is_seen(&self, now: Time, id: crate::listener::ListenerId) -> bool {
        let settings = &self.node.settings;
        let Some(listener) = self.listeners.get(id) else { return false };
        let Some(session) = listener.session() else { return false };
        let there = listener.link.is_some() || now < session.lost_at(settings.poll_idle_ms);
        there && now.since(session.since) >= settings.last_seen_ms
    }
}
