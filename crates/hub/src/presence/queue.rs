//! The changes of one user in one channel wait for each other: the next begins when the one before has ended, and finds what
//! that one has made. Must hold: of one user in one channel one change at a time is under way on a shard; none is overtaken.

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
    /// Changes that wait behind the change that is under way.
    waiting: HashMap<PresenceKey, VecDeque<PresenceChange>, RandomState>,
    /// Changes whose turn it is.
    next: VecDeque<PresenceChange>,
    /// They are being started.
    pub starting: bool,
}

impl ChangeQueue {
    /// Gives the change back when it is its turn at once.
    pub fn enter(&mut self, change: PresenceChange) -> Option<PresenceChange> {
        match self.waiting.entry(change.key.clone()) {
            Entry::Occupied(mut line) => {
                if change.is_automatic() {
                    // Coming and going by itself: only the last of it counts.
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

    /// The change that was under way has ended.
    pub fn leave(&mut self, key: &PresenceKey) {
        let Some(line) = self.waiting.get_mut(key) else { return };
        match line.pop_front() {
            Some(change) => self.next.push_back(change),
            None => drop(self.waiting.remove(key)),
        }
    }

    /// The change at the head of a line is tried again later: gives the claims of those who wait behind it, so that they are
    /// not kept waiting as well. Departures stay without their claim, and happen in their turn.
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

    /// Whether a change of a user in a channel is under way.
    pub fn is_occupied(&self, key: &PresenceKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// The channels in which a change of a user is under way or waits.
    pub fn channels_of(&self, user: &str) -> Vec<Arc<str>> {
        let keys = self.waiting.keys().filter(|key| *key.user == *user);
        let mut channels: Vec<Arc<str>> = keys.map(|key| key.channel.clone()).collect();
        channels.sort();
        channels
    }

    /// Whether a change of a session stands in a line. Walks along all of them: for sessions that move.
    pub fn has(&self, id: ListenerId) -> bool {
        let waiting = self.waiting.values().flatten().chain(&self.next);
        waiting.into_iter().any(|change| change.listener == Some(id))
    }

    pub fn next(&mut self) -> Option<PresenceChange> {
        self.next.pop_front()
    }
}
