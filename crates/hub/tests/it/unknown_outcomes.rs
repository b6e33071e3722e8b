//! Presence while the store is slow, fails, or has unknown outcomes: the test carries out each request by hand, when
//! and how it wants.

use crate::harness::{TestNode, code};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, HistoryLimits, Time, Verbs};
use tavern_hub::*;
use tavern_store::memory::{MemoryEngine, MemoryStore};
use tavern_store::{
    AnswerReceiver, Commit, Deadline, Found, ManualClock, NodeChange, Read, Store, StoreAnswer, StoreError,
    Ticket, Work,
};

#[derive(Default)]
struct Answers(Mutex<Vec<(Ticket, StoreAnswer)>>);

impl AnswerReceiver for Answers {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.0.lock().unwrap().extend(answers);
    }
}

struct SteppedNode {
    node: TestNode,
    store: Arc<MemoryStore>,
    answers: Arc<Answers>,
    /// Requests that were submitted and not carried out.
    held: Vec<(Ticket, Work)>,
    watcher: Caller,
}

impl SteppedNode {
    fn new() -> SteppedNode {
        let engine = MemoryEngine::new(Arc::new(ManualClock::at(Time(1_000_000))));
        let answers: Arc<Answers> = Arc::default();
        let store = engine.store("one", answers.clone());
        let open = NodeChange::Open { name: "one".into(), lease_ms: 600_000 };
        store.submit(vec![(Ticket(0), Work::Commit(Commit { node: Some(open), ..Commit::default() }))]);
        let opened = answers.0.lock().unwrap().pop();
        let Some((_, StoreAnswer::Committed(receipt))) = opened else { panic!("no epoch") };
        let epoch = receipt.epoch.unwrap_or(Epoch(0));
        let mut settings =
            Settings { node: "one".into(), epoch, commands_per_second: 0, ..Settings::default() };
        let limits = HistoryLimits { messages: 10, bytes: 1 << 20, ttl_ms: 60_000 };
        let history = Some(HistoryRules { limits, with_subscribe: true });
        let chat = KindRules { allow: Verbs::ALL, history, ..KindRules::default() };
        settings.kinds.insert("chat".into(), chat);
        let mut node = TestNode::new(settings);
        node.has_store = true;
        let watcher = node.socket();
        let mut counter = SteppedNode { node, store, answers, held: Vec::new(), watcher };
        counter.watcher = counter.client("watcher");
        let mut watcher = counter.watcher.clone();
        counter.say(&mut watcher, r#"{"op":"subscribe","channel":"game#A","presence":true}"#);
        counter
    }

    /// A user whose presence in their own channel is committed.
    fn client(&mut self, user: &str) -> Caller {
        let mut caller = self.node.socket();
        self.say(&mut caller, &format!(r#"{{"op":"hello","token":"{user}"}}"#));
        caller
    }

    fn collect(&mut self) -> usize {
        self.held.extend(std::mem::take(&mut self.node.shards[0].core.effects.work));
        self.held.len()
    }

    fn ask(&self, work: Work) -> StoreAnswer {
        self.store.submit(vec![(Ticket(0), work)]);
        self.answers.0.lock().unwrap().pop().unwrap().1
    }

    /// Carries out one request and gives the hub the answer.
    fn perform(&mut self, at: usize) {
        let (ticket, work) = self.held.remove(at);
        let answer = self.ask(work);
        self.node.shards[0].handle(self.node.now, ShardEvent::Answer(ticket, answer));
        self.collect();
    }

    /// The hub gets the answer that the store is unavailable; the commit may have happened all the same.
    fn fail(&mut self, at: usize, happens: bool) {
        let (ticket, work) = self.held.remove(at);
        if happens {
            self.ask(work);
        }
        let source = Arc::new(std::io::Error::other("down"));
        let error = StoreError::Unavailable { retry_after_ms: 250, source };
        self.node.shards[0].handle(self.node.now, ShardEvent::Answer(ticket, StoreAnswer::Failed(error)));
        self.collect();
    }

    fn settle(&mut self) {
        while self.collect() > 0 {
            self.perform(0);
        }
    }

    fn pass(&mut self, ms: u64) {
        self.node.pass(ms);
        self.collect();
    }

    /// Lets time pass with a store that answers.
    fn live(&mut self, ms: u64) {
        for _ in 0..ms / 50 {
            self.pass(50);
            self.settle();
        }
    }

    fn is_answered(&self, caller: &Caller) -> bool {
        self.node.shards[0].core.effects.ready.contains(&caller.link.id)
    }

    fn begin(&mut self, caller: &mut Caller, frame: &str) {
        assert_eq!(self.node.flow(caller, frame).0, Flow::Wait);
        self.collect();
    }

    /// The answer to a command that was begun.
    fn answer(&mut self, caller: &mut Caller, frame: &str) -> Value {
        assert!(self.node.shards[0].core.effects.ready.contains(&caller.link.id), "{frame} has no answer");
        self.node.shards[0].core.effects.ready.retain(|link| *link != caller.link.id);
        self.node.send(caller, frame)
    }

    fn say(&mut self, caller: &mut Caller, frame: &str) -> Value {
        self.begin(caller, frame);
        self.settle();
        let reply = self.answer(caller, frame);
        self.settle();
        reply
    }

    fn received(&mut self) -> String {
        let events = self.node.events(&self.watcher.clone());
        let names = events.iter().map(|event| event["event"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    }

    fn count(&self) -> u64 {
        let read = Read::Roster { channel: "game#A".into(), after: None, limit: 10 };
        let StoreAnswer::Read(Found::Roster(roster)) = self.ask(Work::Read(read)) else {
            panic!("no roster")
        };
        roster.users
    }

    fn deadlines(&self) -> Vec<Deadline> {
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 10 };
        let StoreAnswer::Read(Found::Deadlines(page)) = self.ask(Work::Read(read)) else {
            panic!("no deadlines")
        };
        page.rows.into_iter().filter(|deadline| deadline.name.contains("game#A")).collect()
    }
}

const JOIN: &str = r#"{"op":"join","channel":"game#A","state":1}"#;
const LEAVE: &str = r#"{"op":"leave","channel":"game#A"}"#;

#[test]
fn refused_join_that_was_committed_ends_with_its_session() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.begin(&mut ann, JOIN);
    counter.fail(0, true);
    assert_eq!(code(&counter.answer(&mut ann, JOIN)), "unavailable");
    counter.settle();
    assert_eq!(counter.count(), 1, "it was committed");
    counter.node.detach(&ann);
    counter.live(20_000);
    assert_eq!(counter.count(), 0);
}

#[test]
fn refused_leave_is_retried() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.say(&mut ann, JOIN);
    counter.begin(&mut ann, LEAVE);
    counter.fail(0, false);
    assert_eq!(code(&counter.answer(&mut ann, LEAVE)), "unavailable");
    counter.live(1_000);
    assert_eq!(counter.count(), 0);
}

#[test]
fn last_command_of_a_session_wins() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.say(&mut ann, JOIN);
    counter.begin(&mut ann, LEAVE);
    counter.fail(0, false);
    counter.answer(&mut ann, LEAVE);
    // It joins again while its leave waits for the store.
    counter.begin(&mut ann, JOIN);
    counter.live(1_000);
    assert_eq!(code(&counter.answer(&mut ann, JOIN)), "ok");
    assert_eq!(counter.count(), 1);
    assert!(counter.received().ends_with("user_offline user_online client_online"));
}

#[test]
fn commands_behind_a_retried_one_are_refused_at_once() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    let mut tab = counter.client("ann");
    counter.say(&mut ann, JOIN);
    counter.begin(&mut ann, LEAVE);
    counter.begin(&mut tab, JOIN);
    counter.fail(0, false);
    assert_eq!(code(&counter.answer(&mut ann, LEAVE)), "unavailable");
    assert_eq!(code(&counter.answer(&mut tab, JOIN)), "unavailable");
    counter.live(1_000);
    assert_eq!(counter.count(), 0, "the departure happened");
}

#[test]
fn loss_committed_late_does_not_end_a_client_that_is_back() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.say(&mut ann, JOIN);
    counter.received();
    let id = ann.listener.unwrap();
    let session = counter.node.shards[0].core.listener(id).unwrap().session().unwrap();
    let (key, identity) = (session.key, session.identity.clone());
    counter.node.detach(&ann);
    counter.pass(3_000);
    assert_eq!(counter.held.len(), 2, "the loss is on its way, there and in the user's own channel");
    counter.fail(0, false);
    counter.fail(0, false);
    let now = counter.node.now;
    counter.node.shards[0].attach(now, key, &identity, ann.link, None).unwrap();
    counter.live(30_000);
    assert_eq!((counter.count(), counter.received().as_str()), (1, ""));
}

#[test]
fn update_of_an_absent_client_is_refused_without_an_event() {
    let mut counter = SteppedNode::new();
    let (mut ann, mut other) = (counter.client("ann"), counter.client("ann"));
    counter.say(&mut ann, JOIN);
    counter.node.detach(&ann);
    counter.live(5_000);
    // The grace period is over, and no node has settled it: the update comes first.
    counter.node.now = counter.node.now + 20_000;
    let frame = r#"{"op":"update","channel":"game#A","state":2}"#;
    assert_eq!(code(&counter.say(&mut other, frame)), "not_found");
    counter.live(1_000);
    assert_eq!(counter.received(), "user_online client_online client_offline user_offline");
}

#[test]
fn deadline_that_applies_again_is_not_deleted() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.say(&mut ann, JOIN);
    let stale = Deadline::new(counter.node.now, "grace", "6:game#A/ann");
    let now = counter.node.now;
    counter.node.shards[0].handle(now, ShardEvent::Liveness(LivenessTask::Overdue(stale.clone())));
    counter.collect();
    counter.perform(0);
    assert_eq!(counter.held.len(), 1, "it will be tidied away");
    let (ticket, tidy) = counter.held.remove(0);
    counter.node.detach(&ann);
    counter.live(5_000);
    assert_eq!(counter.deadlines().len(), 1);
    counter.held.push((ticket, tidy));
    counter.settle();
    assert_eq!(counter.deadlines().len(), 1, "a client was lost meanwhile");
}

#[test]
fn logout_reverts_a_join_in_progress() {
    let mut counter = SteppedNode::new();
    let mut ann = counter.client("ann");
    counter.begin(&mut ann, JOIN);
    counter.fail(0, true);
    counter.answer(&mut ann, JOIN);
    counter.node.send(&mut ann, r#"{"op":"bye"}"#);
    counter.settle();
    assert_eq!(counter.count(), 0);
}

#[test]
fn a_command_keeps_the_deadline_of_its_arrival_wherever_it_waits() {
    let mut node = SteppedNode::new();
    let (mut ann, mut again) = (node.client("ann"), node.client("ann"));
    let join = r##"{"op":"join","id":1,"channel":"game#A"}"##;
    node.begin(&mut ann, join);
    node.pass(5_000);
    // Behind the first one.
    node.begin(&mut again, join);
    node.pass(9_900);
    assert!(!node.is_answered(&ann) && !node.is_answered(&again));
    node.pass(200);
    assert_eq!(code(&node.answer(&mut ann, join)), "unavailable");
    assert!(!node.is_answered(&again), "it arrived later");
    node.pass(5_000);
    assert_eq!(code(&node.answer(&mut again, join)), "unavailable");
    // The store answers after all: nobody gets a second reply.
    node.settle();
    assert!(!node.is_answered(&ann) && !node.is_answered(&again));
}

#[test]
fn a_subscriber_is_refused_in_time_while_the_history_cannot_be_read() {
    let mut node = SteppedNode::new();
    let (mut ann, mut bob) = (node.client("ann"), node.client("bob"));
    let subscribe = r##"{"op":"subscribe","id":1,"channel":"chat#A","last":5}"##;
    node.begin(&mut ann, subscribe);
    node.pass(10_000);
    // The read of the first one is still under way.
    node.begin(&mut bob, subscribe);
    node.pass(5_100);
    assert_eq!(code(&node.answer(&mut ann, subscribe)), "unavailable");
    assert!(!node.is_answered(&bob));
    node.settle();
    assert_eq!(node.answer(&mut bob, subscribe)["ok"]["offset"], 0, "it arrived later");
}
