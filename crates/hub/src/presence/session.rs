//! The presence of a session's client: it joins, updates, leaves, is lost and reconnects. Must hold: a loss shorter
//! than `resume_ms` is never shown; a session that ends leaves no presence behind.

use super::change::{PresenceAction, PresenceChange};
use super::changes::{loss_at, sync_held};
use super::{Presence, WaitingJoin};
use crate::core::listener::ListenerId;
use crate::core::rights_change::{has_lost, tell};
use crate::core::session::Session;
use crate::core::{Core, ReplyTo, refusal};
use crate::rows::{self, HOLD, MembershipRow};
use crate::user::{is_own_channel, own_channel};
use std::num::NonZeroU64;
use std::sync::Arc;
use tavern_domain::presence::{AttendanceInput, ClientLoss, ClientState, OfflineReason};
use tavern_domain::{ClientId, Identity, Rights, Time, Verb};
use tavern_store::{Deadline, PresenceKey, PresenceRow, StoreAnswer};

/// Clients of one user that a shard shows in the user's own channel. One of them is enough to show the user online;
/// each further one would rewrite the whole row.
const OWN_CLIENTS: usize = 32;

impl Presence {
    /// Joins a channel, or sets another state there. The claim gets the reply after the commit.
    pub(crate) fn join(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: Option<ClientState>,
        claim: Option<ReplyTo>,
    ) {
        // The user's visibility must be known first.
        let user = core.user_of(id);
        if let Some(user) =
            user.filter(|user| core.users.contains(user) && core.users.visibility(user).is_none())
        {
            let put_off = WaitingJoin { listener: id, channel: channel.into(), state, claim };
            return self.waiting_joins.entry(user).or_default().push(put_off);
        }
        let node_epoch = core.node.node_epoch();
        let join = |client| AttendanceInput::Join { client, node: node_epoch, state };
        self.change(core, id, channel, join, claim);
    }

    /// The same client under a new node or epoch: it is present already, so its row is read first.
    pub(crate) fn join_again(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: Option<ClientState>,
    ) {
        let node_epoch = core.node.node_epoch();
        if let Some(change) = change_of(
            core,
            id,
            channel,
            |client| AttendanceInput::Join { client, node: node_epoch, state },
            None,
        ) {
            self.changes.begin(core, PresenceChange { reads_first: true, ..change });
        }
    }

    pub(crate) fn update(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        state: ClientState,
        claim: ReplyTo,
    ) {
        self.change(core, id, channel, |client| AttendanceInput::Update { client, state }, Some(claim));
    }

    pub(crate) fn leave(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        reason: OfflineReason,
        claim: Option<ReplyTo>,
    ) {
        self.change(core, id, channel, |client| AttendanceInput::Leave { client, reason }, claim);
    }

    /// Leaves every channel on purpose.
    pub(crate) fn leave_all(&mut self, core: &mut Core, id: ListenerId, reason: OfflineReason) {
        represent_by_another(self, core, id);
        for channel in present_or_joining(self, core, id) {
            self.leave(core, id, &channel, reason, None);
        }
    }

    /// Leaves the channels that only its former rights allowed it to join.
    pub(crate) fn end_revoked(&mut self, core: &mut Core, id: ListenerId, former: &Rights) {
        let Some(identity) = core.session(id).map(|session| session.identity.clone()) else { return };
        for channel in present_or_joining(self, core, id) {
            if has_lost(core, former, &identity, Verb::Join, channel.as_bytes()) {
                self.leave(core, id, &channel, OfflineReason::Left, None);
                tell(core, id, Verb::Join, "channel", &channel);
            }
        }
    }

    fn lose(&mut self, core: &mut Core, id: ListenerId, channel: &str, at: Time) {
        if let Some(loss) = loss_at(core, id, channel, at) {
            self.changes.begin(core, loss);
        }
    }

    /// The client is lost in one channel: its user is offline there after the grace period, unless a client comes back.
    pub(crate) fn lose_in(&mut self, core: &mut Core, id: ListenerId, channel: &str) {
        let Some(user) = key_user(core, id) else { return };
        let Some(session) = core.session_mut(id) else { return };
        if session.present.leave(channel).is_some() {
            session.alone.remove(channel);
            let client = session.client;
            self.lose_client(core, PresenceKey { channel: channel.into(), user }, client);
        }
    }

    fn change(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &str,
        input: impl FnOnce(ClientId) -> AttendanceInput,
        claim: Option<ReplyTo>,
    ) {
        if let Some(change) = change_of(core, id, channel, input, claim) {
            self.changes.begin(core, change);
        }
    }

    pub(crate) fn loss_is_due(&mut self, core: &mut Core, id: ListenerId) {
        let now = core.now;
        let settings = &core.node.settings;
        let (resume_ms, poll_idle_ms) = (settings.resume_ms, settings.poll_idle_ms);
        let Some(listener) = core.listeners.get_mut(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let waits = |s: &&mut Session| !s.present.is_empty() && !s.lost && !s.frozen && s.returning.is_none();
        let Some(session) = listener.session_mut().filter(waits) else {
            return;
        };
        let at = session.lost_at(poll_idle_ms);
        if now < at + session.window_ms.map_or(resume_ms, NonZeroU64::get) {
            return core.schedule_loss(id);
        }
        session.lost = true;
        represent_by_another(self, core, id);
        for channel in present(core, id) {
            self.lose(core, id, &channel, at);
        }
    }

    /// The session has a connection again: restores lost presences, with the state they had.
    pub(crate) fn come_back(&mut self, core: &mut Core, id: ListenerId) {
        let Some(session) = core.session_mut(id) else {
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

    /// The node continues under a new epoch: announces its live clients again.
    pub(crate) fn announce(&mut self, core: &mut Core) {
        let ids: Vec<ListenerId> = core.listeners.ids().collect();
        for id in ids {
            if core.session(id).is_some_and(|session| !session.frozen) {
                self.announce_session(core, id);
            }
        }
    }

    /// Announces a live client again wherever it is present.
    pub(crate) fn announce_session(&mut self, core: &mut Core, id: ListenerId) {
        let Some(session) = core.session(id).filter(|session| !session.lost) else { return };
        for (channel, state) in session.present.all() {
            self.join(core, id, &channel, state, None);
        }
    }

    /// Takes over the clients of a stopped or dead node.
    pub(crate) fn take_over(&mut self, core: &mut Core, presence: &PresenceRow, loss: AttendanceInput) {
        let change = PresenceChange::of(presence.key.clone(), PresenceAction::Input(loss));
        self.changes.begin(core, change);
    }

    /// A client whose session migrated to another node is lost, unless it is present under that node.
    pub(crate) fn lose_departed(
        &mut self,
        core: &mut Core,
        who: &Identity,
        client: ClientId,
        channel: &str,
        loss: ClientLoss,
    ) {
        let user = who.user.clone().unwrap_or_else(|| client.to_string().into());
        let key = PresenceKey { channel: channel.into(), user };
        let node = core.node.name.clone();
        let change =
            PresenceChange::of(key, PresenceAction::Input(AttendanceInput::LoseAt { client, node, loss }));
        self.changes.begin(core, change);
    }

    /// The session ends without a logout: its user may reconnect with another session.
    pub(crate) fn lose_all(&mut self, core: &mut Core, id: ListenerId) {
        represent_by_another(self, core, id);
        let now = core.now;
        let Some(listener) = core.listeners.get(id) else { return };
        let Some(session) = listener.session().filter(|session| !session.lost) else { return };
        let detached = listener.link.is_none().then(|| session.lost_at(core.node.settings.poll_idle_ms));
        let at = detached.unwrap_or(now);
        if let Some(session) = core.session_mut(id) {
            // Otherwise the losses would be those of a session that is still here.
            session.lost = true;
        }
        for channel in present(core, id) {
            self.lose(core, id, &channel, at);
        }
    }

    /// Makes a held presence follow its carrier.
    pub(crate) fn sync_held(&mut self, core: &mut Core, key: PresenceKey) {
        let change = sync_held(core, key, Vec::new());
        self.changes.begin(core, change);
    }

    /// An app removes a user from a channel.
    pub(crate) fn release(&mut self, core: &mut Core, key: PresenceKey, claim: ReplyTo) {
        let change = PresenceChange::of(key, PresenceAction::Release);
        self.changes.begin(core, PresenceChange { claim: Some(claim), ..change });
    }

    /// Handles a deadline that some node stored and that is overdue.
    pub(crate) fn is_due(&mut self, core: &mut Core, deadline: &Deadline) {
        let Some(key) = rows::presence_of(deadline) else { return };
        match &*deadline.kind == HOLD {
            true => self.sync_held(core, key),
            false => self.end_grace(core, key),
        }
    }

    /// The server joins each session to its user's own channel, unless enough others of the user are there.
    pub(crate) fn join_own(&mut self, core: &mut Core, id: ListenerId) {
        let Some(user) = core.user_of(id) else { return };
        let channel = own_channel(&user);
        let sessions = core.users.sessions(&user);
        let shown = sessions.iter().filter(|&&other| other != id && represents(core, other, &channel));
        let lost = core.session(id).is_none_or(|session| session.lost);
        if lost || is_present(core, id, &channel) || shown.take(OWN_CLIENTS).count() == OWN_CLIENTS {
            return;
        }
        if let Some(session) = core.session_mut(id) {
            session.present.enter(&channel, None);
        }
        self.join(core, id, &channel, None, None);
    }

    /// The visibility of a user was loaded: joins that waited for it continue.
    pub(crate) fn visibility_loaded(&mut self, core: &mut Core, user: &str) {
        for one in self.waiting_joins.remove(user).unwrap_or_default() {
            self.join(core, one.listener, &one.channel, one.state, one.claim);
        }
    }

    /// The visibility of a user could not be loaded: commands that wait for it are refused, other joins keep waiting.
    pub(crate) fn visibility_failed(&mut self, core: &mut Core, user: &Arc<str>, answer: &StoreAnswer) {
        let Some(put_off) = self.waiting_joins.get_mut(user) else { return };
        for one in put_off.extract_if(.., |one| one.claim.is_some()) {
            if let Some(claim) = one.claim {
                core.finish(claim, Err(refusal(answer)));
            }
        }
    }

    /// The visibility of a local user changed. Where else they are present is found with their own channel.
    pub(crate) fn sync_visibility(&mut self, core: &mut Core, user: &Arc<str>) {
        self.sync_visibility_in(core, PresenceKey { channel: own_channel(user), user: user.clone() });
    }

    /// The visibility of a user changed: they are shown in a channel as they want to be.
    pub(crate) fn sync_visibility_in(&mut self, core: &mut Core, key: PresenceKey) {
        self.changes.begin(core, PresenceChange::sync_visibility(key));
    }

    /// A client joined, but its session has ended since: it is lost from now on.
    pub(crate) fn lose_client(&mut self, core: &mut Core, key: PresenceKey, client: ClientId) {
        let now = core.now;
        let loss = ClientLoss {
            at: now,
            grace_ms: core.node.settings.grace_ms(&key.channel),
            reason: OfflineReason::Lost,
        };
        let node = core.node.name.clone();
        self.changes.begin(
            core,
            PresenceChange::of(key, PresenceAction::Input(AttendanceInput::LoseAt { client, node, loss })),
        );
    }

    pub(crate) fn end_grace(&mut self, core: &mut Core, key: PresenceKey) {
        self.changes.begin(core, PresenceChange::of(key, PresenceAction::Wake));
    }
}

/// The user under whom a session's client is present; an anonymous client is its own user.
fn key_user(core: &Core, id: ListenerId) -> Option<Arc<str>> {
    let session = core.session(id)?;
    Some(session.identity.user.clone().unwrap_or_else(|| session.client.to_string().into()))
}

fn is_present(core: &Core, id: ListenerId, channel: &str) -> bool {
    let session = core.session(id);
    session.is_some_and(|session| session.present.has(channel))
}

/// Whether a session is shown in a channel.
fn represents(core: &Core, id: ListenerId, channel: &str) -> bool {
    core.session(id).is_some_and(|session| !session.lost && !session.frozen && session.present.has(channel))
}

/// The user's own channel comes first: leaving the others is then not a status change.
fn present(core: &Core, id: ListenerId) -> Vec<Arc<str>> {
    let session = core.session(id);
    let mut channels: Vec<Arc<str>> =
        session.map(|session| session.present.channels().cloned().collect()).unwrap_or_default();
    channels.sort_by_key(|channel| !is_own_channel(channel));
    channels
}

/// The channels that its client is present in, and those it has only begun to join.
fn present_or_joining(presence: &Presence, core: &Core, id: ListenerId) -> Vec<Arc<str>> {
    let mut channels = present(core, id);
    let user = key_user(core, id);
    let begun = user.map(|user| presence.changes.channels_of(&user)).unwrap_or_default();
    channels.extend(begun.into_iter().filter(|channel| !is_present(core, id, channel)));
    channels
}

pub(super) fn change_of(
    core: &Core,
    id: ListenerId,
    channel: &str,
    input: impl FnOnce(ClientId) -> AttendanceInput,
    claim: Option<ReplyTo>,
) -> Option<PresenceChange> {
    let session = core.session(id)?;
    let user = session.identity.user.clone();
    let anonymous = user.is_none();
    let user = user.unwrap_or_else(|| session.client.to_string().into());
    let (name, action) = (session.identity.name.clone(), PresenceAction::Input(input(session.client)));
    let visibility = core.users.visibility(&user);
    let cached_membership = if is_own_channel(channel) { membership_in_cache(core, &user) } else { None };
    let key = PresenceKey { channel: channel.into(), user };
    Some(PresenceChange {
        name,
        anonymous,
        visibility,
        listener: Some(id),
        claim,
        cached_membership,
        ..PresenceChange::of(key, action)
    })
}

/// A session that is shown in its user's own channel ends: before it leaves, one that is not shown takes its
/// place.
fn represent_by_another(presence: &mut Presence, core: &mut Core, id: ListenerId) {
    let Some(user) = core.user_of(id) else { return };
    let channel = own_channel(&user);
    let sessions = core.users.sessions(&user);
    if sessions.len() <= 1 || !is_present(core, id, &channel) {
        return;
    }
    let hidden = |other: &&ListenerId| {
        **other != id
            && core
                .session(**other)
                .is_some_and(|session| !session.lost && !session.frozen && !session.present.has(&channel))
    };
    let connected = |other: &&ListenerId| core.listener(**other).is_some_and(|one| one.link.is_some());
    let mut others = sessions.iter().filter(hidden);
    let first = others.clone().find(connected).or_else(|| others.next()).copied();
    if let Some(other) = first {
        if let Some(session) = core.session_mut(other) {
            session.present.enter(&channel, None);
        }
        presence.join(core, other, &channel, None, None);
        core.schedule_loss(other);
    }
}

/// The cached membership of the user; the commit detects a stale one.
fn membership_in_cache(core: &Core, user: &Arc<str>) -> Option<Arc<MembershipRow>> {
    MembershipRow::read(core.cache.documents.get(&MembershipRow::key(user))?.as_ref()).ok().map(Arc::new)
}
