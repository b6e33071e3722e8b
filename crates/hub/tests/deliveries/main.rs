//! Deliveries in virtual time: couriers on several nodes, one store that fails, endpoints of every temper, crashes.
//! Whatever happens, every event reaches every subscription, in order and numbered without holes; what comes twice is a batch
//! that was under way, the same to the byte.

#[allow(dead_code, reason = "each binary uses a part of it")]
mod house;

use house::{Counting, Names};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use tavern_domain::delivery::{Mark, Patience, Progress};
use tavern_domain::topic::Marks;
use tavern_domain::{Epoch, Time};
use tavern_engine::memory::{Faults, Hall, MemoryStore, Outcome as Fate, ParcelFate, WorkFate};
use tavern_engine::{
    Answer, Append, Clock, Commit, Document, DocumentKey, Inbox, ManualClock, NodeChange, Parcel, Proof, Row,
    Store, Ticket, Work, Writer,
};
use tavern_hub::events::{Courier, CourierRules, Notice, Outcome, Post};
use tavern_hub::{Dice, Node, Settings};
use tavern_wire::json::event::{Format, stored};
use tavern_wire::record::{self, Subscription};

const RULES: CourierRules = CourierRules {
    patience: Patience { backoff_min_ms: 1_000, backoff_max_ms: 20_000, disable_after_ms: 0 },
    lease_ms: 30_000,
    look_ms: 2_000,
};

#[derive(Default)]
struct Answers(Mutex<Vec<(Ticket, Answer)>>);

impl Inbox for Answers {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

/// The store's luck: every so many works it fails before or after the commit.
struct Luck {
    dice: Counting,
    unlucky: bool,
}

impl Faults for Luck {
    fn parcel(&mut self, _: &str, _: &str, _: &Parcel) -> ParcelFate {
        ParcelFate::once()
    }

    fn work(&mut self, _: &str, _: &Work) -> WorkFate {
        match self.unlucky.then(|| self.dice.roll() % 40) {
            Some(0) => WorkFate { outcome: Fate::FailBefore, ..WorkFate::NONE },
            Some(1) => WorkFate { outcome: Fate::FailAfter, ..WorkFate::NONE },
            _ => WorkFate::NONE,
        }
    }

    fn subscribe(&mut self, _: &str) -> Option<u64> {
        Some(0)
    }
}

struct Office {
    courier: Courier,
    store: Arc<MemoryStore>,
    answers: Arc<Answers>,
    writer: Writer,
}

/// What an endpoint does with a post.
#[derive(Clone, Copy, PartialEq)]
enum Temper {
    Good,
    Bad,
    /// Of everything something.
    Moody,
}

/// The number of a batch, the numbers of its events, its bytes.
type Got = (u64, Vec<u64>, Vec<u8>);

struct World {
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
    teller: Arc<MemoryStore>,
    told: Arc<Answers>,
    offices: Vec<Option<Office>>,
    /// Until when each node does not run; its lease may end meanwhile.
    asleep: Vec<Time>,
    dice: Counting,
    temper: Temper,
    /// Posts under way: when they end, where, what the endpoint said.
    flights: Vec<(Time, usize, Arc<str>, u64, Outcome)>,
    /// What each endpoint has got, in order.
    got: BTreeMap<Arc<str>, Vec<Got>>,
    tickets: u64,
    troubles: Vec<String>,
}

impl World {
    fn new(seed: u128, nodes: usize, unlucky: bool, temper: Temper) -> World {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let hall = Hall::stepped(clock.clone(), Box::new(Luck { dice: Counting::new(seed), unlucky }));
        let told = Arc::new(Answers::default());
        let teller = hall.store("teller", told.clone());
        let mut world = World {
            clock,
            hall,
            teller,
            told,
            offices: Vec::new(),
            asleep: vec![Time(0); nodes],
            dice: Counting::new(seed + 1),
            temper,
            flights: Vec::new(),
            got: BTreeMap::new(),
            tickets: 1 << 40,
            troubles: Vec::new(),
        };
        for at in 0..nodes {
            let office = world.open(at);
            world.offices.push(Some(office));
        }
        world
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Commits until it is done: whoever publishes repeats what failed, under the same id.
    fn commit(
        &mut self,
        store: &Arc<MemoryStore>,
        told: &Arc<Answers>,
        commit: &Commit,
    ) -> tavern_engine::Receipt {
        loop {
            self.tickets += 1;
            let ticket = Ticket(self.tickets);
            store.submit(vec![(ticket, Work::Commit(commit.clone()))]);
            let found = loop {
                let mut answers = told.0.lock().unwrap();
                let at = answers.iter().position(|(known, _)| *known == ticket);
                if let Some(at) = at {
                    break answers.remove(at).1;
                }
                drop(answers);
                assert!(self.hall.step(), "the store answers");
            };
            if let Answer::Committed(receipt) = found {
                return receipt;
            }
        }
    }

    fn open(&mut self, at: usize) -> Office {
        let name = format!("n{at}");
        let answers = Arc::new(Answers::default());
        let store = self.hall.store(&name, answers.clone());
        let open = NodeChange::Open { name: name.as_str().into(), lease_ms: 600_000 };
        let commit = Commit { node: Some(open), ..Commit::default() };
        let epoch = self.commit(&store, &answers, &commit).epoch.unwrap_or(Epoch(0));
        let settings = Settings { node: name.clone(), epoch, ..Settings::default() };
        let node = Node::new(settings, Box::new(Names));
        let seed = self.dice.roll();
        let courier = Courier::new(node, RULES, Box::new(Counting::new(seed)), self.now());
        Office { courier, store, answers, writer: Writer::new(&name, epoch) }
    }

    /// Ends without a word; the others notice, and it begins again.
    fn crash(&mut self, at: usize) {
        let Some(office) = self.offices[at].take() else { return };
        self.flights.retain(|(_, of, ..)| *of != at);
        self.asleep[at] = Time(0);
        let close = NodeChange::Close { node: office.writer, proof: Proof::ProcessGone };
        let (teller, told) = (self.teller.clone(), self.told.clone());
        self.commit(&teller, &told, &Commit { node: Some(close), ..Commit::default() });
        let now = self.now();
        self.offices.iter_mut().flatten().for_each(|office| office.courier.look_all(now));
        let office = self.open(at);
        self.offices[at] = Some(office);
    }

    fn subscribe(&mut self, name: &str, topics: &[&str], concurrency: u32) {
        self.subscribe_for(name, topics, concurrency, 1 << 20);
    }

    fn subscribe_for(&mut self, name: &str, topics: &[&str], concurrency: u32, max_bytes: u64) {
        let topics: Vec<Arc<str>> = topics.iter().map(|topic| Arc::from(*topic)).collect();
        let subscription = Subscription {
            name: name.into(),
            owner: "k".into(),
            topics: topics.clone(),
            callback: Some("http://endpoint/".into()),
            timeout_ms: 200,
            max_events: 5,
            max_bytes,
            max_backlog_bytes: 0,
            format: Format::Standard,
            concurrency,
            pull: false,
            uuid: None,
            headers: BTreeMap::new(),
            secrets: Vec::new(),
            created_at: 1,
        };
        let counts = topics.iter().map(|topic| (topic.clone(), 0)).collect();
        let row = |kind: &str, name: &str, body: Vec<u8>| {
            Row::Document(Document { key: DocumentKey::new(kind, name), body: body.into() })
        };
        let puts = vec![
            row(record::SUBSCRIPTION, name, record::write(&subscription)),
            row(record::MARKS, name, record::write_marks(&Marks::begin(0, counts))),
            row(record::DELIVERY, name, record::write_progress(&Progress::starting(Mark::default()))),
            row(record::EVENTS, record::SUBSCRIPTIONS, Vec::new()),
        ];
        let (teller, told) = (self.teller.clone(), self.told.clone());
        self.commit(&teller, &told, &Commit { puts, ..Commit::default() });
    }

    fn publish(&mut self, at: usize, topic: &str, n: u64) {
        let body = stored("x", None, 0, &n.to_string()).into();
        let append = Append { topic: topic.into(), id: Some(n.to_string().into()), body };
        let (teller, told) = (self.teller.clone(), self.told.clone());
        self.commit(&teller, &told, &Commit { appends: vec![append], ..Commit::default() });
        let now = self.now();
        if let Some(office) = &mut self.offices[at] {
            office.courier.published(now, topic);
        }
    }

    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for at in 0..self.offices.len() {
                quiet &= self.carry_out(at);
            }
            if quiet && !self.hall.step() {
                return;
            }
        }
    }

    fn carry_out(&mut self, at: usize) -> bool {
        let now = self.now();
        if now < self.asleep[at] {
            return true;
        }
        let Some(office) = &mut self.offices[at] else { return true };
        for (ticket, answer) in std::mem::take(&mut *office.answers.0.lock().unwrap()) {
            office.courier.answered(now, ticket, answer);
        }
        office.courier.wake(now);
        let errands = &mut office.courier.errands;
        let (work, posts) = (std::mem::take(&mut errands.work), std::mem::take(&mut errands.posts));
        let nudges = std::mem::take(&mut errands.nudges);
        for notice in std::mem::take(&mut errands.notices) {
            if let Notice::Trouble { what, .. } = notice {
                self.troubles.push(what);
            }
        }
        let quiet = work.is_empty() && posts.is_empty() && nudges.is_empty();
        office.store.submit(work);
        for name in nudges {
            for other in (0..self.offices.len()).filter(|other| *other != at) {
                if let Some(office) = &mut self.offices[other] {
                    office.courier.nudged(now, &name);
                }
            }
        }
        posts.into_iter().for_each(|post| self.receive(at, post));
        quiet
    }

    fn receive(&mut self, at: usize, post: Post) {
        let name = post.subscription.name.clone();
        let temper = match self.temper {
            Temper::Good => 0,
            Temper::Bad => 90,
            Temper::Moody => self.dice.roll() % 100,
        };
        let (gets, outcome) = match temper {
            0..60 => (true, Outcome::Delivered),
            // It was taken, and the answer is lost.
            60..70 => (true, Outcome::Failed),
            70..80 => (false, Outcome::Throttled { after_ms: Some(500) }),
            _ => (false, Outcome::Failed),
        };
        if gets {
            let seqs = post.events.iter().map(|event| event.seq()).collect();
            self.got.entry(name.clone()).or_default().push((post.batch, seqs, post.body()));
        }
        let hang = if temper == 0 { 1 } else { 1 + (self.dice.roll() % 3_000) as u64 };
        self.flights.push((self.now() + hang, at, name, post.batch, outcome));
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now() + ms;
        while self.now() < until {
            let now = self.now();
            let awake = self.offices.iter().zip(&self.asleep).filter(|(_, asleep)| **asleep <= now);
            let wakes = awake.filter_map(|(office, _)| Some(office.as_ref()?.courier.next_wake()));
            let sleepers = self.asleep.iter().copied().filter(|asleep| *asleep > now);
            let next = wakes
                .chain(self.flights.iter().map(|flight| flight.0))
                .chain(sleepers)
                .min()
                .unwrap_or(until);
            self.clock.advance(next.max(now + 1).min(until).since(now));
            let now = self.now();
            let (done, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.flights)
                .into_iter()
                .partition(|flight| flight.0 <= now && self.asleep[flight.1] <= now);
            self.flights = rest;
            for (_, at, name, batch, outcome) in done {
                if let Some(office) = &mut self.offices[at] {
                    office.courier.posted(now, &name, batch, outcome);
                }
            }
            self.settle();
        }
    }

    /// Everything came, in order, and what came twice came as it was.
    fn check(&self, name: &str, events: u64, ordered: bool) {
        let got = self.got.get(name).map_or(&[][..], Vec::as_slice);
        let mut bodies: BTreeMap<u64, &Got> = BTreeMap::new();
        let mut reached = 0;
        let mut all = std::collections::BTreeSet::new();
        for post in got {
            let (batch, seqs, _) = post;
            if let Some(before) = bodies.insert(*batch, post) {
                assert_eq!(before, post, "batch {batch} of {name} is the same again");
            } else if ordered {
                assert_eq!(
                    seqs.first(),
                    Some(&(reached + 1)),
                    "{name}: batch {batch} follows what came before"
                );
            }
            reached = reached.max(seqs.last().copied().unwrap_or(0));
            all.extend(seqs.iter().copied());
        }
        let expected: std::collections::BTreeSet<u64> = (1..=events).collect();
        assert_eq!(all, expected, "{name} has everything without holes");
        assert_eq!(self.troubles, [] as [String; 0]);
    }
}

#[test]
fn events_are_batched_by_number_and_by_age() {
    let mut world = World::new(1, 1, false, Temper::Good);
    world.subscribe("s", &["a"], 1);
    world.pass(2_500);
    for n in 0..7 {
        world.publish(0, "a", n);
    }
    world.settle();
    world.pass(150);
    let sizes = |world: &World| -> Vec<usize> {
        world.got.get("s").into_iter().flatten().map(|(_, seqs, _)| seqs.len()).collect()
    };
    assert_eq!(sizes(&world), [5], "a full batch leaves at once, the rest waits");
    world.pass(100);
    assert_eq!(sizes(&world), [5, 2], "until it is 200 ms old");
    world.check("s", 7, true);
}

#[test]
fn what_a_full_body_had_no_room_for_follows() {
    let mut world = World::new(4, 1, false, Temper::Good);
    // Room for two of the five that are read at once.
    world.subscribe_for("s", &["a"], 1, 300);
    world.pass(2_500);
    for n in 0..23 {
        world.publish(0, "a", n);
    }
    world.pass(5_000);
    world.check("s", 23, true);
    let bodies = world.got["s"].iter().map(|(_, seqs, body)| (seqs.len(), body.len()));
    assert!(bodies.into_iter().all(|(events, bytes)| events > 1 && bytes <= 300 || events == 1));
}

#[test]
fn an_endpoint_that_comes_back_gets_everything_in_order() {
    let mut world = World::new(2, 2, false, Temper::Bad);
    world.subscribe("s", &["a", "b"], 1);
    world.pass(2_500);
    for n in 0..50 {
        world.publish((n % 2) as usize, if n % 3 == 0 { "a" } else { "b" }, n);
        world.pass(20);
    }
    world.pass(60_000);
    assert!(world.got.is_empty());
    world.temper = Temper::Good;
    world.pass(25_000);
    world.check("s", 50, true);
}

#[test]
fn whatever_fails_every_event_arrives_in_order() {
    for seed in 0..100 {
        let mut world = World::new(seed * 7 + 3, 3, seed % 2 == 1, Temper::Moody);
        world.subscribe("one", &["a"], 1);
        world.subscribe("both", &["a", "b"], 1);
        world.subscribe("wide", &["b"], 3);
        world.pass(2_500);
        let mut chaos: VecDeque<u64> = (0..120).collect();
        let (mut a, mut b) = (0, 0);
        while let Some(n) = chaos.pop_front() {
            let at = (world.dice.roll() % 3) as usize;
            let topic = if world.dice.roll().is_multiple_of(2) { "a" } else { "b" };
            *(if topic == "a" { &mut a } else { &mut b }) += 1;
            world.publish(at, topic, n);
            let pause = (world.dice.roll() % 400) as u64;
            world.pass(pause);
            if world.dice.roll().is_multiple_of(15) {
                let victim = (world.dice.roll() % 3) as usize;
                world.crash(victim);
            }
            if world.dice.roll().is_multiple_of(25) {
                let victim = (world.dice.roll() % 3) as usize;
                world.asleep[victim] = world.now() + (world.dice.roll() % 60_000) as u64;
            }
        }
        world.temper = Temper::Good;
        world.pass(180_000);
        world.check("one", a, true);
        world.check("both", a + b, true);
        world.check("wide", b, false);
        let open = world.offices.iter().flatten().map(|office| office.courier.in_flight()).sum::<usize>();
        assert_eq!((open, world.flights.len()), (0, 0), "seed {seed}");
    }
}
