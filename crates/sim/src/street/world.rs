//! The street itself: its clock, its houses, its people. Lets time pass from one event to the next and carries out what
//! the hub asks for, as the server would: work to the store, words to the bus, news between shards, liveness tasks.

use super::house::{Asker, House, Life};
use super::plant::Plant;
use super::tab::Tab;
use super::truth::Truth;
use super::weather::Weather;
use super::{HOUSES, Outcome, SKEW_MS, TABS, USERS, house};
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_engine::memory::Hall;
use tavern_engine::{Answer, ManualClock, Parcel, StoredSession, Ticket, Work};
use tavern_hub::node::registry::shards_of;
use tavern_hub::{Effects, LivenessTask, Scratch};
use tavern_hub::{Incoming, Input};
use tavern_wire::bus::BusMessage;

pub struct Street {
    pub now: Time,
    pub rng: Rng,
    pub plant: Plant,
    /// The planted fault has happened at least once.
    pub planted: bool,
    pub clock: Arc<ManualClock>,
    pub hall: Arc<Hall>,
    pub weather: Weather,
    pub houses: Vec<House>,
    pub tabs: Vec<Tab>,
    pub truth: Truth,
    pub alarms: BTreeSet<(Time, Alarm)>,
    pub links: u32,
    /// Who sits behind a link.
    pub links_of: BTreeMap<u32, usize>,
    pub states: u64,
    pub scratch: Scratch,
    /// What a planted fault holds back or brings again.
    pub kept: BTreeMap<(usize, String), Parcel>,
    pub trace: u64,
    /// Tells what happens, for somebody who reads it.
    pub loud: bool,
    pub heard: usize,
    pub resumed: usize,
    pub crashes: usize,
    pub naps: usize,
    pub cuts: usize,
    pub stops: usize,
    pub adopted: usize,
    pub refused: usize,
    pub epochs: usize,
}

/// When the clock of every street begins.
const BEGINS: Time = Time(1_700_000_000_000);

/// What was put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    Boot(usize),
    Wake(usize),
    Mend(usize),
    Calm,
    /// A tab asks again what was refused.
    Again(usize),
}

impl Street {
    pub fn new(seed: u64, plant: Plant) -> Street {
        let mut rng = Rng::new(seed ^ 0x5eed_0057_4ee7);
        let now = BEGINS;
        let clock = Arc::new(ManualClock::at(now));
        let weather = Weather::new(rng.fork());
        if plant == Plant::NeverLook {
            weather.sky().deaf = 60;
        }
        let hall = Hall::stepped(clock.clone(), Box::new(weather.clone()));
        let houses = (0..HOUSES).map(|number| House::new(number, &mut rng)).collect();
        let tabs = (0..TABS).map(|number| Tab::new(format!("user{}", number % USERS))).collect();
        let mut street = Street {
            now,
            rng,
            plant,
            planted: false,
            clock,
            hall,
            weather,
            houses,
            tabs,
            truth: Truth::default(),
            alarms: BTreeSet::new(),
            links: 0,
            links_of: BTreeMap::new(),
            states: 0,
            scratch: Scratch::default(),
            kept: BTreeMap::new(),
            trace: seed,
            loud: false,
            heard: 0,
            resumed: 0,
            crashes: 0,
            naps: 0,
            cuts: 0,
            stops: 0,
            adopted: 0,
            refused: 0,
            epochs: 0,
        };
        (0..HOUSES).for_each(|at| street.begin(at));
        street
    }

    /// A process starts, with a clock that is a little off.
    pub fn begin(&mut self, at: usize) {
        self.houses[at].skew = self.rng.below(2 * SKEW_MS as usize + 1) as i64 - SKEW_MS as i64;
        if self.plant == Plant::WildClock && at == 0 {
            self.planted = true;
            self.houses[at].skew = 9_000;
        }
        self.planted |= self.plant == Plant::Hasty;
        self.boot(at);
    }

    pub fn say(&self, words: impl FnOnce() -> String) {
        if self.loud {
            println!("{:>7} {}", self.now.ms() - BEGINS.ms(), words());
        }
    }

    pub fn note(&mut self, what: u64) {
        self.trace = (self.trace ^ what).wrapping_mul(0x100_0000_01b3).rotate_left(7);
    }

    /// A planted fault of this kind happens now, in so many of a hundred cases.
    pub fn strikes(&mut self, plant: Plant, percent: usize) -> bool {
        let now = self.plant == plant && self.rng.chance(percent);
        self.planted |= now;
        now
    }

    /// Lets time pass, event by event.
    pub fn advance(&mut self, ms: u64) -> Outcome {
        let until = self.now + ms;
        loop {
            self.settle()?;
            if self.now >= until {
                return Ok(());
            }
            let houses = self.houses.iter().filter_map(House::next_wake);
            let alarm = self.alarms.first().map(|(due, _)| *due);
            let due = houses.chain(alarm).chain(self.hall.next_due()).min().unwrap_or(until);
            let next = due.max(self.now + 1).min(until);
            self.clock.advance(next.since(self.now));
            self.now = next;
            self.ring()?;
            for at in 0..self.houses.len() {
                self.wake(at)?;
            }
        }
    }

    fn ring(&mut self) -> Outcome {
        while let Some((due, alarm)) = self.alarms.first().copied()
            && due <= self.now
        {
            self.alarms.remove(&(due, alarm));
            self.alarm(alarm)?;
        }
        Ok(())
    }

    pub fn alarm(&mut self, alarm: Alarm) -> Outcome {
        match alarm {
            Alarm::Boot(at) => {
                if self.houses[at].is_down() {
                    self.begin(at);
                }
                Ok(())
            }
            Alarm::Wake(at) => self.get_up(at),
            Alarm::Mend(at) => {
                house::cut(&self.weather, &self.houses[at].name, None);
                Ok(())
            }
            Alarm::Calm => {
                self.weather.sky().rough = 0;
                Ok(())
            }
            Alarm::Again(who) => {
                if self.tabs[who].is_idle() && self.tabs[who].todo.is_empty() {
                    self.tabs[who].catch_up();
                }
                self.pump(who)
            }
        }
    }

    /// A node that slept goes on: first it learns which transports went.
    fn get_up(&mut self, at: usize) -> Outcome {
        let local = self.houses[at].local(self.now);
        let Some(running) = self.houses[at].running().filter(|running| running.asleep) else { return Ok(()) };
        running.asleep = false;
        let mut late = Vec::new();
        for (shard, id, link) in std::mem::take(&mut running.gone) {
            let session = running.shards[shard].listener(id).and_then(|listener| listener.session());
            late.extend(session.map(|session| session.client));
            running.shards[shard].detach(local, id, link);
        }
        late.into_iter().for_each(|client| self.went_late(client, local));
        self.wake(at)?;
        self.take_in(at)
    }

    fn wake(&mut self, at: usize) -> Outcome {
        let now = self.now;
        if self.houses[at].next_wake().is_none_or(|due| due > now) {
            return Ok(());
        }
        let local = self.houses[at].local(now);
        let Some(running) = self.houses[at].running() else { return Ok(()) };
        for shard in &mut running.shards {
            if shard.next_wake().is_some_and(|due| due <= local) {
                shard.wake(local);
            }
        }
        running.liveness.wake(now);
        self.carry_out(at)
    }

    /// Everything that is due now.
    pub fn settle(&mut self) -> Outcome {
        while self.hall.step() {
            self.truth.observe(&self.hall, self.now)?;
            for change in std::mem::take(&mut self.truth.news) {
                self.say(|| format!("store: {change}"));
            }
            for at in 0..self.houses.len() {
                self.take_in(at)?;
            }
        }
        Ok(())
    }

    /// What the store and the bus have said to a house.
    fn take_in(&mut self, at: usize) -> Outcome {
        match &self.houses[at].life {
            Life::Down => return Ok(()),
            Life::Booting(_) => return self.go_on_booting(at),
            Life::Stopping(_) => {
                self.go_on_stopping(at);
                return Ok(());
            }
            Life::Up(running) if running.asleep => return Ok(()),
            Life::Up(_) => {}
        }
        let (now, local) = (self.now, self.houses[at].local(self.now));
        let Some(running) = self.houses[at].running() else { return Ok(()) };
        let answers = running.desk.take_answers();
        let words = running.desk.ear.take_words();
        let confirmed = running.desk.ear.take_confirmed();
        if answers.is_empty() && words.is_empty() && confirmed.is_empty() {
            return Ok(());
        }
        for (asker, ticket, answer) in answers {
            self.say(|| format!("house {at}: {asker:?} {} is answered {answer:?}", ticket.0));
            if let Asker::Shard(_) = asker
                && self.strikes(Plant::DropAnswer, 2)
            {
                continue;
            }
            let failed = matches!(answer, Answer::Failed(_));
            let Some(running) = self.houses[at].running() else { return Ok(()) };
            match asker {
                Asker::Shard(shard) => running.shards[shard].handle(local, Input::Answer(ticket, answer)),
                Asker::Liveness => running.liveness.answered(now, ticket, answer),
                // The sessions that it took up could not be removed: the boot has failed.
                Asker::Process if failed => {
                    self.crash(at);
                    self.alarms.insert((now + 500, Alarm::Boot(at)));
                    return Ok(());
                }
                Asker::Process => running.ready = true,
            }
        }
        self.hear_words(at, words);
        let Some(running) = self.houses[at].running() else { return Ok(()) };
        for (ticket, outcome) in confirmed {
            for (shard, link) in running.node.carrier.confirmed(ticket, outcome) {
                running.shards[shard].handle(local, Input::BusReady(vec![link]));
            }
        }
        self.carry_out(at)
    }

    fn hear_words(&mut self, at: usize, words: Vec<Parcel>) {
        let local = self.houses[at].local(self.now);
        for parcel in words {
            for parcel in self.tamper_news(at, parcel) {
                if let Some(BusMessage::Presence(news)) = BusMessage::decode(&parcel.payload) {
                    self.say(|| format!("house {at} hears {} {news:?}", parcel.subject.channel().is_some()));
                }
                let Some(running) = self.houses[at].running() else { return };
                match running.node.receive(&parcel) {
                    Some(Incoming::Person { told, mask }) => shards_of(mask)
                        .for_each(|shard| running.shards[shard].handle(local, Input::Status(told.clone()))),
                    Some(Incoming::Presence { told, mask }) => shards_of(mask)
                        .for_each(|shard| running.shards[shard].handle(local, Input::Presence(told.clone()))),
                    _ => {}
                }
            }
        }
    }

    /// Does what a server does after each turn, until nothing is left to do.
    pub fn carry_out(&mut self, at: usize) -> Outcome {
        loop {
            let mut quiet = self.give_orders(at);
            let shards = self.houses[at].shards;
            for shard in 0..shards {
                quiet &= self.carry_out_shard(at, shard)?;
            }
            if quiet {
                return Ok(());
            }
        }
    }

    fn carry_out_shard(&mut self, at: usize, shard: usize) -> Result<bool, String> {
        let local = self.houses[at].local(self.now);
        let Some(running) = self.houses[at].running() else { return Ok(true) };
        let effects = &mut running.shards[shard].effects;
        let Effects { dirty, closes, abroad, work, news, rumours, ready, .. } = effects;
        let quiet = dirty.is_empty() && closes.is_empty() && abroad.is_empty() && work.is_empty();
        if quiet && news.is_empty() && rumours.is_empty() && ready.is_empty() {
            return Ok(true);
        }
        let (dirty, closes) = (std::mem::take(dirty), std::mem::take(closes));
        let (work, ready) = (std::mem::take(work), std::mem::take(ready));
        let (news, rumours) = (std::mem::take(news), std::mem::take(rumours));
        running.shards[shard].speak();
        for (to, told) in news {
            running.shards[to].handle(local, Input::Presence(told.clone()));
        }
        for (to, told) in rumours {
            running.shards[to].handle(local, Input::Status(told.clone()));
        }
        for (ticket, work) in work {
            self.submit(at, shard, ticket, work);
        }
        for id in dirty {
            let Some(running) = self.houses[at].running() else { return Ok(true) };
            let link = running.shards[shard].listener(id).and_then(|listener| listener.link);
            if let Some(who) = link.and_then(|link| self.links_of.get(&link.id.0).copied()) {
                self.deliver(who)?;
            }
        }
        for (link, _) in closes {
            if let Some(who) = self.links_of.remove(&link.0) {
                self.closed(who, link);
            }
        }
        for link in ready {
            if let Some(who) = self.links_of.get(&link.0).copied() {
                self.run_pending(who)?;
            }
        }
        Ok(false)
    }

    fn submit(&mut self, at: usize, shard: usize, ticket: Ticket, work: Work) {
        let asker = Asker::Shard(shard);
        let tampered = self.tamper_work(work);
        let Some(running) = self.houses[at].running() else { return };
        match tampered {
            Ok(work) => running.desk.submit(asker, ticket, work),
            Err(answer) => running.desk.answer(asker, ticket, *answer),
        }
    }

    /// The work and tasks of a node's liveness. True: there were none.
    fn give_orders(&mut self, at: usize) -> bool {
        let local = self.houses[at].local(self.now);
        let Some(running) = self.houses[at].running() else { return true };
        let effects = std::mem::take(&mut running.liveness.effects);
        let quiet = effects.work.is_empty() && effects.tasks.is_empty();
        for (ticket, work) in effects.work {
            running.desk.submit(Asker::Liveness, ticket, work);
        }
        for order in effects.tasks {
            let Some(order) = self.tamper_order(at, order) else { continue };
            if !matches!(order, LivenessTask::Compare) {
                self.say(|| format!("house {at}: {order:?}"));
            }
            self.epochs += usize::from(matches!(order, LivenessTask::Announce));
            let Some(running) = self.houses[at].running() else { return true };
            let shards = &mut running.shards;
            match order {
                LivenessTask::TakeOver(taken) => {
                    shards[0].handle(local, Input::Liveness(LivenessTask::TakeOver(taken)));
                }
                LivenessTask::Overdue(deadline) => {
                    shards[0].handle(local, Input::Liveness(LivenessTask::Overdue(deadline)))
                }
                LivenessTask::Sweep(user) => {
                    shards[0].handle(local, Input::Liveness(LivenessTask::Sweep(user)))
                }
                LivenessTask::Compare => shards.iter_mut().for_each(|shard| {
                    shard.handle(local, Input::Liveness(LivenessTask::Compare));
                }),
                LivenessTask::Announce => shards
                    .iter_mut()
                    .for_each(|shard| shard.handle(local, Input::Liveness(LivenessTask::Announce))),
            }
        }
        quiet
    }

    /// The process of a house has ended: nobody sits there any more.
    pub fn house_is_gone(&mut self, at: usize, now: Time) {
        let local = self.houses[at].local(now);
        for who in 0..self.tabs.len() {
            if self.tabs[who].seat.as_ref().is_some_and(|seat| seat.house == at)
                && let Some(seat) = self.tabs[who].cut_off()
            {
                self.links_of.remove(&seat.caller.link.id.0);
                self.away(who, local);
            }
        }
    }

    /// A new process has taken up these sessions.
    pub fn house_is_open(&mut self, at: usize, left: &[StoredSession]) {
        let skew = self.houses[at].skew;
        for stored in left {
            if let Some(fact) = self.truth.facts.get_mut(&stored.client) {
                fact.skew = skew;
            }
        }
    }
}
