//! The queue of changes of one user in one channel: the next starts when the one before has ended, and sees its
//! result. Must hold: on a shard, one change of one user in one channel is in progress at a time, in order.

use super::change::PresenceChange;
use crate::core::ReplyTo;
use crate::core::listener::ListenerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_store::PresenceKey;

#[derive(Default)]
pub(super) struct ChangeQueue {
    /// Changes that wait behind the change in progress.
    waiting: HashMap<PresenceKey, VecDeque<PresenceChange>, RandomState>,
    /// Changes at the head of their queue.
    next: VecDeque<PresenceChange>,
    /// The changes in `next` are being started.
    pub starting: bool,
}

impl ChangeQueue {
    /// Returns the change if it can start at once.
    pub fn enter(&mut self, change: PresenceChange) -> Option<PresenceChange> {
        match self.waiting.entry(change.key.clone()) {
            Entry::Occupied(mut line) => {
                if change.is_automatic() {
                    // Of the automatic changes of a session, only the last one counts.
                    line.get_mut()
                        .retain(|earlier| !(earlier.is_automatic() && earlier.listener == change.listener));
                }
                line.get_mut().push_back(change);
                None
            }
            Entry::Vacant(line) => {
                line.insert(VecDeque::new());
                Some(change)
            }
        }
    }

    /// The change in progress has ended.
    pub fn leave(&mut self, key: &PresenceKey) {
        let Some(line) = self.waiting.get_mut(key) else { return };
        match line.pop_front() {
            Some(change) => self.next.push_back(change),
            None => drop(self.waiting.remove(key)),
        }
    }

    /// The change at the head of a queue is retried later: returns the claims of the changes behind it, so that their
    /// callers do not wait too. Departures stay in the queue without their claim, in order.
    pub fn give_up(&mut self, key: &PresenceKey) -> Vec<ReplyTo> {
        let Some(line) = self.waiting.get_mut(key) else { return Vec::new() };
        let mut claims = Vec::new();
        line.retain_mut(|change| match change.claim.take() {
            Some(claim) => {
                claims.push(claim);
                change.is_departure()
            }
            None => true,
        });
        claims
    }

    /// Whether another change of the same session waits for this one.
    pub fn has_followers(&self, change: &PresenceChange) -> bool {
        let mut line = self.waiting.get(&change.key).into_iter().flatten();
        line.any(|other| other.listener == change.listener)
    }

    /// Whether a change of a user in a channel is in progress.
    pub fn is_occupied(&self, key: &PresenceKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// The channels in which a change of a user is in progress or waits.
    pub fn channels_of(&self, user: &str) -> Vec<Arc<str>> {
        let keys = self.waiting.keys().filter(|key| *key.user == *user);
        let mut channels: Vec<Arc<str>> = keys.map(|key| key.channel.clone()).collect();
        channels.sort();
        channels
    }

    /// Whether a change of a session is in a queue. Scans all queues: for sessions that migrate.
    pub fn has(&self, id: ListenerId) -> bool {
        let waiting = self.waiting.values().flatten().chain(&self.next);
        waiting.into_iter().any(|change| change.listener == Some(id))
    }

    pub fn next(&mut self) -> Option<PresenceChange> {
        self.next.pop_front()
    }
}
