//! The presence of a session's client through its life: it joins, changes, leaves, is lost and comes back.
//! Must hold: a loss shorter than `resume_ms` is told to nobody; a session that ends leaves nobody behind.

use super::task::{Act, Step};
use super::{Presence, PutOff};
use crate::core::listener::ListenerId;
use crate::core::session::Session;
use crate::core::{Claim, Core, Notice, refusal};
use crate::rows::{self, HOLD, Membership};
use crate::user::{is_own_channel, own_channel};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Attendee, Departure, Home, Input, Loss, State, Visibility};
use tavern_domain::{ClientId, Identity, Time};
use tavern_engine::{Answer, Deadline, Presence as PresenceRow, PresenceKey, Versioned};

impl Presence {
    /// Present, or present with another state. Whoever claims the answer gets it when it is so.
    pub(crate) fn join(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: Option<State>,
        claim: Option<Claim>,
    ) {
        // The user's visibility must be known first.
        let user = core.user_of(id);
        if let Some(user) =
            user.filter(|user| core.users.contains(user) && core.users.visibility(user).is_none())
        {
            let put_off = PutOff { listener: id, channel: channel.into(), state, claim };
            return self.put_off.entry(user).or_default().push(put_off);
        }
        let home = core.home();
        let join = |client| Input::Join { client, home, state };
        self.step_of(core, id, channel, join, claim);
    }

    /// The same client under a new home: it is known to be there, so it is read first.
    pub(crate) fn join_again(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: Option<State>,
    ) {
        let home = core.home();
        if let Some(step) = new_step(core, id, channel, |client| Input::Join { client, home, state }, None) {
            self.begin_step(core, Step { again: true, ..step });
        }
    }

    pub(crate) fn update(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: State,
        claim: Claim,
    ) {
        self.step_of(core, id, channel, |client| Input::Update { client, state }, Some(claim));
    }

    pub(crate) fn leave(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        reason: Departure,
        claim: Option<Claim>,
    ) {
        self.step_of(core, id, channel, |client| Input::Leave { client, reason }, claim);
    }

    /// An explicit departure from everywhere.
    pub(crate) fn leave_all(&mut self, core: &mut Core, id: ListenerId, reason: Departure) {
        let mut channels = present(core, id);
        // Where it has only begun to be, too.
        let user = key_user(core, id);
        let begun = user.map(|user| self.lines.channels_of(&user)).unwrap_or_default();
        channels.extend(begun.into_iter().filter(|channel| !is_present(core, id, channel)));
        for channel in channels {
            self.leave(core, id, &channel, reason, None);
        }
    }

    fn lose(&mut self, core: &mut Core, id: ListenerId, channel: &str, at: Time) {
        let loss = Loss { at, grace_ms: core.grace_ms(channel), reason: Departure::Lost };
        let node = core.node.name.clone();
        self.step_of(core, id, channel, |client| Input::LoseAt { client, node, loss }, None);
    }

    fn step_of(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        input: impl FnOnce(ClientId) -> Input,
        claim: Option<Claim>,
    ) {
        if let Some(step) = new_step(core, id, channel, input, claim) {
            self.begin_step(core, step);
        }
    }

    /// A step of a session has happened: the session remembers where it is, so that it can be lost and come back.
    pub(super) fn note_step(&mut self, core: &mut Core, step: &Step) {
        let Some(id) = step.listener else { return };
        let joined = match &step.act {
            Act::Input(Input::Join { state, .. }) => state.clone(),
            Act::Input(Input::Update { state, .. }) => Some(state.clone()),
            Act::Input(Input::Leave { .. }) => {
                // It may have come back by itself while this waited.
                if let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut())
                {
                    session.present.leave(&step.key.channel);
                }
                return;
            }
            _ => return,
        };
        let channel = step.key.channel.clone();
        let poll_idle_ms = core.node.settings.poll_idle_ms;
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            // It ended while it was joining: nobody else would take it out again.
            let Act::Input(Input::Join { client, .. }) = &step.act else { return };
            if !self.lines.has_followers(step) {
                let (key, client) = (step.key.clone(), *client);
                core.notify(Notice::ClientWithoutSession { key, client });
            }
            return;
        };
        session.present.enter(&channel, joined);
        let lost = session.lost;
        let visibility = core.users.visibility(&step.key.user);
        if let Some(visibility) =
            visibility.filter(|shown| !step.anonymous && Some(*shown) != step.visibility)
        {
            // He turned his face while he came in.
            self.begin_step(core, Step::of(step.key.clone(), Act::Face(visibility)));
        }
        let Some(session) = core.listeners.get(id).and_then(|listener| listener.session()) else { return };
        if lost {
            let at = session.lost_at(poll_idle_ms);
            self.lose(core, id, &channel, at);
        } else {
            core.schedule_loss(id);
        }
    }

    /// The presence that a session is about to leave or lose, when it is known without reading. Whoever explicitly leaves
    /// is not there for the session from now on.
    pub(super) fn known(&mut self, core: &mut Core, step: &Step) -> Option<Versioned<PresenceRow>> {
        let home = core.home();
        let session = core.listeners.get_mut(step.listener?)?.session_mut()?;
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
        Some(Versioned { version, row: PresenceRow { key, anonymous, name, visibility, attendance } })
    }

    /// What a session's step has made of its user's presence.
    pub(super) fn note_alone(&mut self, core: &mut Core, step: &Step, alone: Option<(u64, Time)>) {
        let Some(id) = step.listener else { return };
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        match alone.filter(|_| session.present.has(&step.key.channel)) {
            Some(alone) => drop(session.alone.insert(step.key.channel.clone(), alone)),
            None => drop(session.alone.remove(&step.key.channel)),
        }
    }

    pub(crate) fn loss_is_due(&mut self, core: &mut Core, id: ListenerId) {
        let now = core.now;
        let settings = &core.node.settings;
        let (resume_ms, poll_idle_ms) = (settings.resume_ms, settings.poll_idle_ms);
        let Some(listener) = core.listeners.get_mut(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let waits = |s: &&mut Session| !s.present.is_empty() && !s.lost && !s.frozen;
        let Some(session) = listener.session_mut().filter(waits) else {
            return;
        };
        let at = session.lost_at(poll_idle_ms);
        if now < at + session.window_ms.unwrap_or(resume_ms) {
            return core.schedule_loss(id);
        }
        session.lost = true;
        for channel in present(core, id) {
            self.lose(core, id, &channel, at);
        }
    }

    /// The session has a transport again: what was lost is there again, with the state it had.
    pub(crate) fn come_back(&mut self, core: &mut Core, id: ListenerId) {
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        session.window_ms = None;
        if !std::mem::take(&mut session.lost) {
            return;
        }
        for (channel, state) in session.present.all() {
            self.join(core, id, &channel, state, None);
        }
    }

    /// The node lives on under a new epoch: it vouches for its living clients again.
    pub(crate) fn announce(&mut self, core: &mut Core) {
        let ids: Vec<ListenerId> = core.listeners.ids().collect();
        for id in ids {
            if core.session(id).is_some_and(|session| !session.frozen) {
                self.announce_session(core, id);
            }
        }
    }

    /// A living client is announced again wherever it is present.
    pub(crate) fn announce_session(&mut self, core: &mut Core, id: ListenerId) {
        let Some(session) = core.session(id).filter(|session| !session.lost) else { return };
        for (channel, state) in session.present.all() {
            self.join(core, id, &channel, state, None);
        }
    }

    /// A client for which a node vouched that is gone.
    pub(crate) fn take_over(&mut self, core: &mut Core, presence: &PresenceRow, home: Home, loss: Loss) {
        self.begin_step(core, Step::of(presence.key.clone(), Act::Input(Input::LoseHome { home, loss })));
    }

    /// A client that went to another node is lost if nobody vouches for it but this one.
    pub(crate) fn lose_parted(
        &mut self,
        core: &mut Core,
        who: &Identity,
        client: ClientId,
        channel: &str,
        loss: Loss,
    ) {
        let user = who.user.clone().unwrap_or_else(|| client.to_string().into());
        let key = PresenceKey { channel: channel.into(), user };
        let node = core.node.name.clone();
        let step = Step::of(key, Act::Input(Input::LoseAt { client, node, loss }));
        self.begin_step(core, step);
    }

    /// The session ends without a word: whoever it was may come back as another session.
    pub(crate) fn lose_all(&mut self, core: &mut Core, id: ListenerId) {
        let now = core.now;
        let Some(listener) = core.listeners.get(id) else { return };
        let Some(session) = listener.session().filter(|session| !session.lost) else { return };
        let detached = listener.link.is_none().then(|| session.lost_at(core.node.settings.poll_idle_ms));
        let at = detached.unwrap_or(now);
        for channel in present(core, id) {
            self.lose(core, id, &channel, at);
        }
    }

    /// Changes that the store did not take are tried again.
    pub(crate) fn retry(&mut self, core: &mut Core) {
        while let Some((_, step)) = self.later.pop_front_if(|(due, _)| *due <= core.now) {
            self.start_step(core, step);
        }
        self.start_next(core);
    }

    /// A deadline that some node wrote down and none has settled.
    pub(crate) fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        let Some(key) = rows::presence_of(deadline) else { return };
        match &*deadline.kind == HOLD {
            true => self.ride(core, key),
            false => self.end_grace(core, key),
        }
    }

    /// Each session is in its user's own channel by itself.
    pub(crate) fn join_own(&mut self, core: &mut Core, id: ListenerId) {
        let Some(user) = core.user_of(id) else { return };
        let channel = own_channel(&user);
        if let Some(session) = core.session_mut(id) {
            session.present.enter(&channel, None);
        }
        self.join(core, id, &channel, None, None);
    }

    /// The visibility of a user is known: their joins that waited for it go on.
    pub(crate) fn visibility_loaded(&mut self, core: &mut Core, user: &str) {
        for one in self.put_off.remove(user).unwrap_or_default() {
            self.join(core, one.listener, &one.channel, one.state, one.claim);
        }
    }

    /// The visibility of a user could not be loaded: commands that wait for it are refused, the rest waits on.
    pub(crate) fn visibility_failed(&mut self, core: &mut Core, user: &Arc<str>, answer: &Answer) {
        let Some(put_off) = self.put_off.get_mut(user) else { return };
        for one in put_off.extract_if(.., |one| one.claim.is_some()) {
            if let Some(claim) = one.claim {
                core.finish(claim, Err(refusal(answer)));
            }
        }
    }

    /// A local user is visible to others than before, wherever their sessions are present.
    pub(crate) fn turn_faces(&mut self, core: &mut Core, user: &Arc<str>, visibility: Visibility) {
        let mut channels: BTreeSet<Arc<str>> = [own_channel(user)].into();
        for id in core.users.sessions(user) {
            let session = core.session(*id);
            channels.extend(session.into_iter().flat_map(|session| session.present.channels().cloned()));
        }
        for channel in channels {
            self.turn_face(core, PresenceKey { channel, user: user.clone() }, visibility);
        }
    }

    /// A user is visible to others than before in one channel.
    pub(crate) fn turn_face(&mut self, core: &mut Core, key: PresenceKey, visibility: Visibility) {
        self.begin_step(core, Step::of(key, Act::Face(visibility)));
    }

    /// A client joined although its session has ended: it is lost from now on.
    pub(crate) fn lose_client(&mut self, core: &mut Core, key: PresenceKey, client: ClientId) {
        let now = core.now;
        let loss = Loss { at: now, grace_ms: core.grace_ms(&key.channel), reason: Departure::Lost };
        let node = core.node.name.clone();
        self.begin_step(core, Step::of(key, Act::Input(Input::LoseAt { client, node, loss })));
    }

    pub(crate) fn end_grace(&mut self, core: &mut Core, key: PresenceKey) {
        self.begin_step(core, Step::of(key, Act::Wake));
    }
}

/// Under whose name a session's client stands in a channel.
fn key_user(core: &Core, id: ListenerId) -> Option<Arc<str>> {
    let session = core.listeners.get(id)?.session()?;
    Some(session.identity.user.clone().unwrap_or_else(|| session.client.to_string().into()))
}

fn is_present(core: &Core, id: ListenerId, channel: &str) -> bool {
    let session = core.listeners.get(id).and_then(|listener| listener.session());
    session.is_some_and(|session| session.present.has(channel))
}

/// His own channel first: whoever is gone does nothing any more, and that he stops is not worth a word.
fn present(core: &Core, id: ListenerId) -> Vec<Arc<str>> {
    let session = core.listeners.get(id).and_then(|listener| listener.session());
    let mut channels: Vec<Arc<str>> =
        session.map(|session| session.present.channels().cloned().collect()).unwrap_or_default();
    channels.sort_by_key(|channel| !is_own_channel(channel));
    channels
}

fn new_step(
    core: &Core,
    id: ListenerId,
    channel: &str,
    input: impl FnOnce(ClientId) -> Input,
    claim: Option<Claim>,
) -> Option<Step> {
    let session = core.listeners.get(id)?.session()?;
    let user = session.identity.user.clone();
    let anonymous = user.is_none();
    let user = user.unwrap_or_else(|| session.client.to_string().into());
    let (name, act) = (session.identity.name.clone(), Act::Input(input(session.client)));
    let visibility = core.users.visibility(&user);
    let hint = if is_own_channel(channel) { cached_membership(core, &user) } else { None };
    let key = PresenceKey { channel: channel.into(), user };
    Some(Step { name, anonymous, visibility, listener: Some(id), claim, hint, ..Step::of(key, act) })
}

/// What is cached of the user's membership; the commit finds out whether it is stale.
fn cached_membership(core: &Core, user: &str) -> Option<Membership> {
    Membership::read(core.documents.get(&Membership::key(user))?.as_ref()).ok()
}
