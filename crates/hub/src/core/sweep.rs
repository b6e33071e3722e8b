//! What a shard looks after by itself: expired tokens and sessions, old history, the memory of all mailboxes.
//! An idle session owns no timer: the sweep passes over all listeners in small pieces, all of them each second.

use crate::connection::Goodbye;
use crate::core::listener::ListenerId;
use crate::core::{Core, Notice};
use crate::settings::SlowReader;
use tavern_domain::{Time, limits};

/// Pieces a round of the sweep is cut into, and the time between two of them.
const PIECES: u32 = 8;
const PIECE_MS: u64 = 125;

pub struct Sweeper {
    next: u32,
    due: Time,
    /// Above this many bytes of events, memory is freed at once.
    pub relieve_above: usize,
    round: Round,
}

#[derive(Default)]
struct Round {
    sessions: u64,
    detached: u64,
    redis: u64,
    events: u64,
    bytes: u64,
    parked: u64,
}

impl Sweeper {
    pub fn new(now: Time, budget: usize) -> Sweeper {
        Sweeper { next: 0, due: now + PIECE_MS, relieve_above: budget, round: Round::default() }
    }
}

impl Core {
    /// When to be woken.
    pub(crate) fn next_wake(&self) -> Option<Time> {
        let sweep = (!self.listeners.is_empty()).then_some(self.sweeper.due);
        [sweep, self.agenda.next_wake()].into_iter().flatten().min()
    }

    /// Whether the next piece of the sweep is due.
    pub(crate) fn sweep_is_due(&self) -> bool {
        self.now >= self.sweeper.due
    }

    pub(crate) fn sweep_piece(&mut self) {
        let now = self.now;
        self.sweeper.due = now + PIECE_MS;
        let span = self.listeners.span();
        let piece = span.div_ceil(PIECES).max(64);
        let end = (self.sweeper.next + piece).min(span);
        for index in self.sweeper.next..end {
            if let Some(id) = self.listeners.id_at(index) {
                self.sweep_one(id);
            }
        }
        self.sweeper.next = end;
        if end >= span {
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        let now = self.now;
        let round = std::mem::take(&mut self.sweeper.round);
        self.sweeper.next = 0;
        self.sweeper.relieve_above = self.node.budget_bytes();
        self.stats.sessions.set(round.sessions);
        self.stats.sessions_detached.set(round.detached);
        self.stats.redis_listeners.set(round.redis);
        self.stats.mailbox_events.set(round.events);
        self.stats.mailbox_bytes.set(round.bytes);
        self.stats.polls_parked.set(round.parked);
        self.stats.event_bytes.set(self.pool.bytes() as u64);
        self.answers.forget_old(now);
    }

    fn sweep_one(&mut self, id: ListenerId) {
        let now = self.now;
        let sent_ms = self.node.settings.mailbox_sent_ms;
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let round = &mut self.sweeper.round;
        round.events += listener.mailbox.len() as u64;
        round.bytes += listener.mailbox.bytes() as u64;
        if listener.is_redis() {
            round.redis += 1;
            listener.mailbox.release();
            return;
        }
        listener.mailbox.forget_sent(now - sent_ms);
        if listener.marks.as_ref().is_some_and(|marks| marks.until <= now) {
            listener.marks = None;
        }
        let link = listener.link;
        let Some(session) = listener.session() else { return };
        round.sessions += 1;
        round.detached += u64::from(link.is_none());
        round.parked += u64::from(session.parked_until.is_some());
        if session.frozen {
            return;
        }
        if now >= session.identity.expires {
            if let Some(link) = link {
                self.effects.closes.push((link.id, Goodbye::TokenExpired));
            }
            self.stats.sessions_expired.add(1);
            self.notify(Notice::SessionEnds { id });
        } else if link.is_none() && now >= self.session_expires_at(id) {
            self.stats.sessions_expired.add(1);
            self.notify(Notice::SessionEnds { id });
        }
    }

    /// When a session without a transport is forgotten: the longest grace of its channels and a margin.
    pub fn session_expires_at(&self, id: ListenerId) -> Time {
        let Some(listener) = self.listeners.get(id) else { return Time::NEVER };
        let Some(session) = listener.session() else { return Time::NEVER };
        let graces = listener.places.keys().map(|&place| self.roster.place(place).rules.grace_ms);
        let grace = graces.max().unwrap_or(self.node.settings.other_kinds.grace_ms);
        session.lost_at(self.node.settings.poll_idle_ms) + grace + limits::EXPIRY_MARGIN_MS
    }

    /// All mailboxes together are too large: sent history pays first, then mailboxes above their fair share.
    #[cold]
    pub(crate) fn relieve(&mut self) {
        let budget = self.node.budget_bytes();
        let ids: Vec<ListenerId> = self.listeners.ids().collect();
        for &id in &ids {
            if let Some(listener) = self.listeners.get_mut(id)
                && !listener.is_redis()
            {
                listener.mailbox.forget_sent(Time::NEVER);
            }
        }
        let holders =
            ids.iter().filter(|&&id| self.listener(id).is_some_and(|l| !l.mailbox.is_empty())).count();
        let mut share = budget / holders.max(1);
        // Events are shared, so a fair share of references may still hold too many bytes: halve until it fits.
        while self.pool.bytes() > budget && share > 0 {
            for &id in &ids {
                self.shrink(id, share);
            }
            share /= 2;
        }
        // What cannot be freed is in flight; looking again at every message would help nobody.
        self.sweeper.relieve_above = budget.max(self.pool.bytes() + budget / 8);
    }

    fn shrink(&mut self, id: ListenerId, share: usize) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let dropped = listener.mailbox.shrink_to(share);
        if dropped > 0 {
            self.stats.dropped_budget.add(dropped as u64);
            self.overflowed(id.index, 0, SlowReader::Gap);
        }
    }
}
