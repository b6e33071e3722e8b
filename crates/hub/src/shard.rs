//! One shard of a node: its listeners, who hears what here, and what the server must do next (`Effects`).
//! Ordinary synchronous code: time, randomness and bytes come in; effects go out. Sockets live with the server.
//! Must hold: a publish reaches every subscription that was confirmed before it; each listener hears in publish order.

use crate::authorize::{self, Answers, Permit, Question, Verdict};
use crate::carrier::LINGER_MS;
use crate::event::{Author, Event, Pool, Space, Words};
use crate::goodbye::Goodbye;
use crate::handover::Moves;
use crate::listener::{Link, LinkId, Listener, ListenerId, Listeners, Who};
use crate::mailbox::Bounds;
use crate::node::{Dice, Node};
use crate::people::{People, PersonNews};
use crate::presence::{ChannelNews, Outcome, Presences};
use crate::registry::shards_of;
use crate::roster::{PlaceIndex, Roster};
use crate::settings::SlowReader;
use crate::stats::Stats;
use crate::wheel::Wheel;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::{Channel, Identity, Reach, Time, Verb};
use tavern_engine::{Ticket, Work};
use tavern_wire::error::Code;

/// What the server must carry out after calling a shard. Buffers are reused: drain them, keep them.
#[derive(Debug, Default)]
pub struct Effects {
    /// Listeners with something to write.
    pub dirty: Vec<ListenerId>,
    /// Transports to close, after what was written to them.
    pub closes: Vec<(LinkId, Goodbye)>,
    /// Words for the other shards, by shard number.
    pub parcels: Vec<Vec<Parcel>>,
    /// Words for the other nodes.
    pub abroad: Vec<tavern_engine::Parcel>,
    /// What the store must do.
    pub work: Vec<(Ticket, Work)>,
    /// News of presence for other shards, by shard number.
    pub news: Vec<(usize, ChannelNews)>,
    /// What is told about users, for other shards.
    pub rumours: Vec<(usize, PersonNews)>,
    /// What became of an app's orders, by their numbers.
    pub orders: Vec<(u64, Outcome)>,
    /// Topics of the server to which events were added.
    pub topics: Vec<&'static str>,
    /// What the app must be asked.
    pub questions: Vec<Question>,
    /// Transports whose waiting command can run again: the app or the bus has answered.
    pub ready: Vec<LinkId>,
}

/// What one shard tells another.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub space: Space,
    pub words: Arc<Words>,
}

pub struct Shard {
    pub(crate) node: Arc<Node>,
    pub(crate) index: usize,
    pub(crate) listeners: Listeners,
    /// By half of the key, which is enough to find one; the whole key is compared afterwards.
    pub(crate) sessions: HashMap<u64, ListenerId, RandomState>,
    pub(crate) roster: Roster,
    pub(crate) wheel: Wheel<ListenerId>,
    pub(crate) pool: Rc<Pool>,
    pub(crate) answers: Answers,
    pub(crate) asked: HashMap<Question, Vec<LinkId>, RandomState>,
    pub(crate) dice: Box<dyn Dice>,
    pub(crate) sweeper: crate::sweep::Sweeper,
    pub(crate) stats: Arc<Stats>,
    pub(crate) presences: Presences,
    pub(crate) people: People,
    pub(crate) inboxes: crate::inbox::Inboxes,
    pub(crate) parties: crate::party::Parties,
    /// Sessions on their way to or from other nodes.
    pub(crate) moves: Moves,
    /// The node stops: it takes no sessions of others any more.
    pub(crate) leaves: bool,
    /// How long its sessions then have to be resumed elsewhere.
    pub(crate) drain_ms: u64,
    /// Names that nobody here listens to any more, and until when the bus carries them still.
    pub(crate) lingering: VecDeque<(Time, Space, Arc<[u8]>)>,
    /// When a name left last: the time of the last turn.
    pub(crate) now: Time,
    pub effects: Effects,
    /// Something in the effects was said in the sense of `speech`.
    speaks: bool,
    /// The code of the last command's refusal; over HTTP it fixes the status.
    pub refused_with: Option<Code>,
    stamp: u64,
}

impl Shard {
    pub fn new(node: Arc<Node>, index: usize, dice: Box<dyn Dice>, now: Time) -> Shard {
        let shards = node.settings.shards;
        assert!(index < shards && shards <= crate::registry::SHARDS_MAX);
        let effects = Effects { parcels: (0..shards).map(|_| Vec::new()).collect(), ..Effects::default() };
        Shard {
            roster: Roster::new(index, node.registry.clone()),
            stats: node.stats[index].clone(),
            sweeper: crate::sweep::Sweeper::new(now, node.budget_bytes()),
            node,
            index,
            listeners: Listeners::default(),
            sessions: HashMap::default(),
            wheel: Wheel::new(now),
            pool: Rc::default(),
            answers: Answers::default(),
            asked: HashMap::default(),
            dice,
            presences: Presences::default(),
            people: People::new(now),
            inboxes: crate::inbox::Inboxes::default(),
            parties: crate::party::Parties::default(),
            moves: Moves::default(),
            leaves: false,
            drain_ms: 0,
            lingering: VecDeque::new(),
            now,
            effects,
            speaks: false,
            refused_with: None,
            stamp: 0,
        }
    }

    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id)
    }

    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    /// Its number on this node.
    pub fn index(&self) -> usize {
        self.index
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// A Redis connection that begins to listen.
    pub fn open_redis(&mut self, link: Link) -> ListenerId {
        self.listeners.insert(Who::Redis { pushing: true, waiting: false }, Some(link))
    }

    /// `TAVERN.MODE`: whether a Redis listener is pushed to, or asks.
    pub fn set_pushing(&mut self, id: ListenerId, on: bool) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        if let Who::Redis { pushing, .. } = &mut listener.who {
            *pushing = on;
        }
        self.mark_dirty(id);
    }

    /// `TAVERN.WAIT`: whether a Redis listener that asks wants to be told of the next event.
    pub fn set_waiting(&mut self, id: ListenerId, on: bool) {
        if let Some(listener) = self.listeners.get_mut(id)
            && let Who::Redis { waiting, .. } = &mut listener.who
        {
            *waiting = on;
            listener.dirty = false;
        }
    }

    pub fn set_format(&mut self, id: ListenerId, format: crate::listener::Format) {
        if let Some(link) = self.listeners.get_mut(id).and_then(|listener| listener.link.as_mut()) {
            link.format = format;
        }
    }

    /// Puts a listener on the list of those to be written to, if it has something to hear.
    pub fn mark_dirty(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        if listener.mailbox.has_unread() && listener.wants_writing() && !listener.dirty {
            listener.dirty = true;
            self.effects.dirty.push(id);
        }
    }

    /// Begins to listen; false when it did already. The sums are right before the caller hears of it.
    pub fn subscribe(&mut self, id: ListenerId, space: Space, name: &[u8]) -> bool {
        let place = self.make_place(space, name);
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        let new = self.roster.add(place, id.index, &mut listener.places);
        listener.counts[space as usize] += u32::from(new);
        new
    }

    /// Stops listening; false when it did not listen.
    pub fn unsubscribe(&mut self, id: ListenerId, space: Space, name: &[u8]) -> bool {
        let Some(place) = self.roster.find(space, name) else { return false };
        self.leave_place(id, place)
    }

    fn leave_place(&mut self, id: ListenerId, place: PlaceIndex) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        let Some(position) = listener.places.remove(&place) else { return false };
        let space = self.roster.place(place).space;
        listener.counts[space as usize] -= 1;
        let name = self.roster.place(place).entry.name.clone();
        let removed = self.roster.remove(place, position);
        if space == Space::Presence && self.roster.find(space, &name).is_none() {
            self.presences.forget_room(&name);
        }
        if let Some((moved, to)) = removed.moved {
            self.listeners.at(moved).places.insert(place, to);
        }
        if let Some((space, name)) = removed.unheard {
            self.linger(space, name);
        }
        true
    }

    /// Nobody here listens to a name any more, or not yet: the bus carries it for a while.
    pub fn linger(&mut self, space: Space, name: Arc<[u8]>) {
        if self.node.carrier.is_by_name() {
            self.lingering.push_back((self.now + LINGER_MS, space, name));
        }
    }

    /// The names a listener listens to in one space, in no order.
    pub fn subscriptions(&self, id: ListenerId, space: Space) -> Vec<Arc<[u8]>> {
        let Some(listener) = self.listeners.get(id) else { return Vec::new() };
        let places = listener.places.keys().map(|&place| self.roster.place(place));
        places.filter(|place| place.space == space).map(|place| place.entry.name.clone()).collect()
    }

    pub(crate) fn make_place(&mut self, space: Space, name: &[u8]) -> PlaceIndex {
        let settings = &self.node.settings;
        self.roster.make(space, name, || *settings.kind(kind_of(name)))
    }

    /// Ends a listener for good: it listens nowhere and is forgotten.
    pub fn end(&mut self, id: ListenerId) {
        self.lose_all(self.now, id);
        self.people_go(id);
        let Some(listener) = self.listeners.get(id) else { return };
        let places: Vec<PlaceIndex> = listener.places.keys().copied().collect();
        for place in places {
            self.leave_place(id, place);
        }
        if let Some(listener) = self.listeners.remove(id)
            && let Some(session) = listener.session()
        {
            self.sessions.remove(&session.key.half());
            self.stats.sessions_ended.add(1);
        }
    }

    /// Publishes; tells how many subscriptions on this node match.
    pub fn publish(
        &mut self,
        now: Time,
        space: Space,
        channel: &[u8],
        payload: &[u8],
        json: bool,
        author: Option<Author>,
    ) -> u32 {
        self.stats.published.add(1);
        let abroad = self.node.carrier.reaches_others();
        if abroad && !self.speaks {
            self.speaks = true;
            self.node.carrier.speech.begin(self.index);
        }
        let patterned =
            space == Space::Channel && self.node.registry.has_patterns() && !authorize::is_private(channel);
        let place = match self.roster.find(space, channel) {
            Some(place) => place,
            // Alone on this node and without patterns, a name nobody listens to needs no place.
            None if self.node.settings.shards == 1 && !patterned => {
                if abroad {
                    let origin = Some(self.node.origin(self.index));
                    let words = Words::new(space, channel, payload, json, author).with_origin(origin);
                    self.send_abroad(space, &words);
                }
                return 0;
            }
            None => self.make_place(space, channel),
        };
        let entry = &self.roster.place(place).entry;
        let (mut receivers, mut mask) = (entry.total(), entry.mask());
        if patterned {
            for entry in self.roster.matches(place) {
                receivers += entry.total();
                mask |= entry.mask();
            }
        }
        if mask == 0 && !abroad {
            return receivers;
        }
        let origin = abroad.then(|| self.node.origin(self.index));
        let words = Arc::new(Words::new(space, channel, payload, json, author).with_origin(origin));
        if abroad {
            self.send_abroad(space, &words);
        }
        let here = 1u64 << self.index;
        for shard in shards_of(mask & !here) {
            self.effects.parcels[shard].push(Parcel { space, words: words.clone() });
        }
        if mask & here != 0 {
            self.deliver(now, place, words);
        }
        receivers
    }

    fn send_abroad(&mut self, space: Space, words: &Words) {
        self.effects.abroad.extend(self.node.parcel(space, words));
    }

    /// Gives the bus what other nodes may hear. True: there was something.
    pub fn speak(&mut self) -> bool {
        if self.effects.abroad.is_empty() {
            return false;
        }
        let abroad = std::mem::take(&mut self.effects.abroad);
        if let Some(bus) = self.node.carrier.bus() {
            bus.publish(abroad);
        }
        if std::mem::take(&mut self.speaks) {
            self.node.carrier.speech.end(self.index);
        }
        true
    }

    /// Takes words that were published on another shard, or on another node.
    pub fn receive(&mut self, now: Time, parcel: Parcel) {
        let place = self.make_place(parcel.space, parcel.words.channel());
        self.deliver(now, place, parcel.words);
    }

    fn deliver(&mut self, now: Time, index: PlaceIndex, words: Arc<Words>) {
        self.stamp += 1;
        if let Some(origin) = words.origin() {
            self.moves.hear(origin);
        }
        let place = self.roster.place_mut(index);
        let event = Event::message(words.clone(), now, place.rules.slow_reader, &self.pool);
        let listeners = std::mem::take(&mut place.listeners);
        for &listener in &listeners {
            self.put(listener, &event);
        }
        self.stats.delivered.add(listeners.len() as u64);
        self.roster.place_mut(index).listeners = listeners;
        if words_have_patterns(&self.node, &self.roster, index) && !authorize::is_private(words.channel()) {
            self.deliver_by_patterns(now, index, &event, words);
        }
        if self.pool.bytes() > self.sweeper.relieve_above {
            self.relieve();
        }
    }

    fn deliver_by_patterns(&mut self, now: Time, index: PlaceIndex, event: &Rc<Event>, words: Arc<Words>) {
        self.roster.matches(index);
        let matches = std::mem::take(&mut self.roster.place_mut(index).matches);
        let public = Channel::parse_redis(words.channel()).is_ok_and(|c| c.reach == Reach::Everyone);
        for entry in &matches.1 {
            let Some(place) = self.roster.find(Space::Pattern, &entry.name) else { continue };
            let mut for_redis: Option<Rc<Event>> = None;
            let listeners = std::mem::take(&mut self.roster.place_mut(place).listeners);
            for &listener in &listeners {
                if self.listeners.at(listener).is_redis() {
                    let event = for_redis.get_or_insert_with(|| {
                        Event::by_pattern(entry.name.clone(), words.clone(), now, &self.pool)
                    });
                    let event = event.clone();
                    self.put(listener, &event);
                } else if public {
                    self.put(listener, event);
                }
            }
            self.stats.delivered.add(listeners.len() as u64);
            self.roster.place_mut(place).listeners = listeners;
        }
        self.roster.place_mut(index).matches = matches;
    }

    /// Puts one event into one mailbox.
    fn put(&mut self, index: u32, event: &Rc<Event>) {
        let stamp = self.stamp;
        let settings = &self.node.settings;
        let listener = self.listeners.at(index);
        let redis = listener.is_redis();
        let bounds = if redis {
            Bounds { events: usize::MAX, bytes: settings.redis_pending_bytes }
        } else {
            if listener.stamp == stamp {
                return;
            }
            listener.stamp = stamp;
            if listener.marks.as_ref().is_some_and(|marks| marks.covers(event)) {
                return;
            }
            Bounds { events: settings.mailbox_events, bytes: settings.mailbox_bytes }
        };
        let dropped = listener.mailbox.push(event.clone(), bounds);
        if !listener.dirty && listener.wants_writing() {
            listener.dirty = true;
            let id = self.listeners.id_at(index).expect("it got the event");
            self.effects.dirty.push(id);
        }
        if dropped > 0 {
            self.overflowed(index, dropped, event.slow_reader);
        }
    }

    /// Gives one listener an event that is no delivery of a channel.
    pub(crate) fn tell(&mut self, index: u32, event: &Rc<Event>) {
        self.stamp += 1;
        self.put(index, event);
    }

    /// Gives one session an event of its own.
    pub fn put_json(&mut self, now: Time, id: ListenerId, tail: Box<[u8]>) {
        let event = Event::json(tail, now, SlowReader::Gap, &self.pool);
        if self.listeners.get(id).is_some() {
            self.tell(id.index, &event);
        }
    }

    #[cold]
    pub(crate) fn overflowed(&mut self, index: u32, dropped: usize, policy: SlowReader) {
        self.stats.dropped_full.add(dropped as u64);
        let listener = self.listeners.at(index);
        if listener.is_redis() || policy == SlowReader::Close {
            // Without a link it is closed once; the rest of the turn finds nobody to write to.
            if let Some(link) = listener.link.take() {
                listener.dirty = false;
                self.effects.closes.push((link.id, Goodbye::SlowReader));
                self.stats.closed_slow.add(1);
            }
        }
    }

    /// Whether somebody may do this here.
    pub fn permit(&self, now: Time, identity: &Identity, verb: Verb, channel: &Channel<'_>) -> Permit {
        authorize::permit(now, &self.node.settings, &self.answers, identity, verb, channel)
    }

    /// Notes that a transport's command waits for the app's answer.
    pub fn ask(&mut self, question: Question, link: LinkId) {
        let waiting = self.asked.entry(question.clone()).or_default();
        if waiting.is_empty() {
            self.effects.questions.push(question);
        }
        waiting.push(link);
    }

    /// The app has answered: who waited for it may run again.
    pub fn answer(&mut self, now: Time, question: Question, verdict: Verdict) {
        let cache_ms = self.node.settings.authorize.map_or(0, |rules| rules.cache_ms);
        if let Some(waiting) = self.asked.remove(&question) {
            self.effects.ready.extend(waiting);
        }
        self.answers.keep(now, question, verdict, cache_ms);
    }
}

fn words_have_patterns(node: &Node, roster: &Roster, index: PlaceIndex) -> bool {
    roster.place(index).space == Space::Channel && node.registry.has_patterns()
}

fn kind_of(name: &[u8]) -> &str {
    Channel::parse_redis(name).map_or(tavern_domain::channel::REDIS_KIND, |channel| channel.kind)
}
