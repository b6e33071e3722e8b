//! Two nodes or more on one hall: a bus between them and a store behind them, stepped by hand in virtual time.

use super::House;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, Time};
use tavern_engine::memory::{Faults, Hall, MemoryStore, ParcelFate, WorkFate};
use tavern_engine::{
    Answer, BusError, BusInbox, Clock, Commit, Follow, Found, Inbox, Lost, ManualClock, NodeChange, Parcel,
    Read, Row, Store, Ticket, Work,
};
use tavern_hub::*;

/// What becomes of one work that a node gives to the store.
pub type WorkFates = Box<dyn FnMut(&str, &Work) -> WorkFate + Send>;

/// What becomes of one parcel on its way from one node to another: the delay of each copy.
pub type Fate = Box<dyn FnMut(&str, &str, &Parcel) -> Vec<u64> + Send>;

/// Confirms subscriptions after this long, or refuses them.
pub struct Script {
    confirms_after: Option<u64>,
    /// Every so many parcels are lost without a word.
    lose_every: Option<u64>,
    carried: u64,
    fate: Arc<Mutex<Option<Fate>>>,
    work_fate: Arc<Mutex<Option<WorkFates>>>,
}

impl Faults for Script {
    fn message(&mut self, from: &str, to: &str, parcel: &Parcel) -> ParcelFate {
        self.carried += 1;
        if let Some(fate) = self.fate.lock().unwrap().as_mut() {
            return ParcelFate { copies: fate(from, to, parcel), reported: false };
        }
        if self.lose_every.is_some_and(|every| self.carried.is_multiple_of(every)) {
            return ParcelFate::lost();
        }
        match &*parcel.payload {
            b"\"lost\"" => ParcelFate { copies: Vec::new(), reported: true },
            _ => ParcelFate::once(),
        }
    }

    fn work(&mut self, node: &str, work: &Work) -> WorkFate {
        self.work_fate.lock().unwrap().as_mut().map_or(WorkFate::NONE, |fate| fate(node, work))
    }

    fn subscribe(&mut self, _node: &str) -> Option<u64> {
        self.confirms_after
    }
}

#[derive(Default)]
pub struct Ear {
    answers: Mutex<Vec<(Ticket, Answer)>>,
    words: Mutex<Vec<Parcel>>,
    confirmed: Mutex<Vec<(Ticket, Result<(), BusError>)>>,
    lost: Mutex<Vec<Lost>>,
}

impl BusInbox for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        self.confirmed.lock().unwrap().push((ticket, outcome));
    }

    fn messages(&self, parcels: Vec<Parcel>) {
        self.words.lock().unwrap().extend(parcels);
    }

    fn lost(&self, lost: Lost) {
        self.lost.lock().unwrap().push(lost);
    }
}

impl Inbox for Ear {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        self.answers.lock().unwrap().extend(answers);
    }
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

pub struct Street {
    reads: u64,
    commits: u64,
    carried: u64,
    settings: Settings,
    clock: Arc<ManualClock>,
    hall: Arc<Hall>,
    houses: Vec<(House, Arc<Ear>)>,
    stores: Vec<Arc<MemoryStore>>,
    dead: Vec<usize>,
    fate: Arc<Mutex<Option<Fate>>>,
    work_fate: Arc<Mutex<Option<WorkFates>>>,
}

impl Street {
    pub fn new(confirms_after: Option<u64>) -> Street {
        Street::losing(confirms_after, None)
    }

    /// With a bus that loses every so many parcels.
    pub fn losing(confirms_after: Option<u64>, lose_every: Option<u64>) -> Street {
        Street::with(confirms_after, lose_every, &Settings::default())
    }

    /// With so many nodes.
    pub fn of(nodes: usize) -> Street {
        Street::built(nodes, Some(0), None, &Settings::default())
    }

    /// With so many nodes of these settings.
    pub fn sized(nodes: usize, settings: &Settings) -> Street {
        Street::built(nodes, Some(0), None, settings)
    }

    pub fn with(confirms_after: Option<u64>, lose_every: Option<u64>, settings: &Settings) -> Street {
        Street::built(2, confirms_after, lose_every, settings)
    }

    fn built(
        nodes: usize,
        confirms_after: Option<u64>,
        lose_every: Option<u64>,
        settings: &Settings,
    ) -> Street {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let fate: Arc<Mutex<Option<Fate>>> = Arc::default();
        let work_fate: Arc<Mutex<Option<WorkFates>>> = Arc::default();
        let script = Script {
            confirms_after,
            lose_every,
            carried: 0,
            fate: fate.clone(),
            work_fate: work_fate.clone(),
        };
        let hall = Hall::stepped(clock.clone(), Box::new(script));
        let mut street = Street {
            reads: 0,
            commits: 0,
            carried: 0,
            settings: settings.clone(),
            clock,
            hall,
            houses: Vec::new(),
            stores: Vec::new(),
            dead: Vec::new(),
            fate,
            work_fate,
        };
        for name in &NAMES[..nodes] {
            street.build(name);
        }
        street.introduce();
        street.settle();
        street
    }

    /// A node opens at the end of the street.
    pub fn build(&mut self, name: &str) -> usize {
        let ear: Arc<Ear> = Arc::default();
        let store = self.hall.store(name, ear.clone());
        let open = NodeChange::Open { name: name.into(), lease_ms: 600_000 };
        let open = Work::Commit(Commit { node: Some(open), ..Commit::default() });
        store.submit(vec![(Ticket(0), open)]);
        self.hall.settle();
        let epoch = match ear.answers.lock().unwrap().pop() {
            Some((_, Answer::Committed(receipt))) => receipt.epoch.unwrap_or(Epoch(0)),
            other => panic!("no epoch but {other:?}"),
        };
        let settings = Settings { node: name.into(), epoch, commands_per_second: 0, ..self.settings.clone() };
        let mut house = House::new(settings);
        house.now = self.clock.now();
        house.shards[0].node().carrier.set_bus(self.hall.bus(name, ear.clone()));
        house.shards[0].node().listen();
        self.houses.push((house, ear));
        self.stores.push(store);
        self.houses.len() - 1
    }

    /// Everybody knows who else lives.
    pub fn introduce(&mut self) {
        let names: Vec<Arc<str>> = self
            .houses
            .iter()
            .map(|(house, _)| house.shards[0].node().settings.node.as_str().into())
            .collect();
        for (at, (house, _)) in self.houses.iter().enumerate() {
            let others = names.iter().enumerate().filter(|(other, _)| *other != at);
            house.shards[0].node().set_neighbours(others.map(|(_, name)| name.clone()).collect());
        }
    }

    /// Decides about each parcel from now on.
    pub fn set_fate(&mut self, fate: impl FnMut(&str, &str, &Parcel) -> Vec<u64> + Send + 'static) {
        *self.fate.lock().unwrap() = Some(Box::new(fate));
    }

    /// Decides about each work that the store is given.
    pub fn set_work_fate(&mut self, fate: impl FnMut(&str, &Work) -> WorkFate + Send + 'static) {
        *self.work_fate.lock().unwrap() = Some(Box::new(fate));
    }

    pub fn heal(&mut self) {
        *self.work_fate.lock().unwrap() = None;
        *self.fate.lock().unwrap() = None;
    }

    /// Ends without a word.
    pub fn crash(&mut self, at: usize) {
        self.houses[at].0.shards[0].node().carrier.bus().unwrap().stop();
        self.dead.push(at);
    }

    pub fn is_dead(&self, at: usize) -> bool {
        self.dead.contains(&at)
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// What the store holds at this moment, whatever is under way.
    pub fn look(&self, read: Read) -> Found {
        self.hall.peek(read)
    }

    /// Lets everything happen until this node has taken a session out of the store; then it ends without a word.
    pub fn stop_when_taken(&mut self, at: usize) {
        let takes =
            |work: &(Ticket, Work)| matches!(&work.1, Work::Commit(commit) if !commit.deletes.is_empty());
        for _ in 0..1_000 {
            let work = &self.houses[at].0.shards[0].effects.work;
            if work.iter().any(takes) {
                let work = std::mem::take(&mut self.houses[at].0.shards[0].effects.work);
                self.stores[at].submit(work);
                return self.crash(at);
            }
            self.step();
        }
        panic!("it takes nothing");
    }

    pub fn house(&mut self, at: usize) -> &mut House {
        &mut self.houses[at].0
    }

    /// Hands everything over that is under way, until nothing is.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// Does the next thing that is under way. False: nothing is.
    fn step(&mut self) -> bool {
        for (at, ((house, _), store)) in self.houses.iter_mut().zip(&self.stores).enumerate() {
            if self.dead.contains(&at) {
                continue;
            }
            let work = std::mem::take(&mut house.shards[0].effects.work);
            self.reads += work.iter().filter(|(_, work)| matches!(work, Work::Read(_))).count() as u64;
            self.commits += work.iter().filter(|(_, work)| matches!(work, Work::Commit(_))).count() as u64;
            store.submit(work);
            let abroad = &house.shards[0].effects.abroad;
            let people = abroad.iter().filter(|parcel| parcel.subject.kind() == "_people");
            self.carried += people.count() as u64;
            house.shards[0].speak();
        }
        if !self.hall.step() {
            return false;
        }
        for (at, (house, ear)) in self.houses.iter_mut().enumerate() {
            if !self.dead.contains(&at) {
                take(house, ear);
            }
        }
        true
    }

    /// Everybody follows one user already.
    pub fn follow_all(&mut self, followers: &[String], followee: &str) {
        for (n, part) in followers.chunks(1_000).enumerate() {
            let row = |follower: &String| {
                let (follower, followee) = (follower.as_str().into(), followee.into());
                Row::Follow(Follow { follower, followee, since: Time(1) })
            };
            let commit = Commit { puts: part.iter().map(row).collect(), ..Commit::default() };
            self.stores[0].submit(vec![(Ticket(u64::MAX - n as u64), Work::Commit(commit))]);
        }
        self.settle();
    }

    /// Readings that the nodes asked of the store so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Commits that the nodes asked of the store so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Words about people that went to the bus so far.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    pub fn pass(&mut self, ms: u64) {
        self.clock.advance(ms);
        self.houses.iter_mut().for_each(|(house, _)| house.pass(ms));
        self.settle();
    }

    /// Runs a command, again each time what it waited for is there.
    pub fn say(&mut self, at: usize, caller: &mut Caller, frame: &str) -> Value {
        loop {
            let (flow, reply) = self.house(at).run(0, caller, frame);
            if flow != Flow::Wait {
                self.settle();
                return reply;
            }
            for _ in 0..8_000 {
                self.settle();
                if !self.house(at).shards[0].effects.ready.is_empty() {
                    break;
                }
                self.pass(1);
            }
            let ready = std::mem::take(&mut self.house(at).shards[0].effects.ready);
            assert!(ready.contains(&caller.link.id), "{frame} waits for ever");
        }
    }

    /// Lets time pass in steps of a millisecond, so that everything happens when it is due.
    pub fn live(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.pass(1));
    }

    /// Subscribes and waits for it.
    pub fn subscribe(&mut self, at: usize, caller: &mut Caller, what: &str) -> Value {
        let frame = format!(r#"{{"op":"subscribe",{what}}}"#);
        let (flow, reply) = self.house(at).flow(caller, &frame);
        assert_eq!(flow, Flow::Wait, "{reply}");
        self.settle();
        let ready = std::mem::take(&mut self.house(at).shards[0].effects.ready);
        assert_eq!(ready, [caller.link.id], "it can run again");
        self.house(at).say(caller, &frame)
    }
}

fn take(house: &mut House, ear: &Ear) {
    let node = house.shards[0].node().clone();
    for (ticket, answer) in std::mem::take(&mut *ear.answers.lock().unwrap()) {
        house.shards[0].handle(house.now, Input::Answer(ticket, answer));
    }
    for parcel in std::mem::take(&mut *ear.words.lock().unwrap()) {
        let input = match node.receive(&parcel) {
            Some(Incoming::Session { from, letter, .. }) => Input::Migration { from, letter },
            Some(Incoming::Presence { told, .. }) => Input::Presence(told),
            Some(Incoming::Person { told, .. }) => Input::Status(told),
            Some(Incoming::Words { space, words, mask }) => {
                assert_eq!(mask, 1);
                house.shards[0].receive(house.now, tavern_hub::Parcel { space, words });
                continue;
            }
            Some(Incoming::NodeLeft | Incoming::Subscription(_)) | None => continue,
        };
        house.shards[0].handle(house.now, input);
    }
    for (ticket, outcome) in std::mem::take(&mut *ear.confirmed.lock().unwrap()) {
        let links = node.carrier.confirmed(ticket, outcome);
        house.shards[0].handle(house.now, Input::BusReady(links.into_iter().map(|(_, link)| link).collect()));
    }
    for lost in std::mem::take(&mut *ear.lost.lock().unwrap()) {
        let channel = match lost {
            Lost::Everything => None,
            Lost::On(subject) => subject.channel(),
        };
        house.shards[0].handle(house.now, Input::BusLost(channel.map(Into::into)));
    }
}
