//! The presence of a session's client through its life: it joins, changes, leaves, is lost and comes back.
//! Must hold: a loss shorter than `resume_ms` is told to nobody; a session that ends leaves nobody behind.

use super::Claim;
use super::step::{Step, grace_of};
use crate::listener::ListenerId;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::{Departure, Home, Input, Loss, State};
use tavern_domain::{Channel, Time};
use tavern_engine::{Deadline, Presence, PresenceKey, Stray};

impl Shard {
    /// Present, or present with another state. Whoever claims the answer gets it when it is so.
    pub(crate) fn join(
        &mut self,
        now: Time,
        id: ListenerId,
        channel: &str,
        state: Option<State>,
        claim: Option<Claim>,
    ) {
        let home = self.home();
        let join = |client| Input::Join { client, home, state };
        self.step_of(now, id, channel, join, claim);
    }

    pub(crate) fn update(&mut self, now: Time, id: ListenerId, channel: &str, state: State, claim: Claim) {
        self.step_of(now, id, channel, |client| Input::Update { client, state }, Some(claim));
    }

    pub(crate) fn leave(
        &mut self,
        now: Time,
        id: ListenerId,
        channel: &str,
        reason: Departure,
        claim: Option<Claim>,
    ) {
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.present.remove(channel);
        }
        self.step_of(now, id, channel, |client| Input::Leave { client, reason }, claim);
    }

    /// An explicit departure from everywhere.
    pub(crate) fn leave_all(&mut self, now: Time, id: ListenerId, reason: Departure) {
        let mut channels = self.present(id);
        // Where it has only begun to be, too.
        channels.extend(self.lanes_of(id).into_iter().filter(|channel| !self.is_present(id, channel)));
        for channel in channels {
            self.leave(now, id, &channel, reason, None);
        }
    }

    fn is_present(&self, id: ListenerId, channel: &str) -> bool {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        session.is_some_and(|session| session.present.contains_key(channel))
    }

    fn lose(&mut self, now: Time, id: ListenerId, channel: &str, at: Time) {
        let loss = Loss { at, grace_ms: self.grace_ms(channel), reason: Departure::Lost };
        self.step_of(now, id, channel, |client| Input::Lose { client, loss }, None);
    }

    pub(crate) fn grace_ms(&self, channel: &str) -> u64 {
        self.node.settings.kind(Channel::parse(channel).map_or("", |channel| channel.kind)).grace_ms
    }

    fn step_of(
        &mut self,
        now: Time,
        id: ListenerId,
        channel: &str,
        input: impl FnOnce(tavern_domain::ClientId) -> Input,
        claim: Option<Claim>,
    ) {
        let Some(session) = self.listeners.get(id).and_then(|listener| listener.session()) else { return };
        let user = session.identity.user.clone();
        let anonymous = user.is_none();
        let user = user.unwrap_or_else(|| session.client.to_string().into());
        let step = Step {
            key: PresenceKey { channel: channel.into(), user },
            name: session.identity.name.clone(),
            anonymous,
            input: Some(input(session.client)),
            listener: Some(id),
            claim,
            tries: 0,
            doubted: false,
        };
        self.begin_step(now, step);
    }

    pub(super) fn home(&self) -> Home {
        Home { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    fn present(&self, id: ListenerId) -> Vec<Arc<str>> {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        session.map(|session| session.present.keys().cloned().collect()).unwrap_or_default()
    }

    /// A step of a session has happened: the session remembers where it is, so that it can be lost and come back.
    pub(super) fn note_step(&mut self, now: Time, step: &Step) {
        let Some(id) = step.listener else { return };
        let joined = match &step.input {
            Some(Input::Join { state, .. }) => state.clone(),
            Some(Input::Update { state, .. }) => Some(state.clone()),
            Some(Input::Leave { .. }) => {
                // It may have come back by itself while this waited.
                if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut())
                {
                    session.present.remove(&step.key.channel);
                }
                return;
            }
            _ => return,
        };
        let channel = step.key.channel.clone();
        let poll_idle_ms = self.node.settings.poll_idle_ms;
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            // It ended while it was joining: nobody else would take it out again.
            let Some(Input::Join { client, .. }) = step.input.as_ref().filter(|_| !self.has_followers(step))
            else {
                return;
            };
            let loss = Loss { at: now, grace_ms: self.grace_ms(&channel), reason: Departure::Lost };
            let input = Some(Input::Lose { client: *client, loss });
            return self.begin_step(
                now,
                Step { input, listener: None, claim: None, tries: 0, doubted: false, ..step.clone() },
            );
        };
        let state = session.present.entry(channel.clone()).or_default();
        if joined.is_some() {
            *state = joined;
        }
        if session.lost {
            let at = session.lost_at(poll_idle_ms);
            self.lose(now, id, &channel, at);
        } else {
            self.watch_for_loss(id);
        }
    }

    /// A session without a transport is lost when its window ends.
    pub(crate) fn watch_for_loss(&mut self, id: ListenerId) {
        let settings = &self.node.settings;
        let Some(listener) = self.listeners.get(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let Some(session) = listener.session().filter(|session| !session.present.is_empty() && !session.lost)
        else {
            return;
        };
        let window_ms = session.window_ms.unwrap_or(settings.resume_ms);
        self.wheel.set(session.lost_at(settings.poll_idle_ms) + window_ms, id);
    }

    pub(crate) fn loss_is_due(&mut self, now: Time, id: ListenerId) {
        let settings = &self.node.settings;
        let (resume_ms, poll_idle_ms) = (settings.resume_ms, settings.poll_idle_ms);
        let Some(listener) = self.listeners.get_mut(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let Some(session) = listener.session_mut().filter(|s| !s.present.is_empty() && !s.lost) else {
            return;
        };
        let at = session.lost_at(poll_idle_ms);
        if now < at + session.window_ms.unwrap_or(resume_ms) {
            return self.watch_for_loss(id);
        }
        session.lost = true;
        for channel in self.present(id) {
            self.lose(now, id, &channel, at);
        }
    }

    /// The session has a transport again: what was lost is there again, with the state it had.
    pub(crate) fn come_back(&mut self, now: Time, id: ListenerId) {
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        session.window_ms = None;
        if !std::mem::take(&mut session.lost) {
            return;
        }
        for (channel, state) in session.present.clone() {
            self.join(now, id, &channel, state, None);
        }
    }

    /// The node lives on under a new epoch: it vouches for its living clients again.
    pub fn announce(&mut self, now: Time) {
        let ids: Vec<ListenerId> = self.listeners.ids().collect();
        for id in ids {
            let Some(session) = self.listeners.get(id).and_then(|listener| listener.session()) else {
                continue;
            };
            if !session.lost {
                for (channel, state) in session.present.clone() {
                    self.join(now, id, &channel, state, None);
                }
            }
        }
    }

    /// A client for which a node vouched that is gone.
    pub fn take_over(&mut self, now: Time, presence: &Presence, home: Home, loss: Loss) {
        let step = Step {
            key: presence.key.clone(),
            name: presence.name.clone(),
            anonymous: presence.anonymous,
            input: Some(Input::LoseHome { home, loss }),
            listener: None,
            claim: None,
            tries: 0,
            doubted: false,
        };
        self.begin_step(now, step);
    }

    /// A presence that nobody will end. Looked at again when it is read: whoever is vouched for by then stays.
    pub fn sweep_stray(&mut self, now: Time, stray: Stray) {
        let Stray { key, homes } = stray;
        let input = Some(Input::Sweep { homes });
        self.begin_step(
            now,
            Step {
                key,
                name: None,
                anonymous: false,
                input,
                listener: None,
                claim: None,
                tries: 0,
                doubted: false,
            },
        );
    }

    /// The session ends without a word: whoever it was may come back as another session.
    pub(crate) fn lose_all(&mut self, now: Time, id: ListenerId) {
        let Some(listener) = self.listeners.get(id) else { return };
        let Some(session) = listener.session().filter(|session| !session.lost) else { return };
        let detached = listener.link.is_none().then(|| session.lost_at(self.node.settings.poll_idle_ms));
        let at = detached.unwrap_or(now);
        for channel in self.present(id) {
            self.lose(now, id, &channel, at);
        }
    }

    /// What is due by now: graces that end, steps that are tried again.
    pub(crate) fn settle_presences(&mut self, now: Time) {
        while let Some((due, key)) = self.presences.deadlines.first().cloned()
            && due <= now
        {
            self.presences.deadlines.remove(&(due, key.clone()));
            self.end_grace(now, key);
        }
        self.look_at_holes(now);
        self.settle_ticks(now);
        while self.presences.later.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, step)) = self.presences.later.pop_front() {
                self.run_step(now, step);
            }
        }
    }

    /// A deadline that somebody wrote down and nobody settled.
    pub fn overdue(&mut self, now: Time, deadline: &Deadline) {
        if let Some(key) = grace_of(deadline) {
            self.end_grace(now, key);
        }
    }

    fn end_grace(&mut self, now: Time, key: PresenceKey) {
        let step = Step {
            key,
            name: None,
            anonymous: false,
            input: None,
            listener: None,
            claim: None,
            tries: 0,
            doubted: false,
        };
        self.begin_step(now, step);
    }
}
