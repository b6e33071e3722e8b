//! Installs a session that this node got from another node or from the store: mailbox, identity, presence.
//! Must hold: events that the session already has are not added again; events that may be missing are announced as a
//! gap.

use super::forward::forward_due;
use super::packed::PackedSession;
use crate::core::detached;
use crate::core::listener::{ListenerId, ListenerKind};
use crate::core::mailbox::{DroppedHistory, Mailbox, MailboxLimits};
use crate::core::session::{JoinedChannels, Session};
use crate::core::{Core, Notice, ReceivedElsewhere};
use crate::event::Event;
use crate::settings::SlowReader;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use tavern_domain::HistoryPosition;
use tavern_domain::presence::ClientState;
use tavern_store::SessionBody;
use tavern_wire::json;
use tavern_wire::json::presence::state_digest;

/// How long bus messages that the session received on its old node may still arrive here.
const DUPLICATES_MS: u64 = 30_000;

/// Turns the listener `id`, which is already subscribed, into the packed session. `bases`: for each watched channel,
/// the version after which this node sends changes.
pub(super) fn install(
    core: &mut Core,
    id: ListenerId,
    packed: &PackedSession,
    bases: BTreeMap<Arc<str>, u64>,
) {
    let now = core.now;
    let body = &packed.body;
    let marks = ReceivedElsewhere {
        streams: body.bus_positions.clone(),
        presence_versions: body.presence_versions.clone(),
        until: now + DUPLICATES_MS,
    };
    let mailbox = restore_mailbox(core, body);
    detached::leave_logs(core, id);
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let collected = std::mem::replace(&mut listener.mailbox, mailbox);
    let mut session = Session::new(packed.key, packed.client, packed.identity(), packed.detached_at);
    session.since = body.since;
    session.forward_due = forward_due(packed.expires_at);
    session.window_ms = NonZeroU64::new(body.window_ms);
    (session.polling, session.lost) = (body.polling, body.lost);
    session.last_inbox_message = body.last_inbox_message;
    let unacked: VecDeque<_> = body.unacked_inbox.iter().copied().collect();
    session.unacked_inbox = (!unacked.is_empty()).then(|| Box::new(unacked));
    session.slot = core.node.session_slots.adopt(&session.identity);
    listener.kind = ListenerKind::Session(Box::new(session));
    listener.received_elsewhere = Some(Box::new(marks));
    core.sessions.insert(packed.key.half(), id);
    core.add_user_session(id);
    core.notify(Notice::SessionOpened { id });
    core.notify(Notice::StatusesMoved { id, known: body.statuses.clone() });
    for (channel, base) in bases {
        add_presence_gap(core, id, &channel, packed.presence_version(&channel), base);
    }
    append_collected(core, id, &collected, &body.history);
    for (channel, position) in &body.history {
        let (channel, position) = (channel.clone(), *position);
        core.notify(Notice::HistoryBrought { id, channel, position });
    }
    restore_presence(core, id, body);
}

/// The whole mailbox is unread again: the client sends its cursor when it resumes.
fn restore_mailbox(core: &Core, body: &SessionBody) -> Mailbox {
    // No limit in bytes: it was within the limits of its old node, and the same events may be a little larger here.
    let bounds = MailboxLimits { events: core.node.settings.mailbox_events, bytes: usize::MAX };
    let before = body.events.first().map_or(body.last_seq, |event| event.seq - 1);
    let dropped = DroppedHistory::restore(body.dropped.iter().cloned());
    let mut mailbox = Mailbox::after(before, before).with_dropped(dropped);
    for stored in &body.events {
        let (tail, pool) = ((*stored.event).into(), &core.event_memory);
        let event = match &stored.place {
            Some(place) => Event::brought(tail, core.now, place.clone(), pool),
            None => Event::json(tail, core.now, SlowReader::Gap, pool),
        };
        mailbox.push(event, bounds);
    }
    // The client may have received all of them.
    mailbox.mark_handed(mailbox.last());
    mailbox
}

/// Adds the events that were collected here before the session arrived, without those it already has.
fn append_collected(
    core: &mut Core,
    id: ListenerId,
    collected: &Mailbox,
    history: &[(Arc<str>, HistoryPosition)],
) {
    let settings = &core.node.settings;
    let bounds = MailboxLimits { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
    let Some(listener) = core.listeners.get_mut(id) else { return };
    if collected.first() > 1 {
        // More events were collected than fit. The events from the old node are older still: drop them too.
        listener.mailbox.skip(collected.first() - 1);
    }
    let marks = listener.received_elsewhere.take();
    for event in collected.events() {
        if is_recovered(event, history) {
            continue;
        }
        let rest = match &marks {
            Some(marks) => marks.remainder(event, core.now, &core.event_memory),
            None => Some(event.clone()),
        };
        if let Some(event) = rest {
            listener.mailbox.push(event, bounds);
        }
    }
    listener.received_elsewhere = marks;
}

/// Messages after the position of the session are read from the history of their channel. Whether some of them are missing
/// is found out then: what was collected here may begin before the position.
fn is_recovered(event: &Event, history: &[(Arc<str>, HistoryPosition)]) -> bool {
    let channel = match event.history() {
        Some(_) => event.channel(),
        None => event.gap_channel().map(str::as_bytes),
    };
    history.iter().any(|(name, _)| channel == Some(name.as_bytes()))
}

/// Announces the client under this node, which watchers do not notice. A client that was reported lost stays lost.
fn restore_presence(core: &mut Core, id: ListenerId, body: &SessionBody) {
    let state = |text: &Arc<str>| ClientState { text: text.clone(), digest: state_digest(text) };
    let present = body.presences.iter().map(|(channel, text)| (channel.clone(), text.as_ref().map(state)));
    let present: JoinedChannels = present.collect();
    let Some(session) = core.session_mut(id) else { return };
    session.present = present;
    if session.lost {
        return;
    }
    for (channel, state) in session.present.all() {
        core.notify(Notice::PresenceMoved { id, channel, state });
    }
    core.schedule_loss(id);
}

/// The client has a watched channel up to version `known` and gets its changes from `base` on: those in between are a
/// gap.
pub(super) fn add_presence_gap(core: &mut Core, id: ListenerId, channel: &str, known: u64, base: u64) {
    if known < base {
        let mut tail = Vec::new();
        json::channel_gap_tail(&mut tail, channel);
        core.put_json(id, tail.into_boxed_slice());
    }
}

/// Adds a gap for every subscription.
pub(super) fn add_gaps(core: &mut Core, id: ListenerId, body: &SessionBody) {
    let is_recovered = |name: &[u8]| body.history.iter().any(|(channel, _)| channel.as_bytes() == name);
    for subscription in &body.subscriptions {
        if is_recovered(&subscription.name) {
            continue;
        }
        let (mut tail, name) = (Vec::new(), String::from_utf8_lossy(&subscription.name));
        match subscription.pattern {
            true => json::pattern_gap_tail(&mut tail, &name),
            false => json::channel_gap_tail(&mut tail, &name),
        }
        core.put_json(id, tail.into_boxed_slice());
    }
}
