//! One delivery with a log, a store that saves late and loses unsaved changes in a crash, and an endpoint with scripted
//! outcomes. After every step the invariants are checked: nothing lost, nothing sent too early, nothing above its limit.

mod invariants;

use proptest::prelude::*;
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_domain::delivery::*;

#[derive(Clone, Debug)]
pub enum Step {
    Publish {
        count: u64,
        bytes: u32,
    },
    /// As much as is wanted, or less.
    Read {
        max: usize,
    },
    Pass {
        ms: u64,
    },
    Saved,
    Start,
    Answer {
        flight: usize,
        reply: EndpointReply<u64>,
        random: u64,
    },
    ChangeRules {
        timeout_ms: u64,
        max_events: u32,
        max_bytes: u64,
        concurrency: u32,
    },
    Enable,
    Disable,
    /// After this part, in percent, of what there is.
    Rewind {
        percent: u64,
    },
    ShedLog {
        percent: u64,
    },
    Retry,
    /// The save in progress may have reached the store.
    Crash {
        saved: bool,
    },
}

/// A save: the progress and the changes of dead letters.
type Save = (DeliveryProgress, Vec<EntryRange>, Vec<u64>);

pub struct World {
    pub now: Time,
    pub delivery: Delivery,
    pub rules: DeliveryRules,
    pub policy: RetryPolicy,
    log: Vec<QueuedEvent>,
    floor: u64,
    stored: DeliveryProgress,
    parked: BTreeMap<u64, EntryRange>,
    saving: Option<Save>,
    flights: Vec<u64>,
    /// The events that the endpoint acknowledged, and how often.
    acknowledged: BTreeMap<u64, u32>,
    /// Every batch that was ever sent, by number.
    sent: BTreeMap<u64, Vec<EntryRange>>,
    numbered: u64,
    max_events: u64,
    max_lanes: u64,
    /// After a crash or a replay events may be acknowledged twice.
    pub repeats: bool,
    /// After a replay or a dead letter events may come after later ones.
    pub disorder: bool,
}

pub const POLICY: RetryPolicy =
    RetryPolicy { backoff_min_ms: 1_000, backoff_max_ms: 60_000, disable_after_ms: 0 };
/// Longer than any endpoint here asks for.
pub const THROTTLE_MS: u64 = 90_000;

fn mark(seq: u64) -> LogMark {
    LogMark { seq, position: 3 * seq }
}

impl World {
    pub fn new(concurrency: u32, policy: RetryPolicy) -> World {
        let rules = DeliveryRules {
            timeout_ms: 500,
            max_events: 4,
            max_bytes: 1_000,
            envelope_bytes: 50,
            concurrency,
        };
        World {
            now: Time(1_000_000),
            delivery: Delivery::new(Time(1_000_000), DeliveryProgress::default(), rules, policy),
            rules,
            policy,
            log: Vec::new(),
            floor: 0,
            stored: DeliveryProgress::default(),
            parked: BTreeMap::new(),
            saving: None,
            flights: Vec::new(),
            acknowledged: BTreeMap::new(),
            sent: BTreeMap::new(),
            numbered: 0,
            max_events: 4,
            max_lanes: u64::from(concurrency),
            repeats: false,
            disorder: false,
        }
    }

    pub fn step(&mut self, step: Step) {
        match step {
            Step::Publish { count, bytes } => {
                for seq in (self.log.len() as u64 + 1..).take(count as usize) {
                    self.log.push(QueuedEvent {
                        seq,
                        position: mark(seq).position,
                        bytes,
                        accepted: self.now,
                    });
                }
            }
            Step::Read { max } => self.read(max),
            Step::Pass { ms } => {
                self.now = self.now + ms;
                self.turn(None);
            }
            Step::Saved => self.save(),
            Step::Start => self.start(),
            Step::Answer { flight, reply, random } => self.answer(flight, reply, random),
            Step::ChangeRules { timeout_ms, max_events, max_bytes, concurrency } => {
                self.rules = DeliveryRules { timeout_ms, max_events, max_bytes, concurrency, ..self.rules };
                self.max_events = self.max_events.max(u64::from(max_events));
                self.max_lanes = self.max_lanes.max(u64::from(concurrency));
                self.turn(Some(DeliveryInput::Rules(self.rules)));
            }
            Step::Enable => self.turn(Some(DeliveryInput::Enable)),
            Step::Disable => self.turn(Some(DeliveryInput::Disable)),
            Step::Rewind { percent } => {
                (self.repeats, self.disorder) = (true, true);
                self.turn(Some(DeliveryInput::Rewind(mark(self.log.len() as u64 * percent / 100))));
            }
            Step::ShedLog { percent } => {
                self.floor = self.floor.max(self.log.len() as u64 * percent / 100);
                self.turn(Some(DeliveryInput::Shed { through: mark(self.floor) }));
            }
            Step::Retry => {
                self.disorder = true;
                let dead = self.parked.values().map(|&run| RetriedDeadLetter { run, bytes: 100 }).collect();
                self.turn(Some(DeliveryInput::Retry(dead)));
            }
            Step::Crash { saved } => self.crash(saved),
        }
        self.check();
    }

    fn turn(&mut self, input: Option<DeliveryInput>) {
        let mut effects = Vec::new();
        match input {
            Some(input) => self.delivery.handle(self.now, input, &mut effects),
            None => self.delivery.wake(self.now, &mut effects),
        }
        for effect in effects {
            if let DeliveryEffect::Save { parked, retried } = effect {
                assert!(self.saving.is_none(), "one save at a time");
                self.saving = Some((self.delivery.progress().clone(), parked, retried));
            }
        }
    }

    fn read(&mut self, max: usize) {
        let Some(want) = self.delivery.want(self.now) else { return };
        assert!(u64::from(want.events) <= self.max_events);
        let held = want.after.seq - self.delivery.progress().reached().seq;
        assert!(held <= self.max_events, "{held} events are held");
        assert_eq!(want.after, mark(want.after.seq), "positions are those of the log");
        if want.after.seq < self.floor {
            return self.turn(Some(DeliveryInput::Shed { through: mark(self.floor) }));
        }
        let follow = self.log.iter().filter(|item| item.seq > want.after.seq);
        let items = follow.take(max.min(want.events as usize)).copied().collect();
        self.turn(Some(DeliveryInput::Items(items)));
    }

    fn save(&mut self) {
        if self.saving.is_some() {
            self.store();
            self.turn(Some(DeliveryInput::Saved));
        }
    }

    fn store(&mut self) {
        let Some((progress, parked, retried)) = self.saving.take() else { return };
        self.stored = progress;
        for run in parked {
            assert_eq!(run.entries(), 1, "a dead letter is one entry");
            self.parked.insert(run.first, run);
        }
        for seq in retried {
            self.parked.remove(&seq).expect("what is tried again was parked");
        }
    }

    fn start(&mut self) {
        let troubled = self.delivery.progress().failure;
        let ready = self.delivery.is_ready(self.now);
        let sending = self.delivery.start(self.now);
        assert_eq!(ready, sending.is_some());
        let Some(AttemptStart { batch: number, reason, .. }) = sending else { return };
        self.flights.push(number);
        let batch = self.delivery.batch(number).expect("what is sent is not settled");
        let stored = self.stored.batches.iter().find(|stored| stored.number == number);
        assert_eq!(stored.map(|stored| &stored.ranges), Some(&batch.ranges), "a save comes before");
        let first = self.sent.entry(number).or_insert_with(|| batch.ranges.clone());
        assert_eq!(first, &batch.ranges, "a batch never changes");
        assert!(self.delivery.in_flight() as u64 <= u64::from(self.rules.concurrency));
        let oldest = self.delivery.progress().batches[0].number;
        if let Some(failure) = troubled {
            assert!(failure.retry_at <= self.now && reason == BatchReason::Probe);
            assert_eq!((self.delivery.in_flight(), number), (1, oldest), "a probe is the oldest, alone");
        }
        assert!(self.rules.concurrency > 1 || number == oldest, "one at a time means in order");
    }

    fn answer(&mut self, flight: usize, reply: EndpointReply<u64>, random: u64) {
        if self.flights.is_empty() {
            return;
        }
        let batch = self.flights.remove(flight % self.flights.len());
        self.receive(batch, &reply);
        self.turn(Some(DeliveryInput::Answered { batch, reply, random }));
    }

    /// Records what the endpoint acknowledged.
    fn receive(&mut self, batch: u64, reply: &EndpointReply<u64>) {
        let failed: &[u64] = match reply.outcome {
            DeliveryOutcome::Delivered => &[],
            DeliveryOutcome::Partly => &reply.failed,
            _ => return,
        };
        for run in &self.sent[&batch] {
            for seq in run.first..=run.last {
                let entry = if run.gap { run.first } else { seq };
                if !failed.contains(&entry) {
                    *self.acknowledged.entry(seq).or_default() += 1;
                }
            }
        }
    }

    fn crash(&mut self, saved: bool) {
        self.repeats = true;
        if saved {
            self.store();
        }
        self.saving = None;
        // Attempts in flight may have arrived.
        for batch in std::mem::take(&mut self.flights).into_iter().filter(|batch| batch % 2 == 0) {
            self.receive(batch, &DeliveryOutcome::Delivered.into());
        }
        self.delivery = Delivery::new(self.now, self.stored.clone(), self.rules, self.policy);
        self.turn(None);
    }

    /// The endpoint and the store work. Returns when everything was settled.
    pub fn recover(&mut self) -> Time {
        for _ in 0..10_000 {
            self.save();
            self.read(usize::MAX);
            self.start();
            self.answer(0, DeliveryOutcome::Delivered.into(), u64::MAX);
            self.check();
            let idle = self.flights.is_empty() && self.saving.is_none() && !self.delivery.is_ready(self.now);
            let more =
                self.delivery.want(self.now).is_some_and(|want| want.after.seq < self.log.len() as u64);
            if idle && !more {
                let Some(wake) = self.delivery.next_wake() else { break };
                self.now = wake;
                self.turn(None);
            }
        }
        let progress = self.delivery.progress();
        assert_eq!((progress.batches.len(), progress.sealed.seq), (0, self.log.len() as u64), "{progress:?}");
        assert!(self.delivery.is_at_rest() && progress.failure.is_none());
        assert_eq!(progress, &self.stored);
        self.now
    }
}

pub fn reply() -> impl Strategy<Value = EndpointReply<u64>> {
    prop_oneof![
        6 => Just(DeliveryOutcome::Delivered.into()),
        2 => prop::collection::vec(0..60u64, 0..6).prop_map(EndpointReply::partly),
        1 => Just(DeliveryOutcome::Gone.into()),
        2 => Just(DeliveryOutcome::TooLarge.into()),
        2 => prop::option::of(0..THROTTLE_MS).prop_map(EndpointReply::throttled),
        4 => Just(DeliveryOutcome::Refused.into()),
        3 => Just(DeliveryOutcome::Failed.into()),
    ]
}
