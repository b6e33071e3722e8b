//! Two nodes or more on one in-memory engine: a bus between them and a store behind them, stepped by hand in virtual
//! time.

use super::TestNode;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tavern_domain::{Epoch, Time};
use tavern_hub::*;
use tavern_store::memory::{Faults, MemoryEngine, MemoryStore, MessageFault, WorkFault};
use tavern_store::{
    AnswerReceiver, BusError, BusLoss, BusPacket, BusReceiver, Clock, Commit, Follow, Found, ManualClock,
    NodeChange, Read, Row, Store, StoreAnswer, Ticket, Work,
};

/// Decides the fault of a request to the store.
pub type WorkFates = Box<dyn FnMut(&str, &Work) -> WorkFault + Send>;

/// Decides the fault of a packet from one node to another: the delay of each copy.
pub type Fate = Box<dyn FnMut(&str, &str, &BusPacket) -> Vec<u64> + Send>;

/// Confirms subscriptions after this long, or refuses them.
pub struct ScriptedFaults {
    confirms_after: Option<u64>,
    /// Every so many packets are lost silently.
    lose_every: Option<u64>,
    carried: u64,
    fate: Arc<Mutex<Option<Fate>>>,
    work_fate: Arc<Mutex<Option<WorkFates>>>,
}

impl Faults for ScriptedFaults {
    fn message(&mut self, from: &str, to: &str, packet: &BusPacket) -> MessageFault {
        self.carried += 1;
        if let Some(fate) = self.fate.lock().unwrap().as_mut() {
            return MessageFault { copies: fate(from, to, packet), reported: false };
        }
        if self.lose_every.is_some_and(|every| self.carried.is_multiple_of(every)) {
            return MessageFault::lost();
        }
        match &*packet.payload {
            b"\"lost\"" => MessageFault { copies: Vec::new(), reported: true },
            _ => MessageFault::once(),
        }
    }

    fn work(&mut self, node: &str, work: &Work) -> WorkFault {
        self.work_fate.lock().unwrap().as_mut().map_or(WorkFault::NONE, |fate| fate(node, work))
    }

    fn subscribe(&mut self, _node: &str) -> Option<u64> {
        self.confirms_after
    }
}

#[derive(Default)]
pub struct NodeReceiver {
    answers: Mutex<Vec<(Ticket, StoreAnswer)>>,
    packets: Mutex<Vec<BusPacket>>,
    confirmed: Mutex<Vec<(Ticket, Result<(), BusError>)>>,
    lost: Mutex<Vec<BusLoss>>,
}

impl BusReceiver for NodeReceiver {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        self.confirmed.lock().unwrap().push((ticket, outcome));
    }

    fn messages(&self, packets: Vec<BusPacket>) {
        self.packets.lock().unwrap().extend(packets);
    }

    fn lost(&self, lost: BusLoss) {
        self.lost.lock().unwrap().push(lost);
    }
}

impl AnswerReceiver for NodeReceiver {
    fn answer(&self, answers: Vec<(Ticket, StoreAnswer)>) {
        self.answers.lock().unwrap().extend(answers);
    }
}

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

pub struct TestCluster {
    reads: u64,
    commits: u64,
    carried: u64,
    settings: Settings,
    clock: Arc<ManualClock>,
    engine: Arc<MemoryEngine>,
    nodes: Vec<(TestNode, Arc<NodeReceiver>)>,
    stores: Vec<Arc<MemoryStore>>,
    dead: Vec<usize>,
    fate: Arc<Mutex<Option<Fate>>>,
    work_fate: Arc<Mutex<Option<WorkFates>>>,
}

impl TestCluster {
    pub fn new(confirms_after: Option<u64>) -> TestCluster {
        TestCluster::losing(confirms_after, None)
    }

    /// With a bus that loses every so many packets.
    pub fn losing(confirms_after: Option<u64>, lose_every: Option<u64>) -> TestCluster {
        TestCluster::with(confirms_after, lose_every, &Settings::default())
    }

    /// With so many nodes.
    pub fn of(nodes: usize) -> TestCluster {
        TestCluster::built(nodes, Some(0), None, &Settings::default())
    }

    /// With so many nodes of these settings.
    pub fn sized(nodes: usize, settings: &Settings) -> TestCluster {
        TestCluster::built(nodes, Some(0), None, settings)
    }

    pub fn with(confirms_after: Option<u64>, lose_every: Option<u64>, settings: &Settings) -> TestCluster {
        TestCluster::built(2, confirms_after, lose_every, settings)
    }

    fn built(
        nodes: usize,
        confirms_after: Option<u64>,
        lose_every: Option<u64>,
        settings: &Settings,
    ) -> TestCluster {
        let clock = Arc::new(ManualClock::at(Time(1_000_000)));
        let fate: Arc<Mutex<Option<Fate>>> = Arc::default();
        let work_fate: Arc<Mutex<Option<WorkFates>>> = Arc::default();
        let script = ScriptedFaults {
            confirms_after,
            lose_every,
            carried: 0,
            fate: fate.clone(),
            work_fate: work_fate.clone(),
        };
        let engine = MemoryEngine::stepped(clock.clone(), Box::new(script));
        let mut cluster = TestCluster {
            reads: 0,
            commits: 0,
            carried: 0,
            settings: settings.clone(),
            clock,
            engine,
            nodes: Vec::new(),
            stores: Vec::new(),
            dead: Vec::new(),
            fate,
            work_fate,
        };
        for name in &NAMES[..nodes] {
            cluster.build(name);
        }
        cluster.set_other_nodes();
        cluster.settle();
        cluster
    }

    /// Opens another node of the cluster.
    pub fn build(&mut self, name: &str) -> usize {
        let receiver: Arc<NodeReceiver> = Arc::default();
        let store = self.engine.store(name, receiver.clone());
        let open = NodeChange::Open { name: name.into(), lease_ms: 600_000 };
        let open = Work::Commit(Commit { node: Some(open), ..Commit::default() });
        store.submit(vec![(Ticket(0), open)]);
        self.engine.settle();
        let epoch = match receiver.answers.lock().unwrap().pop() {
            Some((_, StoreAnswer::Committed(receipt))) => receipt.epoch.unwrap_or(Epoch(0)),
            other => panic!("no epoch but {other:?}"),
        };
        let settings = Settings { node: name.into(), epoch, commands_per_second: 0, ..self.settings.clone() };
        let mut node = TestNode::new(settings);
        (node.now, node.has_store) = (self.clock.now(), true);
        node.shards[0].core.node().bus_interests.set_bus(self.engine.bus(name, receiver.clone()));
        node.shards[0].core.node().listen();
        self.nodes.push((node, receiver));
        self.stores.push(store);
        self.nodes.len() - 1
    }

    /// Every node knows which others live.
    pub fn set_other_nodes(&mut self) {
        let names: Vec<Arc<str>> = self
            .nodes
            .iter()
            .map(|(node, _)| node.shards[0].core.node().settings.node.as_str().into())
            .collect();
        for (at, (node, _)) in self.nodes.iter().enumerate() {
            let others = names.iter().enumerate().filter(|(other, _)| *other != at);
            node.shards[0].core.node().set_other_nodes(others.map(|(_, name)| name.clone()).collect());
        }
    }

    /// Decides about each packet from now on.
    pub fn set_fate(&mut self, fate: impl FnMut(&str, &str, &BusPacket) -> Vec<u64> + Send + 'static) {
        *self.fate.lock().unwrap() = Some(Box::new(fate));
    }

    /// Decides the fault of each store request.
    pub fn set_work_fate(&mut self, fate: impl FnMut(&str, &Work) -> WorkFault + Send + 'static) {
        *self.work_fate.lock().unwrap() = Some(Box::new(fate));
    }

    pub fn heal(&mut self) {
        *self.work_fate.lock().unwrap() = None;
        *self.fate.lock().unwrap() = None;
    }

    /// Ends without a clean stop.
    pub fn crash(&mut self, at: usize) {
        self.nodes[at].0.shards[0].core.node().bus_interests.bus().unwrap().stop();
        self.dead.push(at);
    }

    pub fn is_dead(&self, at: usize) -> bool {
        self.dead.contains(&at)
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The rows in the store at this moment, whatever is in progress.
    pub fn stored(&self, read: Read) -> Found {
        self.engine.peek(read)
    }

    /// Lets everything happen until this node has taken a session out of the store; then it crashes.
    pub fn stop_when_taken(&mut self, at: usize) {
        let takes =
            |work: &(Ticket, Work)| matches!(&work.1, Work::Commit(commit) if !commit.deletes.is_empty());
        for _ in 0..1_000 {
            let work = &self.nodes[at].0.shards[0].core.effects.work;
            if work.iter().any(takes) {
                let work = std::mem::take(&mut self.nodes[at].0.shards[0].core.effects.work);
                self.stores[at].submit(work);
                return self.crash(at);
            }
            self.step();
        }
        panic!("it takes nothing");
    }

    pub fn node(&mut self, at: usize) -> &mut TestNode {
        &mut self.nodes[at].0
    }

    /// Delivers everything that is in progress, until nothing is.
    pub fn settle(&mut self) {
        while self.step() {}
    }

    /// The same, but false if it does not end.
    pub fn settles_within(&mut self, steps: usize) -> bool {
        (0..steps).any(|_| !self.step())
    }

    /// Does the next thing that is in progress. False: nothing is.
    pub fn step(&mut self) -> bool {
        for (at, ((node, _), store)) in self.nodes.iter_mut().zip(&self.stores).enumerate() {
            if self.dead.contains(&at) {
                continue;
            }
            let work = std::mem::take(&mut node.shards[0].core.effects.work);
            self.reads += work.iter().filter(|(_, work)| matches!(work, Work::Read(_))).count() as u64;
            self.commits += work.iter().filter(|(_, work)| matches!(work, Work::Commit(_))).count() as u64;
            store.submit(work);
            let packets = &node.shards[0].core.effects.bus_messages;
            let people = packets.iter().filter(|packet| packet.subject.kind() == "_people");
            self.carried += people.count() as u64;
            node.shards[0].core.end_publishing();
        }
        let mut passed_on = false;
        for (at, (node, _)) in self.nodes.iter_mut().enumerate() {
            for (_, message) in std::mem::take(&mut node.shards[0].core.effects.control) {
                passed_on = true;
                if !self.dead.contains(&at) {
                    node.shards[0].handle(node.now, ShardEvent::Control(message));
                }
            }
        }
        if passed_on {
            return true;
        }
        if !self.engine.step() {
            return false;
        }
        for (at, (node, receiver)) in self.nodes.iter_mut().enumerate() {
            if !self.dead.contains(&at) {
                take(node, receiver);
            }
        }
        true
    }

    /// All of these users follow one user already.
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

    /// Writes rows that no node writes.
    pub fn write(&mut self, commit: Commit) {
        self.stores[0].submit(vec![(Ticket(u64::MAX), Work::Commit(commit))]);
        self.settle();
    }

    /// Reads that the nodes sent to the store so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Commits that the nodes sent to the store so far.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Messages about people that were published on the bus so far.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    pub fn pass(&mut self, ms: u64) {
        self.clock.advance(ms);
        self.nodes.iter_mut().for_each(|(node, _)| node.pass(ms));
        self.settle();
    }

    /// A socket whose hello was answered.
    pub fn client(&mut self, at: usize, token: &str) -> (Caller, Value) {
        let mut caller = self.node(at).socket();
        let hello = self.send(at, &mut caller, &format!(r#"{{"op":"hello","token":"{token}"}}"#));
        assert!(hello["ok"].is_object(), "{hello}");
        (caller, hello["ok"].clone())
    }

    /// Runs a command, and continues it each time something that it waited for is there.
    pub fn send(&mut self, at: usize, caller: &mut Caller, frame: &str) -> Value {
        loop {
            let (flow, reply) = self.node(at).run(0, caller, frame);
            if flow != Flow::Wait {
                self.settle();
                return reply;
            }
            for _ in 0..8_000 {
                self.settle();
                if self.node(at).shards[0].core.effects.ready.contains(&caller.link.id) {
                    break;
                }
                self.pass(1);
            }
            let ready = std::mem::take(&mut self.node(at).shards[0].core.effects.ready);
            assert!(ready.contains(&caller.link.id), "{frame} waits for ever");
        }
    }

    /// Lets time pass in steps of a millisecond, so that timers run when they are due.
    pub fn live(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.pass(1));
    }

    /// Subscribes and waits for it.
    pub fn subscribe(&mut self, at: usize, caller: &mut Caller, what: &str) -> Value {
        let frame = format!(r#"{{"op":"subscribe",{what}}}"#);
        let (flow, reply) = self.node(at).flow(caller, &frame);
        assert_eq!(flow, Flow::Wait, "{reply}");
        self.settle();
        let ready = std::mem::take(&mut self.node(at).shards[0].core.effects.ready);
        assert_eq!(ready, [caller.link.id], "it can run again");
        self.node(at).send(caller, &frame)
    }
}

fn take(node: &mut TestNode, receiver: &NodeReceiver) {
    let hub_node = node.shards[0].core.node().clone();
    for (ticket, answer) in std::mem::take(&mut *receiver.answers.lock().unwrap()) {
        node.shards[0].handle(node.now, ShardEvent::Answer(ticket, answer));
    }
    for packet in std::mem::take(&mut *receiver.packets.lock().unwrap()) {
        let input = match hub_node.receive(&packet) {
            Some(ReceivedMessage::Session { from, request, .. }) => ShardEvent::Migration { from, request },
            Some(ReceivedMessage::Presence { update, .. }) => ShardEvent::Presence(update),
            Some(ReceivedMessage::Person { update, .. }) => ShardEvent::Status(update),
            Some(ReceivedMessage::Message { space, message, mask }) => {
                assert_eq!(mask, 1);
                let message = tavern_hub::ShardMessage { namespace: space, message };
                node.shards[0].handle(node.now, ShardEvent::Message(message));
                continue;
            }
            Some(ReceivedMessage::Control { message, .. }) => ShardEvent::Control(message),
            Some(
                ReceivedMessage::NodeLeft
                | ReceivedMessage::Subscription(_)
                | ReceivedMessage::NameQuestion { .. }
                | ReceivedMessage::LoadQuestion { .. }
                | ReceivedMessage::LoadAnswer { .. }
                | ReceivedMessage::PusherCount(_),
            )
            | None => continue,
        };
        node.shards[0].handle(node.now, input);
    }
    for (ticket, outcome) in std::mem::take(&mut *receiver.confirmed.lock().unwrap()) {
        let links = hub_node.bus_interests.confirmed(ticket, outcome);
        node.shards[0]
            .handle(node.now, ShardEvent::BusReady(links.into_iter().map(|(_, link)| link).collect()));
    }
    for lost in std::mem::take(&mut *receiver.lost.lock().unwrap()) {
        let channel = match lost {
            BusLoss::Everything => None,
            BusLoss::On(subject) => subject.channel(),
        };
        node.shards[0].handle(node.now, ShardEvent::BusLost(channel.map(Into::into)));
    }
}
