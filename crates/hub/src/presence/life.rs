//! The presence of a session's client through its life: it joins, changes, leaves, is lost and comes back.
//! Must hold: a loss shorter than `resume_ms` is told to nobody; a session that ends leaves nobody behind.

use super::Claim;
use super::hold::is_hold;
use super::step::key_of;
use super::task::{Act, Step};
use crate::inbox::{INBOX, ONCE};
use crate::listener::ListenerId;
use crate::party::{FORGET, GUEST, PARTY};
use crate::people::is_own_channel;
use crate::session::Session;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departure, Home, Input, Loss, State};
use tavern_domain::{Channel, ClientId, Identity, Time};
use tavern_engine::{Deadline, Presence, PresenceKey, Versioned};

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
        // To whom he shows himself must be known first.
        let Some((state, claim)) = self.put_off(id, channel, state, claim) else { return };
        let home = self.home();
        let join = |client| Input::Join { client, home, state };
        self.step_of(now, id, channel, join, claim);
    }

    /// The same client under a new home: it is known to be there, so it is read first.
    pub(crate) fn join_again(&mut self, id: ListenerId, channel: &str, state: Option<State>) {
        let home = self.home();
        if let Some(step) = self.new_step(id, channel, |client| Input::Join { client, home, state }, None) {
            self.begin_step(self.now, Step { again: true, ..step });
        }
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
        self.step_of(now, id, channel, |client| Input::Leave { client, reason }, claim);
    }

    /// An explicit departure from everywhere.
    pub(crate) fn leave_all(&mut self, now: Time, id: ListenerId, reason: Departure) {
        let mut channels = self.present(id);
        // Where it has only begun to be, too.
        let user = self.key_user(id);
        let begun = user.map(|user| self.presences.lines.channels_of(&user)).unwrap_or_default();
        channels.extend(begun.into_iter().filter(|channel| !self.is_present(id, channel)));
        for channel in channels {
            self.leave(now, id, &channel, reason, None);
        }
    }

    /// Under whose name a session's client stands in a channel.
    fn key_user(&self, id: ListenerId) -> Option<Arc<str>> {
        let session = self.listeners.get(id)?.session()?;
        Some(session.identity.user.clone().unwrap_or_else(|| session.client.to_string().into()))
    }

    fn is_present(&self, id: ListenerId, channel: &str) -> bool {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        session.is_some_and(|session| session.present.has(channel))
    }

    fn lose(&mut self, now: Time, id: ListenerId, channel: &str, at: Time) {
        let loss = Loss { at, grace_ms: self.grace_ms(channel), reason: Departure::Lost };
        let node = self.node.name.clone();
        self.step_of(now, id, channel, |client| Input::LoseAt { client, node, loss }, None);
    }

    pub(crate) fn grace_ms(&self, channel: &str) -> u64 {
        self.node.settings.kind(Channel::parse(channel).map_or("", |channel| channel.kind)).grace_ms
    }

    fn step_of(
        &mut self,
        now: Time,
        id: ListenerId,
        channel: &str,
        input: impl FnOnce(ClientId) -> Input,
        claim: Option<Claim>,
    ) {
        if let Some(step) = self.new_step(id, channel, input, claim) {
            self.begin_step(now, step);
        }
    }

    fn new_step(
        &self,
        id: ListenerId,
        channel: &str,
        input: impl FnOnce(ClientId) -> Input,
        claim: Option<Claim>,
    ) -> Option<Step> {
        let session = self.listeners.get(id)?.session()?;
        let user = session.identity.user.clone();
        let anonymous = user.is_none();
        let user = user.unwrap_or_else(|| session.client.to_string().into());
        let (name, act) = (session.identity.name.clone(), Act::Input(input(session.client)));
        let visibility = self.people.visibility(&user);
        let hint = if is_own_channel(channel) { self.known_guest(&user) } else { None };
        let key = PresenceKey { channel: channel.into(), user };
        Some(Step { name, anonymous, visibility, listener: Some(id), claim, hint, ..Step::of(key, act) })
    }

    pub(super) fn home(&self) -> Home {
        Home { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    /// His own channel first: whoever is gone does nothing any more, and that he stops is not worth a word.
    fn present(&self, id: ListenerId) -> Vec<Arc<str>> {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        let mut channels: Vec<Arc<str>> =
            session.map(|session| session.present.channels().cloned().collect()).unwrap_or_default();
        channels.sort_by_key(|channel| !is_own_channel(channel));
        channels
    }

    /// A step of a session has happened: the session remembers where it is, so that it can be lost and come back.
    pub(super) fn note_step(&mut self, now: Time, step: &Step) {
        let Some(id) = step.listener else { return };
        let joined = match &step.act {
            Act::Input(Input::Join { state, .. }) => state.clone(),
            Act::Input(Input::Update { state, .. }) => Some(state.clone()),
            Act::Input(Input::Leave { .. }) => {
                // It may have come back by itself while this waited.
                if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut())
                {
                    session.present.leave(&step.key.channel);
                }
                return;
            }
            _ => return,
        };
        let channel = step.key.channel.clone();
        let poll_idle_ms = self.node.settings.poll_idle_ms;
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            // It ended while it was joining: nobody else would take it out again.
            let Act::Input(Input::Join { client, .. }) = &step.act else { return };
            if self.moves.has_parted(*client) || self.presences.lines.has_followers(step) {
                return;
            }
            let loss = Loss { at: now, grace_ms: self.grace_ms(&channel), reason: Departure::Lost };
            let act = Act::Input(Input::LoseAt { client: *client, node: self.node.name.clone(), loss });
            return self.begin_step(now, Step::of(step.key.clone(), act));
        };
        session.present.enter(&channel, joined);
        let lost = session.lost;
        let visibility = self.people.visibility(&step.key.user);
        if let Some(visibility) =
            visibility.filter(|shown| !step.anonymous && Some(*shown) != step.visibility)
        {
            // He turned his face while he came in.
            self.begin_step(now, Step::of(step.key.clone(), Act::Face(visibility)));
        }
        let Some(session) = self.listeners.get(id).and_then(|listener| listener.session()) else { return };
        if lost {
            let at = session.lost_at(poll_idle_ms);
            self.lose(now, id, &channel, at);
        } else {
            self.watch_for_loss(id);
        }
    }

    /// The presence that a session is about to leave or lose, when it is known without reading. Whoever explicitly leaves
    /// is not there for the session from now on.
    pub(super) fn known(&mut self, step: &Step) -> Option<Versioned<Presence>> {
        let home = self.home();
        let session = self.listeners.get_mut(step.listener?)?.session_mut()?;
        let channel = &step.key.channel;
        let state = match &step.act {
            Act::Input(Input::Leave { .. }) => session.present.leave(channel),
            Act::Input(Input::Lose { .. } | Input::LoseAt { .. }) => session.present.state(channel).cloned(),
            _ => return None,
        };
        let (version, since) = session.alone.remove(channel)?;
        let client = Attendee { client: session.client, home, state: state?, since, lost: None };
        let attendance = Attendance::restore(vec![client], since, None);
        let Step { key, name, anonymous, visibility, .. } = step.clone();
        let visibility = visibility.unwrap_or_default();
        Some(Versioned { version, row: Presence { key, anonymous, name, visibility, attendance } })
    }

    /// What a session's step has made of its user's presence.
    pub(super) fn note_alone(&mut self, step: &Step, alone: Option<(u64, Time)>) {
        let Some(id) = step.listener else { return };
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        match alone.filter(|_| session.present.has(&step.key.channel)) {
            Some(alone) => drop(session.alone.insert(step.key.channel.clone(), alone)),
            None => drop(session.alone.remove(&step.key.channel)),
        }
    }

    /// A session without a transport is lost when its window ends.
    pub(crate) fn watch_for_loss(&mut self, id: ListenerId) {
        let settings = &self.node.settings;
        let Some(listener) = self.listeners.get(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let waits = |session: &&Session| !session.present.is_empty() && !session.lost && !session.frozen;
        let Some(session) = listener.session().filter(waits) else {
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
        let waits = |s: &&mut Session| !s.present.is_empty() && !s.lost && !s.frozen;
        let Some(session) = listener.session_mut().filter(waits) else {
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
        for (channel, state) in session.present.all() {
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
            if !session.lost && !session.frozen {
                for (channel, state) in session.present.all() {
                    self.join(now, id, &channel, state, None);
                }
            }
        }
    }

    /// A client for which a node vouched that is gone.
    pub fn take_over(&mut self, now: Time, presence: &Presence, home: Home, loss: Loss) {
        self.begin_step(now, Step::of(presence.key.clone(), Act::Input(Input::LoseHome { home, loss })));
    }

    /// A client that went to another node is lost if nobody vouches for it but this one.
    pub(crate) fn lose_parted(
        &mut self,
        now: Time,
        who: &Identity,
        client: ClientId,
        channel: &str,
        loss: Loss,
    ) {
        let user = who.user.clone().unwrap_or_else(|| client.to_string().into());
        let key = PresenceKey { channel: channel.into(), user };
        let node = self.node.name.clone();
        let step = Step::of(key, Act::Input(Input::LoseAt { client, node, loss }));
        self.begin_step(now, step);
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
        self.end_holds(now);
        self.look_at_holes(now);
        self.settle_ticks(now);
        while self.presences.later.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, step)) = self.presences.later.pop_front() {
                self.start_step(now, step);
            }
        }
    }

    /// A deadline that somebody wrote down and nobody settled.
    pub fn overdue(&mut self, now: Time, deadline: &Deadline) {
        match &*deadline.kind {
            INBOX => return self.inbox_is_due(deadline),
            ONCE => return self.forget_once(deadline),
            PARTY | GUEST | FORGET => return self.party_is_due(now, deadline),
            _ => {}
        }
        let Some(key) = key_of(deadline) else { return };
        match is_hold(deadline) {
            true => self.begin_step(now, Step::of(key, Act::Ride { gone: Vec::new() })),
            false => self.end_grace(now, key),
        }
    }

    fn end_grace(&mut self, now: Time, key: PresenceKey) {
        self.begin_step(now, Step::of(key, Act::Wake));
    }
}
