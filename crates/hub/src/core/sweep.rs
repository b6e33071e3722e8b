//! The periodic sweep of a shard: expired tokens and sessions, old history, the memory of all mailboxes.
//! An idle session owns no timer: the sweep visits all listeners each second, in small pieces.

use crate::core::attach;
use crate::core::listener::ListenerId;
use crate::core::publish::{heal_gap, overflowed};
use crate::core::{Core, Notice};
use crate::settings::SlowReader;
use tavern_domain::{Time, limits};

/// Pieces per round of the sweep, and the time between two of them.
const PIECES: u32 = 8;
const PIECE_MS: u64 = 125;

pub struct Sweeper {
    next: u32,
    due: Time,
    /// Above this many bytes of events, memory is freed at once.
    pub relieve_above: usize,
    round: SweepCounts,
}

#[derive(Default)]
struct SweepCounts {
    sessions: u64,
    detached: u64,
    redis: u64,
    events: u64,
    bytes: u64,
    parked: u64,
}

impl Sweeper {
    pub fn new(now: Time, budget: usize) -> Sweeper {
        Sweeper { next: 0, due: now + PIECE_MS, relieve_above: budget, round: SweepCounts::default() }
    }
}

/// The earliest time at which the sweep has work.
pub(crate) fn next_wake(core: &Core) -> Option<Time> {
    let sweep = (!core.listeners.is_empty()).then_some(core.sweeper.due);
    [sweep, core.agenda.next_wake(), core.replies.next_deadline()].into_iter().flatten().min()
}

/// Whether the next piece of the sweep is due.
pub(crate) fn is_due(core: &Core) -> bool {
    core.now >= core.sweeper.due
}

pub(crate) fn next_piece(core: &mut Core) {
    let now = core.now;
    core.sweeper.due = now + PIECE_MS;
    let span = core.listeners.span();
    let piece = span.div_ceil(PIECES).max(64);
    let end = (core.sweeper.next + piece).min(span);
    for index in core.sweeper.next..end {
        if let Some(id) = core.listeners.id_at(index) {
            check_listener(core, id);
        }
    }
    core.sweeper.next = end;
    if end >= span {
        end_round(core);
    }
}

fn end_round(core: &mut Core) {
    let now = core.now;
    let mut round = std::mem::take(&mut core.sweeper.round);
    core.sweeper.next = 0;
    core.sweeper.relieve_above = core.node.budget_bytes();
    for log in core.routing.logs().into_iter().filter_map(|route| core.routing.log(route)) {
        round.events += log.len() as u64;
        round.bytes += log.bytes() as u64;
    }
    core.stats.sessions.set(round.sessions);
    core.stats.sessions_detached.set(round.detached);
    core.stats.redis_listeners.set(round.redis);
    core.stats.mailbox_events.set(round.events);
    core.stats.mailbox_bytes.set(round.bytes);
    core.stats.polls_parked.set(round.parked);
    core.stats.event_bytes.set(core.event_memory.bytes() as u64);
    core.authorizer.forget_old(now);
}

fn check_listener(core: &mut Core, id: ListenerId) {
    let now = core.now;
    let sent_ms = core.node.settings.mailbox_sent_ms;
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let round = &mut core.sweeper.round;
    round.events += listener.mailbox.len() as u64;
    round.bytes += listener.mailbox.bytes() as u64;
    if listener.is_redis() {
        round.redis += 1;
        listener.mailbox.release();
        return;
    }
    listener.mailbox.forget_sent(now - sent_ms);
    if listener.received_elsewhere.as_ref().is_some_and(|marks| marks.until <= now) {
        listener.received_elsewhere = None;
    }
    let link = listener.link;
    let Some(session) = listener.session() else { return };
    round.sessions += 1;
    round.detached += u64::from(link.is_none());
    round.parked += u64::from(session.parked_until.is_some());
    if session.frozen {
        return;
    }
    if session.is_replaced() {
        core.stats.sessions_replaced.add(1);
        return core.notify(Notice::SessionEnds { id });
    }
    attach::note_idle(core, id);
    let Some(session) = core.session(id) else { return };
    let user = session.identity.user.as_deref();
    if let Some(reason) = core.node.blocks.end_of(user, Some(session.client), session.since, now) {
        core.notify(Notice::SessionBlocked { id, reason });
    } else if let Some(reason) = core.node.credential_end(&session.identity, now) {
        if let Some(link) = link {
            core.effects.closes.push((link.id, reason));
        }
        core.stats.sessions_expired.add(1);
        core.notify(Notice::SessionEnds { id });
    } else if link.is_none() && session.returning.is_none() && now >= session_expires_at(core, id) {
        core.stats.sessions_expired.add(1);
        core.notify(Notice::SessionEnds { id });
    }
}

/// When a detached session is deleted: the longest grace period of its channels and a margin.
pub fn session_expires_at(core: &Core, id: ListenerId) -> Time {
    let Some(listener) = core.listeners.get(id) else { return Time::NEVER };
    let Some(session) = listener.session() else { return Time::NEVER };
    let graces = listener.subscriptions.keys().map(|&place| core.routing.place(place).rules.grace_ms);
    let grace = graces.max().unwrap_or(core.node.settings.other_kinds.grace_ms);
    session.lost_at(core.node.settings.poll_idle_ms) + grace + limits::EXPIRY_MARGIN_MS
}

/// All mailboxes together are too large: frees sent events first, then shrinks mailboxes above their fair share.
#[cold]
pub(crate) fn relieve(core: &mut Core) {
    let budget = core.node.budget_bytes();
    let ids: Vec<ListenerId> = core.listeners.ids().collect();
    for &id in &ids {
        if let Some(listener) = core.listeners.get_mut(id)
            && !listener.is_redis()
        {
            listener.mailbox.forget_sent(Time::NEVER);
        }
    }
    let holders = ids.iter().filter(|&&id| core.listener(id).is_some_and(|l| !l.mailbox.is_empty())).count();
    let logs = core.routing.logs();
    let mut share = budget / (holders + logs.len()).max(1);
    // Events are shared, so a fair share of references may still hold too many bytes: halve until it fits.
    while core.event_memory.bytes() > budget && share > 0 {
        for &id in &ids {
            shrink(core, id, share);
        }
        for &route in &logs {
            let dropped = core.routing.place_mut(route).log_mut().map_or(0, |(log, _)| log.shrink_to(share));
            core.stats.dropped_budget.add(dropped as u64);
        }
        share /= 2;
    }
    // Events that cannot be freed are in flight: trying again at every message would not help.
    core.sweeper.relieve_above = budget.max(core.event_memory.bytes() + budget / 8);
}

fn shrink(core: &mut Core, id: ListenerId, share: usize) {
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let dropped = listener.mailbox.shrink_to(share);
    if dropped > 0 {
        core.stats.dropped_budget.add(dropped as u64);
        heal_gap(core, id);
        overflowed(core, id.index, 0, SlowReader::Gap);
    }
}
