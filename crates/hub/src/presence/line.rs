//! The steps of one user in one channel stand in line: the next begins when the one before has ended, and finds what that
//! one has made. Must hold: of one user in one channel one step at a time is under way on a shard; nobody is passed by.

use super::task::Step;
use crate::core::Claim;
use crate::core::listener::ListenerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_engine::PresenceKey;

#[derive(Default)]
pub(super) struct Lines {
    /// Those who wait behind the step that is under way.
    waiting: HashMap<PresenceKey, VecDeque<Step>, RandomState>,
    /// Steps whose turn it is.
    next: VecDeque<Step>,
    /// Somebody starts them already.
    pub starting: bool,
}

impl Lines {
    /// Gives the step back when it is its turn at once.
    pub fn enter(&mut self, step: Step) -> Option<Step> {
        match self.waiting.entry(step.key.clone()) {
            Entry::Occupied(mut line) => {
                if step.is_own() {
                    // Coming and going by itself: only the last of it counts.
                    line.get_mut().retain(|earlier| !(earlier.is_own() && earlier.listener == step.listener));
                }
                line.get_mut().push_back(step);
                None
            }
            Entry::Vacant(line) => {
                line.insert(VecDeque::new());
                Some(step)
            }
        }
    }

    /// The step that was under way has ended.
    pub fn leave(&mut self, key: &PresenceKey) {
        let Some(line) = self.waiting.get_mut(key) else { return };
        match line.pop_front() {
            Some(step) => self.next.push_back(step),
            None => drop(self.waiting.remove(key)),
        }
    }

    /// The step at the head of a line is tried again later: gives the claims of those who wait behind it, so that they are
    /// not kept waiting as well. Departures stay without their claim, and happen in their turn.
    pub fn give_up(&mut self, key: &PresenceKey) -> Vec<Claim> {
        let Some(line) = self.waiting.get_mut(key) else { return Vec::new() };
        let mut claims = Vec::new();
        line.retain_mut(|step| match step.claim.take() {
            Some(claim) => {
                claims.push(claim);
                step.is_departure()
            }
            None => true,
        });
        claims
    }

    /// Whether another step of the same session waits for this one.
    pub fn has_followers(&self, step: &Step) -> bool {
        let mut line = self.waiting.get(&step.key).into_iter().flatten();
        line.any(|other| other.listener == step.listener)
    }

    /// The channels in which a step of a user is under way or waits.
    pub fn channels_of(&self, user: &str) -> Vec<Arc<str>> {
        let keys = self.waiting.keys().filter(|key| *key.user == *user);
        let mut channels: Vec<Arc<str>> = keys.map(|key| key.channel.clone()).collect();
        channels.sort();
        channels
    }

    /// Whether a step of a session stands in a line. Walks along all of them: for sessions that move.
    pub fn has(&self, id: ListenerId) -> bool {
        let waiting = self.waiting.values().flatten().chain(&self.next);
        waiting.into_iter().any(|step| step.listener == Some(id))
    }

    pub fn next(&mut self) -> Option<Step> {
        self.next.pop_front()
    }
}
