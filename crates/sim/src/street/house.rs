//! One node of the street: its shards and its liveness while it runs, its place at the store and at the bus. Work goes out
//! through a desk that knows who asked; a node that sleeps finds everything in its ear when it wakes.

use super::plant::Plant;
use super::weather::Weather;
use super::{CHANNELS, DRAIN_MS, HEARTBEAT_MS, LEASE_MS, RESUME_MS};
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::rights::Rights;
use tavern_domain::{Epoch, Identity, Scopes, Time};
use tavern_engine::memory::{Hall, MemoryStore};
use tavern_engine::{Answer, Bus, BusError, BusInbox, Inbox, Lost, Parcel, Store, Ticket, Work};
use tavern_hub::LivenessRules;
use tavern_hub::{Gate, KindRules, LinkId, ListenerId, Liveness, Node, Settings, Shard};
use tavern_wire::error::{Code, Refusal};

pub struct House {
    pub name: String,
    pub shards: usize,
    /// How far its clock is ahead.
    pub skew: i64,
    pub life: Life,
    /// Grows with every process of this name.
    pub process: u64,
    /// The process that left all its sessions in the store when it stopped.
    pub left: Option<u64>,
}

pub enum Life {
    Down,
    Booting(Box<super::boot::Booting>),
    Up(Box<Running>),
    Stopping(Box<super::boot::Stopping>),
}

/// Who asked the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    Shard(usize),
    Liveness,
    Process,
}

/// The place of a process at the store, and who waits for what.
pub struct Desk {
    pub store: Arc<MemoryStore>,
    pub ear: Arc<Ear>,
    asked: BTreeMap<u64, (Asker, Ticket)>,
    tickets: u64,
}

pub struct Running {
    pub node: Arc<Node>,
    pub shards: Vec<Shard>,
    pub liveness: Liveness,
    pub desk: Desk,
    pub bus: Arc<dyn Bus>,
    /// Its doors are open.
    pub ready: bool,
    /// It sleeps: nothing of it happens, and what comes waits.
    pub asleep: bool,
    /// Transports that went while it slept.
    pub gone: Vec<(usize, ListenerId, LinkId)>,
}

#[derive(Default)]
pub struct Ear {
    answers: Mutex<Vec<(Ticket, Answer)>>,
    words: Mutex<Vec<Parcel>>,
    confirmed: Mutex<Vec<(Ticket, Result<(), BusError>)>>,
}

fn take<T>(queue: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *queue.lock().unwrap_or_else(PoisonError::into_inner))
}

fn put<T>(queue: &Mutex<Vec<T>>, items: impl IntoIterator<Item = T>) {
    queue.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
}

impl Inbox for Ear {
    fn answer(&self, answers: Vec<(Ticket, Answer)>) {
        put(&self.answers, answers);
    }
}

impl BusInbox for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        put(&self.confirmed, [(ticket, outcome)]);
    }

    fn words(&self, parcels: Vec<Parcel>) {
        put(&self.words, parcels);
    }

    fn lost(&self, _lost: Lost) {}
}

impl Ear {
    pub fn take_words(&self) -> Vec<Parcel> {
        take(&self.words)
    }

    pub fn take_confirmed(&self) -> Vec<(Ticket, Result<(), BusError>)> {
        take(&self.confirmed)
    }
}

impl Desk {
    pub fn new(hall: &Arc<Hall>, name: &str) -> Desk {
        let ear: Arc<Ear> = Arc::default();
        Desk { store: hall.store(name, ear.clone()), ear, asked: BTreeMap::new(), tickets: 0 }
    }

    pub fn submit(&mut self, asker: Asker, own: Ticket, work: Work) {
        self.tickets += 1;
        self.asked.insert(self.tickets, (asker, own));
        self.store.submit(vec![(Ticket(self.tickets), work)]);
    }

    /// An answer that the store itself never gave.
    pub fn answer(&mut self, asker: Asker, own: Ticket, answer: Answer) {
        self.tickets += 1;
        self.asked.insert(self.tickets, (asker, own));
        put(&self.ear.answers, [(Ticket(self.tickets), answer)]);
    }

    pub fn take_answers(&mut self) -> Vec<(Asker, Ticket, Answer)> {
        let answers = take(&self.ear.answers);
        let known = answers.into_iter().filter_map(|(ticket, answer)| {
            let (asker, own) = self.asked.remove(&ticket.0)?;
            Some((asker, own, answer))
        });
        known.collect()
    }
}

impl House {
    pub fn new(number: usize, rng: &mut Rng) -> House {
        House {
            name: format!("n{number}"),
            shards: 1 + rng.below(2),
            skew: 0,
            life: Life::Down,
            process: 0,
            left: None,
        }
    }

    /// What its clock shows.
    pub fn local(&self, now: Time) -> Time {
        Time(now.ms().saturating_add_signed(self.skew))
    }

    /// When its clock shows this.
    pub fn global(&self, local: Time) -> Time {
        Time(local.ms().saturating_add_signed(-self.skew))
    }

    pub fn running(&mut self) -> Option<&mut Running> {
        match &mut self.life {
            Life::Up(running) => Some(running),
            _ => None,
        }
    }

    /// Running and awake: it answers.
    pub fn is_open(&self) -> bool {
        matches!(&self.life, Life::Up(running) if running.ready && !running.asleep)
    }

    pub fn next_wake(&self) -> Option<Time> {
        let Life::Up(running) = &self.life else { return None };
        if running.asleep {
            return None;
        }
        let shards = running.shards.iter().filter_map(Shard::next_wake).map(|due| self.global(due));
        shards.chain([running.liveness.next_wake()]).min()
    }
}

impl Running {
    pub fn new(
        house: &House,
        desk: Desk,
        hall: &Arc<Hall>,
        epoch: Epoch,
        world: (Time, &mut Rng),
        plant: Plant,
    ) -> Running {
        let (now, rng) = world;
        let node = Node::new(settings(house, epoch, plant, rng), Box::new(Names));
        let bus: Arc<dyn Bus> = hall.bus(&house.name, desk.ear.clone());
        node.carrier.set_bus(bus.clone());
        let local = house.local(now);
        let shard = |index| Shard::new(node.clone(), index, Box::new(rng.fork()), local);
        let shards = (0..house.shards).map(shard).collect();
        let rules = LivenessRules {
            heartbeat_ms: HEARTBEAT_MS,
            lease_ms: LEASE_MS,
            drain_ms: DRAIN_MS,
            sweep_ms: 60_000,
            sweep_age_ms: 120_000,
        };
        let liveness = Liveness::new(node.clone(), rules, now);
        Running { node, shards, liveness, desk, bus, ready: false, asleep: false, gone: Vec::new() }
    }
}

fn settings(house: &House, epoch: Epoch, plant: Plant, rng: &mut Rng) -> Settings {
    let mut settings = Settings {
        node: house.name.clone(),
        epoch,
        shards: house.shards,
        resume_ms: RESUME_MS,
        commands_per_second: 0,
        mailbox_events: 1 << 16,
        ..Settings::default()
    };
    if plant == Plant::Hasty {
        settings.resume_ms = 300;
    }
    for (channel, grace_ms) in CHANNELS {
        let kind = channel.split('#').next().unwrap_or_default();
        let presence_mode = rng.chance(20).then_some(tavern_domain::presence::Mode::Coalesced);
        settings.kinds.insert(kind.into(), KindRules { grace_ms, presence_mode, ..KindRules::default() });
    }
    settings
}

/// Tokens are `token-of-` and the user.
struct Names;

impl Gate for Names {
    fn verify(&self, token: &str, _now: Time) -> Result<Identity, Refusal> {
        let Some(user) = token.strip_prefix("token-of-") else {
            return Err(Refusal::new(Code::Unauthenticated, "not a token"));
        };
        Ok(Identity {
            user: Some(user.into()),
            name: None,
            rights: Arc::new(Rights::all()),
            expires: Time::NEVER,
            unlimited: true,
            scopes: Scopes::NONE,
            key: None,
        })
    }
}

/// Cuts a node off, or not any more.
pub fn cut(weather: &Weather, name: &str, cut: Option<super::weather::Cut>) {
    let mut sky = weather.sky();
    match cut {
        Some(cut) => drop(sky.cut.insert(name.into(), cut)),
        None => drop(sky.cut.remove(name)),
    }
}
