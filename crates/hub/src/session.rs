//! A session: who a client is, what it may do, how it comes back. It outlives its transport.
//! Knows no sockets; the mailbox and the places it listens to are with its `Listener`.

use crate::people::is_own_channel;
use std::sync::Arc;
use tavern_domain::presence::State;
use tavern_domain::rate::{Allowance, Bucket};
use tavern_domain::{ClientId, Identity, SessionKey, Time};

#[derive(Debug)]
pub struct Session {
    pub key: SessionKey,
    pub client: ClientId,
    pub identity: Identity,
    pub since: Time,
    /// The last sign of life while no push transport is attached: a poll, a command, the moment of detaching.
    pub heard_at: Time,
    /// It was reached by polls and commands, which come and go: silence counts only after `poll_idle_ms`.
    pub polling: bool,
    /// A parked poll answers empty at this moment.
    pub parked_until: Option<Time>,
    /// The channels its client is present in, with the state it gave there.
    pub present: Present,
    /// How long it may be without a transport before it is lost, when that is not `resume_ms`: it waited in the store.
    pub window_ms: Option<u64>,
    /// Its loss was told, or is on its way: coming back is an arrival.
    pub lost: bool,
    /// It is on its way to or from another node: nothing is done for it and nothing is decided about it.
    pub frozen: bool,
    bucket: Bucket,
    /// Refused commands in a row.
    strikes: u16,
}

/// The channels that a client is present in, with the state it gave there. Few, so a list.
#[derive(Debug, Default)]
pub struct Present(Vec<(Arc<str>, Option<State>)>);

impl Present {
    /// Without a state an earlier one stays.
    pub fn enter(&mut self, channel: &Arc<str>, state: Option<State>) {
        match self.0.binary_search_by(|(known, _)| known.cmp(channel)) {
            Ok(at) if state.is_some() => self.0[at].1 = state,
            Ok(_) => {}
            Err(at) => self.0.insert(at, (channel.clone(), state)),
        }
    }

    pub fn leave(&mut self, channel: &str) {
        if let Ok(at) = self.0.binary_search_by(|(known, _)| (**known).cmp(channel)) {
            self.0.remove(at);
        }
    }

    pub fn has(&self, channel: &str) -> bool {
        self.0.binary_search_by(|(known, _)| (**known).cmp(channel)).is_ok()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many it joined itself: its user's own channel is the server's doing.
    pub fn joined(&self) -> usize {
        self.0.iter().filter(|(channel, _)| !is_own_channel(channel)).count()
    }

    pub fn channels(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(channel, _)| channel)
    }

    pub fn all(&self) -> Vec<(Arc<str>, Option<State>)> {
        self.0.clone()
    }

    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

impl FromIterator<(Arc<str>, Option<State>)> for Present {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Option<State>)>>(all: I) -> Present {
        let mut present = Present::default();
        all.into_iter().for_each(|(channel, state)| present.enter(&channel, state));
        present
    }
}

/// Refusals in a row after which a connection is closed: a client that hears "no" this often is not listening.
pub const STRIKES_MAX: u16 = 1000;

impl Session {
    pub fn new(key: SessionKey, client: ClientId, identity: Identity, now: Time) -> Session {
        Session {
            key,
            client,
            identity,
            since: now,
            heard_at: now,
            polling: false,
            parked_until: None,
            present: Present::default(),
            window_ms: None,
            lost: false,
            frozen: false,
            bucket: Bucket::default(),
            strikes: 0,
        }
    }

    /// Takes one command from the allowance, or tells when to try again.
    pub fn take_command(&mut self, now: Time, per_second: u32) -> Result<(), u64> {
        if self.identity.unlimited || per_second == 0 {
            return Ok(());
        }
        self.bucket.take(now, Allowance { per_second, burst: per_second.saturating_mul(2) })
    }

    /// Counts a refusal; true when it was one too many.
    pub fn strike(&mut self) -> bool {
        self.strikes = self.strikes.saturating_add(1);
        self.strikes >= STRIKES_MAX
    }

    pub fn behave(&mut self) {
        self.strikes = 0;
    }

    /// Since when nobody is there, for a session without a transport.
    pub fn lost_at(&self, poll_idle_ms: u64) -> Time {
        if self.polling { self.heard_at + poll_idle_ms } else { self.heard_at }
    }
}
