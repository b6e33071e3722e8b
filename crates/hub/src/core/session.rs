//! A session: the identity of a client, its rights, how it resumes. It outlives its connections.
//! Knows no sockets; the mailbox and the subscriptions are in its `Listener`.

use crate::connection::LinkId;
use crate::node::session_slots::SessionSlot;
use crate::user::is_own_channel;
use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::Arc;
use tavern_domain::presence::ClientState;
use tavern_domain::rate::{Allowance, Bucket};
use tavern_domain::{ClientId, Identity, SessionKey, Sorted, Time};

#[derive(Debug)]
pub struct Session {
    pub key: SessionKey,
    pub client: ClientId,
    pub identity: Identity,
    pub since: Time,
    /// The last sign of life: of its connection, a poll, a command, or the moment of detaching.
    pub active_at: Time,
    /// It is served by polls and single commands, which are short: it counts as lost only after `poll_idle_ms`.
    pub polling: bool,
    /// When a parked poll times out.
    pub parked_until: Option<Time>,
    /// The channels its client is present in, with the state it set there.
    pub present: JoinedChannels,
    /// The channels where its client is the only presence of its user, with the version of that presence and its
    /// start: leaving them needs no read.
    pub alone: Sorted<Arc<str>, (u64, Time)>,
    /// How long it may be detached before it is lost, if that is not `resume_ms`: it waited in the store.
    pub window_ms: Option<NonZeroU64>,
    /// Its loss was committed, or is being committed: a resume joins its channels again.
    pub lost: bool,
    /// A hello on this connection waits for its reply and then attaches it: until then the session is not lost.
    pub returning: Option<LinkId>,
    /// It is migrating to or from another node: its commands wait and no new change starts.
    pub frozen: bool,
    /// The highest id of an inbox message that was put into its mailbox.
    pub last_inbox_message: u64,
    /// The unacknowledged inbox messages in its mailbox: `(seq, message_id)`. None: there are none, as in most sessions.
    pub unacked_inbox: Option<Box<VecDeque<(u64, u64)>>>,
    /// When its forward is deleted, if it moved here: zero otherwise.
    pub forward_due: Time,
    /// Its slot among the sessions of its user; None: there is no limit.
    pub(crate) slot: Option<Arc<SessionSlot>>,
    /// It counts among the sessions of this node.
    pub(crate) counted: bool,
    bucket: Bucket,
    /// Refused commands in a row.
    refusals: u16,
}

/// The channels that a client is present in, with the state it set there.
#[derive(Debug, Default)]
pub struct JoinedChannels(Sorted<Arc<str>, Option<ClientState>>);

impl JoinedChannels {
    /// Without a state the earlier one is kept.
    pub fn enter(&mut self, channel: &Arc<str>, state: Option<ClientState>) {
        let known = self.0.or_default(channel.clone());
        if state.is_some() {
            *known = state;
        }
    }

    /// Returns the state it had there, if it was present.
    pub fn leave(&mut self, channel: &str) -> Option<Option<ClientState>> {
        self.0.remove(channel)
    }

    pub fn state(&self, channel: &str) -> Option<&Option<ClientState>> {
        self.0.get(channel)
    }

    pub fn has(&self, channel: &str) -> bool {
        self.0.contains_key(channel)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many channels it joined itself: the user's own channel, which the server joins, is not counted.
    pub fn joined(&self) -> usize {
        self.channels().filter(|channel| !is_own_channel(channel)).count()
    }

    pub fn channels(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    pub fn all(&self) -> Vec<(Arc<str>, Option<ClientState>)> {
        self.0.iter().map(|(channel, state)| (channel.clone(), state.clone())).collect()
    }

    pub fn clear(&mut self) {
        self.0 = Sorted::new();
    }
}

impl FromIterator<(Arc<str>, Option<ClientState>)> for JoinedChannels {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Option<ClientState>)>>(all: I) -> JoinedChannels {
        let mut present = JoinedChannels::default();
        all.into_iter().for_each(|(channel, state)| present.enter(&channel, state));
        present
    }
}

/// Refusals in a row after which a connection is closed: such a client ignores its replies.
pub const REFUSALS_MAX: u16 = 1000;

impl Session {
    pub fn new(key: SessionKey, client: ClientId, identity: Identity, now: Time) -> Session {
        Session {
            key,
            client,
            identity,
            since: now,
            active_at: now,
            polling: false,
            forward_due: Time::ZERO,
            parked_until: None,
            present: JoinedChannels::default(),
            alone: Sorted::new(),
            window_ms: None,
            lost: false,
            returning: None,
            frozen: false,
            last_inbox_message: 0,
            unacked_inbox: None,
            slot: None,
            counted: false,
            bucket: Bucket::default(),
            refusals: 0,
        }
    }

    /// Takes one command from the rate limit, or returns when to try again.
    pub fn take_command(&mut self, now: Time, per_second: u32) -> Result<(), u64> {
        if self.identity.unlimited || per_second == 0 {
            return Ok(());
        }
        self.bucket.take(now, Allowance::with_burst(per_second))
    }

    /// Its slot was given to a newer session of the same user.
    pub(crate) fn is_replaced(&self) -> bool {
        self.slot.as_ref().is_some_and(|slot| slot.is_replaced())
    }

    /// Counts a refusal; true when it was one too many.
    pub fn count_refusal(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS_MAX
    }

    pub fn clear_refusals(&mut self) {
        self.refusals = 0;
    }

    /// Since when the client counts as lost, for a detached session.
    pub fn lost_at(&self, poll_idle_ms: u64) -> Time {
        if self.polling { self.active_at + poll_idle_ms } else { self.active_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size class of the allocator: one byte more costs the next class, for every session.
    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Session>() <= 256);
    }
}
