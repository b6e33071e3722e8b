//! One node's handles to the shared engine: its store and its bus.

use super::engine::{MemoryEngine, NodeAnswers};
use crate::bus::{Bus, BusPacket, BusReceiver};
use crate::error::Outage;
use crate::interest::Interest;
use crate::store::{AnswerReceiver, Store, StoreAnswer, Ticket, Work};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One node's handle to the store of a `MemoryEngine`.
pub struct MemoryStore {
    engine: Arc<MemoryEngine>,
    answers: Arc<NodeAnswers>,
    stopped: AtomicBool,
}

/// One node's handle to the bus of a `MemoryEngine`.
pub struct MemoryBus {
    engine: Arc<MemoryEngine>,
    subscriber: u64,
}

impl MemoryEngine {
    /// A handle to the store. `node` names it to the faults.
    pub fn store(
        self: &Arc<MemoryEngine>,
        node: &str,
        receiver: Arc<dyn AnswerReceiver>,
    ) -> Arc<MemoryStore> {
        let answers = NodeAnswers { node: node.into(), receiver, crashed: AtomicBool::new(false) };
        let (engine, answers) = (self.clone(), Arc::new(answers));
        Arc::new(MemoryStore { engine, answers, stopped: AtomicBool::new(false) })
    }

    /// A handle to the bus for the node of that name, which will not get its own messages.
    pub fn bus(self: &Arc<MemoryEngine>, node: &str, receiver: Arc<dyn BusReceiver>) -> Arc<MemoryBus> {
        Arc::new(MemoryBus { engine: self.clone(), subscriber: self.join(node, receiver) })
    }
}

impl MemoryStore {
    /// The node dies: work that it submitted may still be done, but it gets no answer.
    pub fn crash(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.answers.crashed.store(true, Ordering::SeqCst);
    }
}

impl Store for MemoryStore {
    fn submit(&self, work: Vec<(Ticket, Work)>) {
        if self.stopped.load(Ordering::SeqCst) {
            let failed = |(ticket, _)| (ticket, StoreAnswer::Failed(Outage::Stopped.into()));
            return self.answers.answer(work.into_iter().map(failed).collect());
        }
        self.engine.submit(&self.answers, work);
    }

    fn has_shared_clock(&self) -> bool {
        false
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    /// In stepped mode, submitted work still waits for its steps.
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

impl Bus for MemoryBus {
    fn publish(&self, batch: Vec<BusPacket>) {
        self.engine.publish(batch);
    }

    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool {
        self.engine.subscribe(self.subscriber, interests, ticket)
    }

    fn unsubscribe(&self, interests: Vec<Interest>) {
        self.engine.unsubscribe(self.subscriber, &interests);
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    /// A crash looks the same to the others.
    fn stop(&self) {
        self.engine.leave(self.subscriber);
    }
}

impl Drop for MemoryBus {
    fn drop(&mut self) {
        self.stop();
    }
}
