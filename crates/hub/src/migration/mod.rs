//! A session packed up to live on elsewhere: in the store while no node runs, or on another node. `leaving` and `coming`
//! are the two sides of a move between nodes, `seeking` and `stopping` how it begins, `moves` the book of all; why it is
//! safe is in `docs/adr/0008`.
//! Must hold: what a session has heard it does not hear again, and what it may have missed it is told.

mod coming;
mod leaving;
mod moves;
mod packed;
mod seeking;
mod stopping;

use crate::core::listener::{ListenerId, Who};
use crate::core::mailbox::{Bounds, Mailbox};
use crate::core::session::{Present, Session};
use crate::core::{Core, Marks, Notice, Watched};
use crate::event::{Event, Space};
use crate::settings::SlowReader;
pub(crate) use moves::Migration;
pub use moves::Sought;
pub use packed::{Packed, stored, unpacked};
use packed::{identity_of, told_of};
pub(crate) use packed::{pack, watched_by};
pub use seeking::Seeker;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::presence::State;
use tavern_engine::SessionBody;
use tavern_wire::json;
use tavern_wire::json::presence::meaning;

/// How long words that a session has heard elsewhere may still be under way to here.
const LATE_MS: u64 = 30_000;
impl Migration {
    /// Its client was here or elsewhere until now: its window begins now. Never for a client that was already away: a
    /// disconnect keeps its date.
    pub(crate) fn begin_window(&self, core: &mut Core, id: ListenerId) {
        let now = core.now;
        if let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut())
            && !session.polling
        {
            session.heard_at = session.heard_at.max(now);
        }
    }

    /// Whether a session is this node's own: not one that may be somebody else's already, or is not here yet.
    pub(crate) fn has(&self, core: &Core, id: ListenerId) -> bool {
        let session = core.listeners.get(id).and_then(|listener| listener.session());
        session.is_some_and(|session| {
            let leaving = self.leavings.get(&session.key.half()).filter(|leaving| leaving.id == id);
            !session.frozen || leaving.is_some_and(|leaving| !leaving.is_laid_down())
        })
    }

    /// Ends a session whose client is not lost by that.
    fn end_quietly(&mut self, core: &mut Core, id: ListenerId) {
        if let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.present.clear();
        }
        core.notify(Notice::SessionEnds { id });
    }

    /// The same for a session that lay in the store while nodes lived: what they published meanwhile nobody heard for it,
    /// and nobody knows whether anything was. It is told so.
    pub(crate) fn adopt_late(&mut self, core: &mut Core, watched: &dyn Watched, packed: &Packed) -> bool {
        if !self.adopt(core, watched, packed) {
            return false;
        }
        let Some(id) = core.find_held(packed.key) else { return false };
        for known in &packed.body.subscriptions {
            let (mut tail, name) = (Vec::new(), String::from_utf8_lossy(&known.name));
            match known.pattern {
                true => json::pattern_gap_tail(&mut tail, &name),
                false => json::channel_gap_tail(&mut tail, &name),
            }
            core.put_json(id, tail.into_boxed_slice());
        }
        true
    }

    /// Takes a packed session in, detached and listening. False: its time is over, or it is here already.
    pub(crate) fn adopt(&mut self, core: &mut Core, watched: &dyn Watched, packed: &Packed) -> bool {
        let now = core.now;
        if now >= packed.expires_at || core.find_held(packed.key).is_some() {
            return false;
        }
        // Whoever looks for it elsewhere finds it here.
        self.comings
            .contains_key(&packed.key.half())
            .then(|| self.fail(core, packed.key.half(), Sought::Here));
        let session = Session::new(packed.key, packed.client, identity_of(packed), packed.detached_at);
        let id = core.listeners.insert(Who::Session(Box::new(session)), None);
        let mut bases = BTreeMap::new();
        for subscription in &packed.body.subscriptions {
            let space = if subscription.pattern { Space::Pattern } else { Space::Channel };
            let node = core.node.clone();
            node.carrier.hold().carry(space, &subscription.name, None);
            core.subscribe(id, space, &subscription.name);
            if subscription.presence
                && let Ok(name) = std::str::from_utf8(&subscription.name)
            {
                node.carrier.hold().carry(Space::Presence, name.as_bytes(), None);
                core.subscribe(id, Space::Presence, name.as_bytes());
                let channel: Arc<str> = name.into();
                let told = told_of(&packed.body, &channel);
                match watched.base(&channel) {
                    Some(base) => drop(bases.insert(channel, base)),
                    None => {
                        self.unread.entry(channel.clone()).or_default().push((id, told));
                        core.notify(Notice::ChannelStale { channel });
                    }
                }
            }
        }
        self.settle_in(core, id, packed, bases);
        true
    }

    /// The session is this node's now: what it missed follows what it had, and its client is vouched for here.
    fn settle_in(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        packed: &Packed,
        bases: BTreeMap<Arc<str>, u64>,
    ) {
        let now = core.now;
        let body = &packed.body;
        let marks = Marks { streams: body.heard.clone(), told: body.told.clone(), until: now + LATE_MS };
        let mailbox = self.unpack_mailbox(core, body);
        let Some(listener) = core.listeners.get_mut(id) else { return };
        let ahead = std::mem::replace(&mut listener.mailbox, mailbox);
        let mut session = Session::new(packed.key, packed.client, identity_of(packed), packed.detached_at);
        session.window_ms = (body.window_ms > 0).then_some(body.window_ms);
        (session.polling, session.lost) = (body.polling, body.lost);
        (session.letters, session.post) = (body.letters, body.post.iter().copied().collect());
        listener.who = Who::Session(Box::new(session));
        listener.marks = Some(Box::new(marks));
        core.sessions.insert(packed.key.half(), id);
        core.add_user_session(id);
        core.notify(Notice::SessionOpened { id, adopted: true });
        core.notify(Notice::StatusesMoved { id, told: body.statuses.clone() });
        for (channel, base) in bases {
            self.tell_hole(core, id, &channel, told_of(body, &channel), base);
        }
        self.append_ahead(core, id, &ahead);
        self.come_home(core, id, body);
    }

    /// What was collected here before the session came, without what it had heard already.
    fn append_ahead(&mut self, core: &mut Core, id: ListenerId, ahead: &Mailbox) {
        let settings = &core.node.settings;
        let bounds = Bounds { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
        let Some(listener) = core.listeners.get_mut(id) else { return };
        if ahead.first() > 1 {
            // More came than is kept; what the session had before is older still.
            let sent = listener.mailbox.sent();
            listener.mailbox = Mailbox::after(listener.mailbox.last() + ahead.first() - 1, sent);
        }
        let marks = listener.marks.take();
        for event in (0..ahead.len()).filter_map(|index| ahead.front(index)) {
            if !marks.as_ref().is_some_and(|marks| marks.covers(event)) {
                listener.mailbox.push(event.clone(), bounds);
            }
        }
        listener.marks = marks;
    }

    /// The same client under a new home: nobody is told anything. One whose loss was told stays lost.
    fn come_home(&mut self, core: &mut Core, id: ListenerId, body: &SessionBody) {
        let state = |text: &Arc<str>| State { text: text.clone(), meaning: meaning(text) };
        let present =
            body.presences.iter().map(|(channel, text)| (channel.clone(), text.as_ref().map(state)));
        let present: Present = present.collect();
        let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        session.present = present;
        if session.lost {
            return;
        }
        for (channel, state) in session.present.all() {
            core.notify(Notice::PresenceMoved { id, channel, state });
        }
        core.schedule_loss(id);
    }

    /// A watcher was told up to one version and will be told from another on: if something lies between, it hears so.
    fn tell_hole(&mut self, core: &mut Core, id: ListenerId, channel: &str, told: u64, base: u64) {
        if told < base {
            let mut tail = Vec::new();
            json::channel_gap_tail(&mut tail, channel);
            core.put_json(id, tail.into_boxed_slice());
        }
    }

    /// Everything kept is unread again: the client says how far it got when it comes back.
    fn unpack_mailbox(&self, core: &Core, body: &SessionBody) -> Mailbox {
        let now = core.now;
        // It had room where it was; the same events may be a little larger here.
        let bounds = Bounds { events: core.node.settings.mailbox_events, bytes: usize::MAX };
        let before = body.events.first().map_or(body.last_seq, |event| event.seq - 1);
        let mut mailbox = Mailbox::after(before, before);
        for stored in &body.events {
            mailbox.push(Event::json((*stored.event).into(), now, SlowReader::Gap, &core.pool), bounds);
        }
        mailbox
    }
}
