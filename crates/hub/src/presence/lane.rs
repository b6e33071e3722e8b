//! The steps of one session in one channel, one after the other: what it asked last holds last, however long the store
//! takes for what it asked before. And what became of a step whose outcome nobody knows.
//! Must hold: of a session and a channel at most one step is under way; a departure that was begun happens; whoever may
//! be present is remembered by its session, so that it goes with it.

use super::step::Step;
use crate::listener::ListenerId;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::Input;
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_engine::{Answer, Presence, StoreError, Versioned};

impl Shard {
    /// Begins a step, or puts it behind the one that is under way.
    pub(crate) fn begin_step(&mut self, now: Time, step: Step) {
        if let Some(id) = step.listener {
            let lane = (id, step.key.channel.clone());
            if let Some(waiting) = self.presences.lanes.get_mut(&lane) {
                if is_own(&step) {
                    // Coming and going by itself: only the last of it counts.
                    waiting.retain(|earlier| !is_own(earlier));
                }
                waiting.push_back(step);
                return;
            }
            self.presences.lanes.insert(lane, Default::default());
        }
        self.run_step(now, step);
    }

    /// The channels in which something of a session is under way.
    pub(super) fn lanes_of(&self, id: ListenerId) -> Vec<Arc<str>> {
        let lanes = self.presences.lanes.keys().filter(|(of, _)| *of == id);
        let mut channels: Vec<Arc<str>> = lanes.map(|(_, channel)| channel.clone()).collect();
        channels.sort();
        channels
    }

    /// Whether another step waits for this one.
    pub(super) fn has_followers(&self, step: &Step) -> bool {
        let Some(id) = step.listener else { return false };
        let waiting = self.presences.lanes.get(&(id, step.key.channel.clone()));
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }

    /// What a session does by itself is held against what has become of it meanwhile. False: it means nothing any more.
    pub(super) fn freshen(&self, step: &mut Step) -> bool {
        if !is_own(step) || step.doubted {
            return true;
        }
        let session = step.listener.and_then(|id| self.listeners.get(id)?.session());
        let present = session.and_then(|session| session.present.get(&step.key.channel));
        match &mut step.input {
            // With the state it has by now, not the one it had when the store did not answer.
            Some(Input::Join { state, .. }) => match present {
                Some(now) if session.is_some_and(|session| !session.lost) => *state = now.clone(),
                _ => return false,
            },
            Some(Input::Lose { .. }) => return session.is_none_or(|session| session.lost),
            _ => {}
        }
        true
    }

    /// A client that was taken for lost while its session lives is present as far as it knows: its update is an arrival.
    pub(super) fn insist(&self, step: &mut Step, found: Option<&Versioned<Presence>>) {
        let Some(Input::Update { client, state }) = &step.input else { return };
        let living = found.is_some_and(|found| found.row.attendance.living().any(|a| a.client == *client));
        let session = step.listener.and_then(|id| self.listeners.get(id)?.session());
        if !living && session.is_some_and(|session| session.present.contains_key(&step.key.channel)) {
            let (client, state) = (*client, Some(state.clone()));
            step.input = Some(Input::Join { client, home: self.home(), state });
        }
    }

    /// A step has happened, or will not: the next one of its session may begin.
    pub(super) fn step_is_over(&mut self, now: Time, step: &Step) {
        let Some(id) = step.listener else { return };
        let lane = (id, step.key.channel.clone());
        match self.presences.lanes.get_mut(&lane).and_then(|waiting| waiting.pop_front()) {
            Some(next) => self.run_step(now, next),
            None => drop(self.presences.lanes.remove(&lane)),
        }
    }

    /// The store did not take a step that somebody waits for: he hears so. What may have happened all the same is found
    /// out, and a departure happens later.
    pub(super) fn step_failed(&mut self, now: Time, mut step: Step, committing: bool, answer: &Answer) {
        let Some(claim) = step.claim.take() else { return self.try_later(now, step) };
        self.finish(claim, Err(super::step::refusal(answer)));
        let unknown = !matches!(answer, Answer::Failed(error) if error.is_refusal());
        match &step.input {
            Some(Input::Leave { .. }) if !is_hopeless(answer) => self.try_later(now, step),
            Some(Input::Join { .. } | Input::Update { .. }) if committing && unknown => {
                step.doubted = true;
                self.run_step(now, step);
            }
            _ => self.step_is_over(now, &step),
        }
    }

    /// Nobody waits for it, so nobody would ask again: a loss or a deadline must not be forgotten.
    fn try_later(&mut self, now: Time, step: Step) {
        self.presences.later.push_back((now + RETRY_AFTER_MS, Step { tries: 0, ..step }));
    }

    /// A step whose outcome was not known: if its client is there, its session must know.
    pub(super) fn find_out(&mut self, now: Time, step: Step, found: Option<&Versioned<Presence>>) {
        if let Some(Input::Join { client, .. } | Input::Update { client, .. }) = &step.input {
            let living = found.and_then(|found| found.row.attendance.living().find(|a| a.client == *client));
            if let Some(attendee) = living {
                let home = attendee.home.clone();
                let input = Some(Input::Join { client: *client, home, state: attendee.state.clone() });
                self.note_step(now, &Step { input, ..step.clone() });
            }
        }
        self.step_is_over(now, &step);
    }
}

/// Not a command: the session comes back, is announced anew, or is lost.
fn is_own(step: &Step) -> bool {
    step.claim.is_none() && matches!(step.input, Some(Input::Join { .. } | Input::Lose { .. }))
}

/// Trying again would never help.
fn is_hopeless(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed(StoreError::TooLarge { .. }))
}
