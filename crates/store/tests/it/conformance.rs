//! Runs the conformance suite against the in-memory engine, in both of its modes.

use std::sync::{Arc, Mutex};
use tavern_domain::Time;
use tavern_store::conformance::{BusUnderTest, StoreUnderTest};
use tavern_store::memory::{MemoryBus, MemoryEngine, MemoryStore, NoFaults};
use tavern_store::{
    AnswerReceiver, Bus, BusPacket, BusReceiver, Interest, ManualClock, Store, Ticket, Work, test_bus,
    test_store,
};

const START: Time = Time(1_790_000_000_000);

test_store!(immediate, Immediate::new(), &[]);
test_store!(stepped, Stepped::new(), &[]);
test_bus!(immediate_bus, Immediate::new(), &[]);
test_bus!(stepped_bus, Stepped::new(), &[]);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

/// Immediate mode.
struct Immediate {
    clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
}

impl Immediate {
    fn new() -> Immediate {
        let clock = clock();
        Immediate { engine: MemoryEngine::new(clock.clone()), clock }
    }
}

impl StoreUnderTest for Immediate {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        self.engine.store("node", receiver)
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Immediate {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        self.engine.bus(node, receiver)
    }
}

/// Stepped mode, stepped after every call.
struct Stepped {
    clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
    turn: Arc<Mutex<()>>,
}

struct Settled<T> {
    inner: Arc<T>,
    engine: Arc<MemoryEngine>,
    /// The engine is stepped by one thread at a time: two would change the order between step and delivery.
    turn: Arc<Mutex<()>>,
}

impl<T> Settled<T> {
    fn new(world: &Stepped, inner: Arc<T>) -> Settled<T> {
        Settled { inner, engine: world.engine.clone(), turn: world.turn.clone() }
    }

    fn settle(&self) {
        let _turn = self.turn.lock().unwrap();
        self.engine.settle();
    }
}

impl Stepped {
    fn new() -> Stepped {
        let clock = clock();
        Stepped {
            engine: MemoryEngine::stepped(clock.clone(), Box::new(NoFaults)),
            clock,
            turn: Arc::default(),
        }
    }
}

impl StoreUnderTest for Stepped {
    fn open(&self, receiver: Arc<dyn AnswerReceiver>) -> Arc<dyn Store> {
        Arc::new(Settled::new(self, self.engine.store("node", receiver)))
    }

    fn clock(&self) -> &ManualClock {
        &self.clock
    }
}

impl BusUnderTest for Stepped {
    fn open(&self, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        Arc::new(Settled::new(self, self.engine.bus(node, receiver)))
    }
}

impl Store for Settled<MemoryStore> {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        self.inner.submit(work);
        self.settle();
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn has_shared_clock(&self) -> bool {
        self.inner.has_shared_clock()
    }

    fn stop(&self) {
        self.inner.stop();
        self.settle();
    }
}

impl Bus for Settled<MemoryBus> {
    fn publish(&self, batch: Vec<BusPacket>) {
        self.inner.publish(batch);
        self.settle();
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        let holds = self.inner.subscribe(interests, ticket);
        self.settle();
        holds
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        self.inner.unsubscribe(interests);
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn stop(&self) {
        self.inner.stop();
    }
}
