//! A session packed up to live on elsewhere: in the store while its only node restarts, or on another node.

use crate::event::{Event, Space};
use crate::goodbye::Goodbye;
use crate::listener::{ListenerId, Who};
use crate::mailbox::{Bounds, Mailbox};
use crate::session::Session;
use crate::settings::SlowReader;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::State;
use tavern_domain::{ClientId, Identity, SessionKey, Time};
use tavern_engine::SessionBody;
use tavern_engine::body::{StoredEvent, Subscription};
use tavern_wire::json::presence::meaning;

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

impl Shard {
    /// Takes every session out, its transports told `closing`. Nothing is delivered here afterwards.
    pub fn pack(&mut self, now: Time) -> Vec<Packed> {
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
            packed.extend(self.pack_one(id));
            if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
                // It goes on elsewhere: its client is not lost.
                session.present.clear();
            }
            self.end(id);
        }
        self.effects.dirty.clear();
        packed
    }

    fn pack_one(&self, id: ListenerId) -> Option<Packed> {
        let listener = self.listeners.get(id)?;
        let session = listener.session()?;
        let names = |space| self.subscriptions(id, space).into_iter().map(move |name| (name, space));
        let subscriptions = names(Space::Channel).chain(names(Space::Pattern)).map(|(name, space)| {
            let place = self.roster.find(Space::Presence, &name);
            let presence =
                space == Space::Channel && place.is_some_and(|place| listener.places.contains_key(&place));
            Subscription { name: (*name).into(), pattern: space == Space::Pattern, presence }
        });
        let first = listener.mailbox.first();
        let kept = (0..listener.mailbox.len()).filter_map(|index| listener.mailbox.front(index));
        let events =
            kept.zip(first..).map(|(event, seq)| StoredEvent { seq, event: event.json_tail().into() });
        let body = SessionBody {
            token_expires: session.identity.expires,
            unlimited: session.identity.unlimited,
            scopes: session.identity.scopes,
            rights: (*session.identity.rights).clone(),
            subscriptions: subscriptions.collect(),
            last_seq: listener.mailbox.last(),
            events: events.collect(),
            presences: session
                .present
                .iter()
                .map(|(channel, state)| (channel.clone(), state.as_ref().map(|state| state.text.clone())))
                .collect(),
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

    /// Takes a packed session in, detached and listening. False: its time is over, or it is here already.
    pub fn adopt(&mut self, now: Time, packed: &Packed) -> bool {
        if now >= packed.expires_at || self.find_session(packed.key).is_some() {
            return false;
        }
        let body = &packed.body;
        let identity = Identity {
            user: packed.user.clone(),
            name: packed.name.clone(),
            rights: Arc::new(body.rights.clone()),
            expires: body.token_expires,
            unlimited: body.unlimited,
            scopes: body.scopes,
        };
        let session = Session::new(packed.key, packed.client, identity, packed.detached_at);
        let id = self.listeners.insert(Who::Session(Box::new(session)), None);
        self.sessions.insert(packed.key.half(), id);
        let mailbox = self.unpack_mailbox(now, body);
        if let Some(listener) = self.listeners.get_mut(id) {
            listener.mailbox = mailbox;
        }
        for subscription in &body.subscriptions {
            let space = if subscription.pattern { Space::Pattern } else { Space::Channel };
            let node = self.node.clone();
            node.carrier.hold().carry(space, &subscription.name, None);
            self.subscribe(id, space, &subscription.name);
            if subscription.presence
                && let Ok(name) = std::str::from_utf8(&subscription.name)
            {
                node.carrier.hold().carry(Space::Presence, name.as_bytes(), None);
                self.subscribe(id, Space::Presence, name.as_bytes());
                self.read_again(&name.into());
            }
        }
        let graces = body.presences.iter().map(|(channel, _)| self.grace_ms(channel));
        let window_ms = graces.max();
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.window_ms = window_ms;
        }
        // The same client under a new home: nobody is told anything.
        for (channel, state) in &body.presences {
            let state = state.as_ref().map(|text| State { text: text.clone(), meaning: meaning(text) });
            if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
                session.present.insert(channel.clone(), state.clone());
            }
            self.join(now, id, channel, state, None);
        }
        true
    }

    /// Everything kept is unread again: the client says how far it got when it comes back.
    fn unpack_mailbox(&self, now: Time, body: &SessionBody) -> Mailbox {
        let settings = &self.node.settings;
        let bounds = Bounds { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
        let before = body.events.first().map_or(body.last_seq, |event| event.seq - 1);
        let mut mailbox = Mailbox::after(before, before);
        for stored in &body.events {
            mailbox.push(Event::json((*stored.event).into(), now, SlowReader::Gap, &self.pool), bounds);
        }
        mailbox
    }
}
