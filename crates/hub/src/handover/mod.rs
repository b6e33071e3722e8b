//! A session packed up to live on elsewhere: in the store while no node runs, or on another node. `leaving` and `coming`
//! are the two sides of a move between nodes, `seeking` and `stopping` how it begins, `moves` the book of all; why it is
//! safe is in `docs/adr/0008`.
//! Must hold: what a session has heard it does not hear again, and what it may have missed it is told.

mod coming;
mod leaving;
mod moves;
mod seeking;
mod stopping;

use crate::event::{Event, Space};
use crate::goodbye::Goodbye;
use crate::listener::{ListenerId, Who};
use crate::mailbox::{Bounds, Mailbox};
use crate::session::{Present, Session};
use crate::settings::SlowReader;
use crate::shard::Shard;
pub use moves::{Marks, Moves, Sought};
pub use seeking::Seeker;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::presence::State;
use tavern_domain::{ClientId, Identity, SessionKey, Time};
use tavern_engine::body::{BodyError, StoredEvent, Subscription};
use tavern_engine::{SessionBody, StoredSession, Writer, limits};
use tavern_wire::json;
use tavern_wire::json::presence::meaning;

/// How long words that a session has heard elsewhere may still be under way to here.
const LATE_MS: u64 = 30_000;
/// What a packed mailbox may hold at most: the row that carries it has a bound. Older events go, and are told as a gap.
const EVENTS_BYTES: usize = limits::BODY_BYTES / 2;

#[derive(Clone, Debug)]
pub struct Packed {
    pub key: SessionKey,
    pub client: ClientId,
    pub user: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
    pub detached_at: Time,
    /// When it is forgotten if nobody comes back for it.
    pub expires_at: Time,
    pub body: SessionBody,
}

/// A packed session as it lies in the store.
pub fn stored(packed: &Packed, owner: &Writer) -> StoredSession {
    StoredSession {
        client: packed.client,
        secret: packed.key,
        user: packed.user.clone(),
        name: packed.name.clone(),
        owner: owner.clone(),
        body: packed.body.encode().into(),
        detached_at: Some(packed.detached_at),
        expires_at: packed.expires_at,
    }
}

/// A session that was found in the store.
pub fn unpacked(stored: StoredSession, now: Time) -> Result<Packed, BodyError> {
    Ok(Packed {
        key: stored.secret,
        client: stored.client,
        user: stored.user,
        name: stored.name,
        detached_at: stored.detached_at.unwrap_or(now),
        expires_at: stored.expires_at,
        body: SessionBody::decode(&stored.body)?,
    })
}

impl Shard {
    /// Takes every session out, its transports told `closing`. Nothing is delivered here afterwards. What lies in the
    /// store already, on its way to another node, is not packed again.
    pub fn pack(&mut self, now: Time) -> Vec<Packed> {
        self.leaves = true;
        let ids: Vec<ListenerId> = self.listeners.ids().collect();
        let mut packed = Vec::new();
        for id in ids {
            let Some(listener) = self.listeners.get(id).filter(|listener| !listener.is_redis()) else {
                continue;
            };
            if let Some(link) = listener.link {
                self.effects.closes.push((link.id, Goodbye::Closing));
                self.detach(now, id, link.id);
            }
            if self.has(id) {
                self.end_ticks_of(now, id);
                if self.is_offered_with_transport(id) {
                    self.begin_window(now, id);
                }
                packed.extend(self.pack_one(id).map(|mut packed| {
                    packed.body.window_ms = self.stop_window_ms(now, id, 0);
                    packed
                }));
            }
            // It goes on elsewhere: its client is not lost.
            self.end_quietly(id);
        }
        self.effects.dirty.clear();
        packed
    }

    /// Its client was here or elsewhere until now: its window begins now. Never for a client that was already away: a
    /// disconnect keeps its date.
    fn begin_window(&mut self, now: Time, id: ListenerId) {
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut())
            && !session.polling
        {
            session.heard_at = session.heard_at.max(now);
        }
    }

    /// Whether a session is this node's own: not one that may be somebody else's already, or is not here yet.
    fn has(&self, id: ListenerId) -> bool {
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        session.is_some_and(|session| {
            let leaving = self.moves.leavings.get(&session.key.half()).filter(|leaving| leaving.id == id);
            !session.frozen || leaving.is_some_and(|leaving| !leaving.is_laid_down())
        })
    }

    /// Ends a session whose client is not lost by that.
    fn end_quietly(&mut self, id: ListenerId) {
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.present.clear();
        }
        self.end(id);
    }

    fn pack_subscriptions(&self, id: ListenerId) -> Vec<Subscription> {
        let watched = self.watched_by(id);
        let names = |space| self.subscriptions(id, space).into_iter().map(move |name| (name, space));
        let all = names(Space::Channel).chain(names(Space::Pattern));
        all.map(|(name, space)| Subscription {
            presence: space == Space::Channel && watched.iter().any(|known| known.as_bytes() == &*name),
            name: (*name).into(),
            pattern: space == Space::Pattern,
        })
        .collect()
    }

    fn watched_by(&self, id: ListenerId) -> Vec<Arc<str>> {
        let names = self.subscriptions(id, Space::Presence).into_iter();
        names.filter_map(|name| std::str::from_utf8(&name).ok().map(Arc::from)).collect()
    }

    /// What was put off to the end of a tick is told now: afterwards watchers know as much as this node.
    fn end_ticks_of(&mut self, now: Time, id: ListenerId) {
        for channel in self.watched_by(id) {
            self.end_tick(now, &channel);
        }
    }

    fn pack_one(&self, id: ListenerId) -> Option<Packed> {
        let listener = self.listeners.get(id)?;
        let session = listener.session()?;
        let watched = self.watched_by(id).into_iter();
        let told = watched.filter_map(|channel| self.presences.known(&channel).map(|known| (channel, known)));
        let body = SessionBody {
            token_expires: session.identity.expires,
            unlimited: session.identity.unlimited,
            scopes: session.identity.scopes,
            rights: (*session.identity.rights).clone(),
            subscriptions: self.pack_subscriptions(id),
            last_seq: listener.mailbox.last(),
            events: pack_events(&listener.mailbox),
            presences: session
                .present
                .all()
                .into_iter()
                .map(|(channel, state)| (channel, state.map(|state| state.text)))
                .collect(),
            polling: session.polling,
            lost: session.lost,
            window_ms: 0,
            told: told.collect(),
            heard: self.moves.streams(listener.marks.as_deref()),
            statuses: self.told_statuses(id),
            letters: session.letters,
            post: session.post.iter().copied().collect(),
        };
        Some(Packed {
            key: session.key,
            client: session.client,
            user: session.identity.user.clone(),
            name: session.identity.name.clone(),
            detached_at: session.heard_at,
            expires_at: self.session_expires_at(id),
            body,
        })
    }

    /// The same for a session that lay in the store while nodes lived: what they published meanwhile nobody heard for it,
    /// and nobody knows whether anything was. It is told so.
    pub fn adopt_late(&mut self, now: Time, packed: &Packed) -> bool {
        if !self.adopt(now, packed) {
            return false;
        }
        let Some(id) = self.find_held(packed.key) else { return false };
        for known in &packed.body.subscriptions {
            let (mut tail, name) = (Vec::new(), String::from_utf8_lossy(&known.name));
            match known.pattern {
                true => json::pattern_gap_tail(&mut tail, &name),
                false => json::channel_gap_tail(&mut tail, &name),
            }
            self.put_json(now, id, tail.into_boxed_slice());
        }
        true
    }

    /// Takes a packed session in, detached and listening. False: its time is over, or it is here already.
    pub fn adopt(&mut self, now: Time, packed: &Packed) -> bool {
        if now >= packed.expires_at || self.find_held(packed.key).is_some() {
            return false;
        }
        // Whoever looks for it elsewhere finds it here.
        self.moves
            .comings
            .contains_key(&packed.key.half())
            .then(|| self.fail(packed.key.half(), Sought::Here));
        let session = Session::new(packed.key, packed.client, identity_of(packed), packed.detached_at);
        let id = self.listeners.insert(Who::Session(Box::new(session)), None);
        let mut bases = BTreeMap::new();
        for subscription in &packed.body.subscriptions {
            let space = if subscription.pattern { Space::Pattern } else { Space::Channel };
            let node = self.node.clone();
            node.carrier.hold().carry(space, &subscription.name, None);
            self.subscribe(id, space, &subscription.name);
            if subscription.presence
                && let Ok(name) = std::str::from_utf8(&subscription.name)
            {
                node.carrier.hold().carry(Space::Presence, name.as_bytes(), None);
                self.subscribe(id, Space::Presence, name.as_bytes());
                let channel: Arc<str> = name.into();
                let told = told_of(&packed.body, &channel);
                match self.presences.base(&channel) {
                    Some(base) => drop(bases.insert(channel, base)),
                    None => {
                        self.moves.unread.entry(channel.clone()).or_default().push((id, told));
                        self.read_again(&channel);
                    }
                }
            }
        }
        self.settle_in(now, id, packed, bases);
        true
    }

    /// The session is this node's now: what it missed follows what it had, and its client is vouched for here.
    fn settle_in(&mut self, now: Time, id: ListenerId, packed: &Packed, bases: BTreeMap<Arc<str>, u64>) {
        let body = &packed.body;
        let marks = Marks { streams: body.heard.clone(), told: body.told.clone(), until: now + LATE_MS };
        let mailbox = self.unpack_mailbox(now, body);
        let Some(listener) = self.listeners.get_mut(id) else { return };
        let ahead = std::mem::replace(&mut listener.mailbox, mailbox);
        let mut session = Session::new(packed.key, packed.client, identity_of(packed), packed.detached_at);
        session.window_ms = (body.window_ms > 0).then_some(body.window_ms);
        (session.polling, session.lost) = (body.polling, body.lost);
        (session.letters, session.post) = (body.letters, body.post.iter().copied().collect());
        listener.who = Who::Session(Box::new(session));
        listener.marks = Some(Box::new(marks));
        self.sessions.insert(packed.key.half(), id);
        self.people_come(now, id);
        self.compare_statuses(now, id, &body.statuses);
        for (channel, base) in bases {
            self.tell_hole(now, id, &channel, told_of(body, &channel), base);
        }
        self.append_ahead(id, &ahead);
        self.come_home(id, body);
    }

    /// What was collected here before the session came, without what it had heard already.
    fn append_ahead(&mut self, id: ListenerId, ahead: &Mailbox) {
        let settings = &self.node.settings;
        let bounds = Bounds { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
        let Some(listener) = self.listeners.get_mut(id) else { return };
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
    fn come_home(&mut self, id: ListenerId, body: &SessionBody) {
        let state = |text: &Arc<str>| State { text: text.clone(), meaning: meaning(text) };
        let present =
            body.presences.iter().map(|(channel, text)| (channel.clone(), text.as_ref().map(state)));
        let present: Present = present.collect();
        let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) else {
            return;
        };
        session.present = present;
        if session.lost {
            return;
        }
        for (channel, state) in session.present.all() {
            self.join_again(id, &channel, state);
        }
        self.watch_for_loss(id);
    }

    /// A watcher was told up to one version and will be told from another on: if something lies between, it hears so.
    fn tell_hole(&mut self, now: Time, id: ListenerId, channel: &str, told: u64, base: u64) {
        if told < base {
            let mut tail = Vec::new();
            json::channel_gap_tail(&mut tail, channel);
            self.put_json(now, id, tail.into_boxed_slice());
        }
    }

    /// Everything kept is unread again: the client says how far it got when it comes back.
    fn unpack_mailbox(&self, now: Time, body: &SessionBody) -> Mailbox {
        // It had room where it was; the same events may be a little larger here.
        let bounds = Bounds { events: self.node.settings.mailbox_events, bytes: usize::MAX };
        let before = body.events.first().map_or(body.last_seq, |event| event.seq - 1);
        let mut mailbox = Mailbox::after(before, before);
        for stored in &body.events {
            mailbox.push(Event::json((*stored.event).into(), now, SlowReader::Gap, &self.pool), bounds);
        }
        mailbox
    }
}

fn pack_events(mailbox: &Mailbox) -> Vec<StoredEvent> {
    let kept = (0..mailbox.len()).filter_map(|index| mailbox.front(index));
    let events = kept.zip(mailbox.first()..);
    let mut events: Vec<StoredEvent> =
        events.map(|(event, seq)| StoredEvent { seq, event: event.json_tail().into() }).collect();
    let mut bytes: usize = 0;
    let fits = events.iter().rev().take_while(|event| {
        bytes += event.event.len() + 16;
        bytes <= EVENTS_BYTES
    });
    let unfit = events.len() - fits.count();
    events.drain(..unfit);
    events
}

fn told_of(body: &SessionBody, channel: &Arc<str>) -> u64 {
    body.told.iter().find(|(name, _)| name == channel).map_or(0, |(_, version)| *version)
}

fn identity_of(packed: &Packed) -> Identity {
    let body = &packed.body;
    Identity {
        user: packed.user.clone(),
        name: packed.name.clone(),
        rights: Arc::new(body.rights.clone()),
        expires: body.token_expires,
        unlimited: body.unlimited,
        scopes: body.scopes,
        key: None,
    }
}
