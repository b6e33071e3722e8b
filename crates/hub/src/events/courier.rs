//! The node's courier: knows every subscription, works on those that have something to deliver and that no other node works
//! on. A machine: news, the store's answers and the endpoints' answers come in; work for the store and posts go out.
//! Must hold: a subscription without news costs nothing but its settings; those that can send take turns, and one that
//! hangs holds up nobody; posts, loads and events in memory are bounded.

use super::line::{Active, Line, Load, State};
use super::post::{Notice, Post};
use crate::node::{Dice, Node};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::{Delivery, Effect, Input, Patience};
use tavern_engine::{Answer, DocumentKey, Read, StoreError, Ticket, Work, Writer};
use tavern_wire::record::{self, Subscription};

/// Subscriptions that are loaded at once: a node that starts looks at all of them.
const LOADS: usize = 64;
/// Posts under way at once. Each is a socket; one subscription has at most its `concurrency` of them.
pub(super) const FLIGHTS: usize = 4_096;
/// How long what is known of a subscription is kept after its last work: the next event mostly comes soon.
pub(super) const LINGER_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
pub struct CourierRules {
    pub patience: Patience,
    /// How long a subscription is this node's without a word to the store.
    pub lease_ms: u64,
    /// How often it looks whether other nodes have changed subscriptions.
    pub look_ms: u64,
}

/// What the driver must carry out. Buffers are reused: drain them, keep them.
#[derive(Debug, Default)]
pub struct Errands {
    pub work: Vec<(Ticket, Work)>,
    pub posts: Vec<Post>,
    /// Subscriptions with news whose worker is another node.
    pub nudges: Vec<Arc<str>>,
    pub notices: Vec<Notice>,
}

pub struct Courier {
    pub(super) node: Arc<Node>,
    pub(super) rules: CourierRules,
    pub(super) dice: Box<dyn Dice + Send>,
    pub(super) lines: BTreeMap<Arc<str>, Line>,
    /// Who listens to a topic.
    pub(super) topics: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    tickets: u64,
    lives: u64,
    pub(super) asked: HashMap<Ticket, Asked>,
    due: BTreeSet<(Time, Arc<str>)>,
    waiting: VecDeque<Arc<str>>,
    loading: usize,
    pub(super) ready: VecDeque<Arc<str>>,
    pub(super) flights: usize,
    pub(super) look_due: Time,
    /// The version of what the subscriptions were read at.
    pub(super) listed: Option<u64>,
    pub(super) looks: bool,
    stopping: bool,
    pub errands: Errands,
}

/// What a work under way is for.
#[derive(Debug)]
pub(super) enum Asked {
    /// Whether the subscriptions have changed.
    Look,
    /// A page of the subscriptions; the names so far.
    List {
        version: u64,
        names: BTreeSet<Arc<str>>,
    },
    /// One subscription, as it is now.
    One(Arc<str>),
    Progress(Arc<str>),
    Marks(Arc<str>),
    /// Whether somebody else has changed the progress.
    Check(Arc<str>),
    /// These are for one life of a line.
    Events(Arc<str>, u64),
    Fetch(Arc<str>, u64, u64),
    Take(Arc<str>, u64),
    Save(Arc<str>, u64),
    /// A deadline: whatever the answer, somebody looks after it.
    Unwatch,
}

impl Courier {
    pub fn new(node: Arc<Node>, rules: CourierRules, dice: Box<dyn Dice + Send>, now: Time) -> Courier {
        Courier {
            node,
            rules,
            dice,
            lines: BTreeMap::new(),
            topics: BTreeMap::new(),
            tickets: 0,
            lives: 0,
            asked: HashMap::new(),
            due: BTreeSet::new(),
            waiting: VecDeque::new(),
            loading: 0,
            ready: VecDeque::new(),
            flights: 0,
            look_due: now,
            listed: None,
            looks: false,
            stopping: false,
            errands: Errands::default(),
        }
    }

    pub(super) fn writer(&self) -> Writer {
        Writer { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    pub(super) fn ask(&mut self, asked: Asked, work: Work) {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.asked.insert(ticket, asked);
        self.errands.work.push((ticket, work));
    }

    /// The life of a line, while it has one.
    pub(super) fn life(&self, name: &Arc<str>) -> u64 {
        match self.lines.get(name).map(|line| &line.state) {
            Some(State::Active(active)) => active.life,
            _ => 0,
        }
    }

    /// Whether the subscriptions are known by now.
    pub fn is_ready(&self) -> bool {
        self.listed.is_some()
    }

    /// Whether somebody subscribes to this topic.
    pub fn is_heard(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// All subscriptions, by name.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<Subscription>> {
        self.lines.values().map(|line| &line.subscription)
    }

    /// When the oldest event was accepted, of the subscriptions that this node works on.
    pub fn oldest(&self) -> impl Iterator<Item = (&Arc<str>, Time)> {
        self.lines.iter().filter_map(|(name, line)| match &line.state {
            State::Active(active) => Some((name, active.machine.oldest()?)),
            _ => None,
        })
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Posts under way.
    pub fn in_flight(&self) -> usize {
        self.flights
    }

    /// A topic has new events.
    pub fn published(&mut self, now: Time, topic: &str) {
        // Taken out meanwhile: a topic may have thousands.
        let Some(names) = self.topics.get_mut(topic).map(std::mem::take) else { return };
        names.iter().for_each(|name| self.feed(now, name));
        if let Some(listeners) = self.topics.get_mut(topic) {
            *listeners = names;
        }
    }

    /// Another node's news: whoever works on it here looks at the log. Without a name: subscriptions were changed.
    pub fn nudged(&mut self, now: Time, name: &Arc<str>) {
        if name.is_empty() {
            return self.look();
        }
        match self.lines.get_mut(name) {
            // Nobody passes a nudge on: two who take each other for the worker would never end.
            Some(line) if matches!(line.state, State::Elsewhere) => line.hungry = true,
            Some(_) => self.feed(now, name),
            None => {}
        }
    }

    pub(super) fn feed(&mut self, now: Time, name: &Arc<str>) {
        let Some(line) = self.lines.get_mut(name) else { return };
        line.hungry = true;
        match &mut line.state {
            // Whoever cannot take anything now looks by itself when it can.
            State::Active(active) if active.reads || active.machine.want(now).is_none() => {}
            State::Active(active) => {
                active.rests = None;
                self.step(now, name);
            }
            State::Idle => self.queue(name),
            State::Elsewhere => self.errands.nudges.push(name.clone()),
            State::Waits | State::Loads(_) => {}
        }
    }

    /// Looks at all of them: this node has just begun, or another one has ended.
    pub fn look_all(&mut self, now: Time) {
        let names: Vec<Arc<str>> = self.lines.keys().cloned().collect();
        for name in names {
            let Some(line) = self.lines.get_mut(&name) else { continue };
            if matches!(line.state, State::Elsewhere) {
                line.state = State::Idle;
            }
            self.feed(now, &name);
        }
        self.load_some();
    }

    /// Stands in line to be loaded.
    pub(super) fn queue(&mut self, name: &Arc<str>) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if self.stopping || line.subscription.pull || matches!(line.state, State::Waits | State::Loads(_)) {
            return;
        }
        line.state = State::Waits;
        self.waiting.push_back(name.clone());
        self.load_some();
    }

    fn load_some(&mut self) {
        while self.loading < LOADS
            && let Some(name) = self.waiting.pop_front()
        {
            let Some(line) = self.lines.get_mut(&name).filter(|line| matches!(line.state, State::Waits))
            else {
                continue;
            };
            line.state = State::Loads(Load::default());
            self.loading += 1;
            let read = |kind| Work::Read(Read::Document(DocumentKey::new(kind, &name)));
            let (progress, marks) = (read(record::DELIVERY), read(record::MARKS));
            self.ask(Asked::Progress(name.clone()), progress);
            self.ask(Asked::Marks(name), marks);
        }
    }

    /// Something of a load has come.
    pub(super) fn loaded(&mut self, now: Time, name: &Arc<str>, note: impl FnOnce(&mut Load)) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let State::Loads(load) = &mut line.state else { return };
        note(load);
        let Load { progress: Some(progress), marks: Some(marks), stale } = load else { return };
        let (progress, marks, stale) = (progress.take(), marks.take(), *stale);
        let overdue = line.overdue.take();
        self.loading -= 1;
        line.state = State::Idle;
        if stale {
            line.overdue = overdue;
            return self.queue(name);
        }
        if let (Some(progress), Some(marks)) = (progress, marks) {
            let kept = record::read_progress(&progress.row.body);
            match (kept, record::read_marks(&marks.row.body)) {
                (Ok(kept), Ok(read)) => {
                    self.lives += 1;
                    let machine = Delivery::new(now, kept, line.rules(), self.rules.patience);
                    line.state = State::Active(Box::new(Active {
                        life: self.lives,
                        machine,
                        marks: Arc::new(read),
                        marks_version: marks.version,
                        version: progress.version,
                        lease: None,
                        watched: overdue,
                        takes: false,
                        reading: None,
                        reads: false,
                        events: BTreeMap::new(),
                        copied: BTreeSet::new(),
                        copies: BTreeSet::new(),
                        fetches: BTreeMap::new(),
                        started: BTreeSet::new(),
                        notes: false,
                        saved: None,
                        queued: false,
                        rests: None,
                    }));
                    line.hungry = true;
                    self.give(now, name, None);
                }
                (Err(error), _) | (_, Err(error)) => self.trouble(name, error.to_string()),
            }
        }
        self.load_some();
    }

    /// A load that failed.
    pub(super) fn unloaded(&mut self, now: Time, name: &Arc<str>, error: &StoreError) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if matches!(line.state, State::Loads(_)) {
            self.loading -= 1;
            line.state = State::Idle;
            self.again(now, name, error);
        }
        self.load_some();
    }

    /// It is gone, perhaps in the middle of a load.
    pub(super) fn unload(&mut self, line: &Line) {
        if matches!(line.state, State::Loads(_)) {
            self.loading -= 1;
            self.load_some();
        }
    }

    pub(super) fn trouble(&mut self, name: &Arc<str>, what: String) {
        self.errands.notices.push(Notice::Trouble { subscription: name.clone(), what });
    }

    /// Gives the machine something, or only the time, and carries out what it wants.
    pub(super) fn give(&mut self, now: Time, name: &Arc<str>, input: Option<Input>) {
        let mut effects = Vec::new();
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        match input {
            Some(input) => active.machine.handle(now, input, &mut effects),
            None => active.machine.wake(now, &mut effects),
        }
        let mut said = Vec::new();
        let mut save = None;
        for effect in effects {
            match effect {
                Effect::Save { parked, retried } => save = Some((parked, retried)),
                other => said.push(other),
            }
        }
        self.tell(name, &said);
        if let Some((parked, retried)) = save {
            self.save(now, name, &parked, &retried, &said);
        }
        self.step(now, name);
    }

    fn tell(&mut self, name: &Arc<str>, said: &[Effect]) {
        for effect in said {
            let subscription = name.clone();
            self.errands.notices.push(match effect {
                Effect::Disabled(why) => Notice::Disabled { subscription, why: *why },
                Effect::Recovered => Notice::Recovered { subscription },
                Effect::Lost { first, last } => Notice::Lost { subscription, first: *first, last: *last },
                Effect::Save { .. } => continue,
            });
        }
    }

    /// Puts it where its state wants it: into the queue of those who send, to the log, to rest.
    pub(super) fn step(&mut self, now: Time, name: &Arc<str>) {
        self.read_more(now, name);
        let (lease_ms, linger_ms) = (self.rules.lease_ms, self.linger_ms());
        let Some(line) = self.lines.get_mut(name) else { return };
        let hungry = line.hungry;
        let Some(active) = line.active() else { return };
        let ready = active.machine.is_ready(now) && !self.stopping;
        let (held, busy) = (active.holds_lease(now), active.machine.in_flight() > 0);
        if ready && held && !active.queued {
            active.queued = true;
            self.ready.push_back(name.clone());
        }
        let ends = active.lease.map_or(now, |(_, until)| until);
        let renew = busy && ends.since(now) <= lease_ms / 3;
        if ((ready && !held) || renew) && !active.takes {
            active.takes = true;
            self.take(now, name);
        }
        let Some(active) = self.lines.get_mut(name).and_then(Line::active) else { return };
        let mut due = active.machine.next_wake();
        if busy {
            // Renewed in time, while a slow endpoint thinks.
            due = Some(
                due.unwrap_or(Time::NEVER).min(Time(ends.ms().saturating_sub(lease_ms / 3)).max(now + 1)),
            );
        }
        if active.is_done(hungry) {
            let since = *active.rests.get_or_insert(now);
            due = Some(since + linger_ms);
        } else {
            active.rests = None;
        }
        if let Some(due) = due {
            self.set_alarm(name, due.max(now));
        }
        self.serve(now);
    }

    /// It is looked at then, if not before.
    pub(super) fn set_alarm(&mut self, name: &Arc<str>, at: Time) {
        let Some(line) = self.lines.get_mut(name) else { return };
        if line.alarm.is_none_or(|alarm| at < alarm) {
            if let Some(alarm) = line.alarm.replace(at) {
                self.due.remove(&(alarm, name.clone()));
            }
            self.due.insert((at, name.clone()));
        }
    }

    pub fn next_wake(&self) -> Time {
        self.due.first().map_or(self.look_due, |(due, _)| (*due).min(self.look_due))
    }

    pub fn wake(&mut self, now: Time) {
        if now >= self.look_due {
            self.look_due = now + self.rules.look_ms;
            self.look();
        }
        while let Some((due, name)) = self.due.first().cloned()
            && due <= now
        {
            self.due.remove(&(due, name.clone()));
            if let Some(line) = self.lines.get_mut(&name) {
                line.alarm = None;
            }
            self.wake_line(now, &name);
        }
    }

    fn wake_line(&mut self, now: Time, name: &Arc<str>) {
        let linger_ms = self.linger_ms();
        let Some(line) = self.lines.get_mut(name) else { return };
        let hungry = line.hungry;
        match &mut line.state {
            State::Active(active) => {
                let rested = active.rests.is_some_and(|since| now.since(since) >= linger_ms);
                if rested && active.is_done(hungry) {
                    let watched = active.watched;
                    line.state = State::Idle;
                    watched.into_iter().for_each(|due| self.unwatch(name, due));
                    return;
                }
                self.give(now, name, None);
            }
            State::Elsewhere => {
                line.state = State::Idle;
                self.queue(name);
            }
            State::Idle if hungry => self.queue(name),
            State::Idle | State::Waits | State::Loads(_) => {}
        }
    }

    /// The node stops: nothing new begins. What is under way may end.
    pub fn stop(&mut self, now: Time) {
        self.stopping = true;
        let names: Vec<Arc<str>> = self.lines.keys().cloned().collect();
        for name in names {
            self.give(now, &name, Some(Input::Stop));
        }
    }

    /// Nothing is under way and everything is saved.
    pub fn is_at_rest(&self) -> bool {
        let at_rest = |line: &Line| match &line.state {
            State::Active(active) => active.machine.is_at_rest(),
            _ => true,
        };
        self.flights == 0 && self.lines.values().all(at_rest)
    }

    /// The store has answered.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        let Some(asked) = self.asked.remove(&ticket) else { return };
        self.heard(now, asked, answer);
    }
}
