//! The bus: confirmed subscriptions, order, echo, wide subjects. Cases wait for messages, never for time: a later
//! message that arrives shows that an earlier one does not.

use super::fixture::PATIENCE;
use super::world::BusUnderTest;
use crate::bus::{Bus, BusError, BusLoss, BusPacket, BusReceiver};
use crate::interest::Interest;
use crate::node::Writer;
use crate::store::Ticket;
use crate::subject::Subject;
use std::slice::from_ref;
use std::sync::{Arc, Condvar, Mutex};
use tavern_domain::Epoch;

/// A node on the bus, and what it has received.
struct BusNode {
    name: &'static str,
    bus: Arc<dyn Bus>,
    receiver: Arc<TestReceiver>,
}

#[derive(Default)]
struct TestReceiver {
    received: Mutex<ReceivedPackets>,
    arrived: Condvar,
}

#[derive(Default)]
struct ReceivedPackets {
    confirmed: Vec<Ticket>,
    messages: Vec<BusPacket>,
    /// What the node listens to, for a bus that asks.
    interests: Vec<Interest>,
}

impl BusReceiver for TestReceiver {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        outcome.expect("the subscription holds");
        self.received.lock().unwrap().confirmed.push(ticket);
        self.arrived.notify_all();
    }

    fn messages(&self, messages: Vec<BusPacket>) {
        self.received.lock().unwrap().messages.extend(messages);
        self.arrived.notify_all();
    }

    fn lost(&self, lost: BusLoss) {
        panic!("nothing is lost here, but {lost:?}");
    }

    fn interests(&self) -> Vec<Interest> {
        self.received.lock().unwrap().interests.clone()
    }
}

impl BusNode {
    fn new(world: &dyn BusUnderTest, name: &'static str) -> BusNode {
        let receiver = Arc::new(TestReceiver::default());
        BusNode { name, bus: world.open(name, receiver.clone()), receiver }
    }

    fn subscribe(&self, subjects: &[Subject], ticket: u64) {
        self.listen(subjects.iter().cloned().map(Interest::from).collect(), ticket);
    }

    fn listen(&self, interests: Vec<Interest>, ticket: u64) {
        self.receiver.received.lock().unwrap().interests.extend(interests.iter().cloned());
        if self.bus.receives_everything() || self.bus.subscribe(interests, Ticket(ticket)) {
            return;
        }
        self.wait(|received| received.confirmed.contains(&Ticket(ticket)));
        let received = self.receiver.received.lock().unwrap();
        assert_eq!(received.confirmed.iter().filter(|&&one| one == Ticket(ticket)).count(), 1);
    }

    fn unlisten(&self, interests: Vec<Interest>) {
        self.receiver.received.lock().unwrap().interests.retain(|own| !interests.contains(own));
        self.bus.unsubscribe(interests);
    }

    fn send(&self, subject: &Subject, numbers: std::ops::Range<u64>) {
        let from = Writer::new(self.name, Epoch(1));
        let message = |n: u64| BusPacket {
            subject: subject.clone(),
            from: from.clone(),
            n,
            header: Arc::from(*b"note"),
            payload: n.to_string().into_bytes().into(),
        };
        self.bus.publish(numbers.map(message).collect());
    }

    /// Waits for message `n` on `subject`; returns everything received so far.
    fn until(&self, subject: &Subject, n: u64) -> Vec<(String, u64)> {
        self.wait(|received| {
            received.messages.iter().any(|message| message.subject == *subject && message.n == n)
        });
        let received = self.receiver.received.lock().unwrap();
        received.messages.iter().map(|message| (message.subject.to_string(), message.n)).collect()
    }

    fn wait(&self, done: impl Fn(&ReceivedPackets) -> bool) {
        let received = self.receiver.received.lock().unwrap();
        let (_heard, waited) =
            self.receiver.arrived.wait_timeout_while(received, PATIENCE, |received| !done(received)).unwrap();
        assert!(!waited.timed_out(), "{} never received it", self.name);
    }
}

fn subject(world: &dyn BusUnderTest, rest: &str) -> Subject {
    Subject::new(world.prefix(), "game", rest.as_bytes()).unwrap()
}

fn numbers(messages: &[(String, u64)], subject: &Subject) -> Vec<u64> {
    messages.iter().filter(|(on, _)| on == subject.as_str()).map(|(_, n)| *n).collect()
}

pub(super) fn a_confirmed_subscription_gets_every_later_message(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let game = subject(world, "A b.c");
    sender.send(&game, 0..3);
    listener.subscribe(from_ref(&game), 1);
    sender.send(&game, 3..50);
    let received = numbers(&listener.until(&game, 49), &game);
    let after: Vec<u64> = received.into_iter().filter(|&n| n >= 3).collect();
    assert_eq!(after, (3..50).collect::<Vec<_>>());
    let received = listener.receiver.received.lock().unwrap();
    let message = received.messages.last().unwrap();
    assert_eq!((&message.from, &*message.payload), (&Writer::new("n1", Epoch(1)), &b"49"[..]));
    assert_eq!(&*message.header, b"note");
}

pub(super) fn after_unsubscribing_nothing_arrives(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let (left, kept, new) = (subject(world, "left"), subject(world, "kept"), subject(world, "new"));
    listener.subscribe(&[left.clone(), kept.clone()], 1);
    sender.send(&left, 0..1);
    listener.until(&left, 0);
    listener.unlisten(vec![left.clone().into(), subject(world, "never").into()]);
    listener.subscribe(&[new], 2);
    sender.send(&left, 1..2);
    sender.send(&kept, 0..1);
    assert_eq!(numbers(&listener.until(&kept, 0), &left), [0]);
}

pub(super) fn a_node_does_not_get_its_own_messages(world: &dyn BusUnderTest) {
    let (one, two) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let game = subject(world, "A");
    one.subscribe(&[game.clone(), Subject::everything(world.prefix()).unwrap()], 1);
    two.subscribe(from_ref(&game), 1);
    one.send(&game, 0..5);
    assert_eq!(numbers(&two.until(&game, 4), &game), [0, 1, 2, 3, 4]);
    two.send(&game, 100..101);
    assert_eq!(numbers(&one.until(&game, 100), &game), [100]);
}

pub(super) fn messages_of_one_publisher_arrive_in_order(world: &dyn BusUnderTest) {
    let senders = [BusNode::new(world, "n1"), BusNode::new(world, "n2")];
    let listener = BusNode::new(world, "n3");
    let (game, done) = (subject(world, "A"), subject(world, "done"));
    listener.subscribe(&[game.clone(), done.clone()], 1);
    std::thread::scope(|scope| {
        for (at, sender) in senders.iter().enumerate() {
            let (game, done) = (&game, &done);
            scope.spawn(move || {
                (0..50).for_each(|n| sender.send(game, n * 10..n * 10 + 10));
                sender.send(done, at as u64..at as u64 + 1);
            });
        }
    });
    listener.until(&done, 0);
    listener.until(&done, 1);
    let received = listener.receiver.received.lock().unwrap();
    for sender in &senders {
        let of_sender = |message: &&BusPacket| *message.from.node == *sender.name && message.subject == game;
        let numbers: Vec<u64> = received.messages.iter().filter(of_sender).map(|message| message.n).collect();
        assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    }
}

pub(super) fn two_nodes_get_each_others_messages(world: &dyn BusUnderTest) {
    let nodes = [BusNode::new(world, "n1"), BusNode::new(world, "n2")];
    let game = subject(world, "A");
    nodes.iter().for_each(|node| node.subscribe(from_ref(&game), 7));
    nodes[0].send(&game, 1..2);
    nodes[1].send(&game, 2..3);
    assert_eq!(numbers(&nodes[0].until(&game, 2), &game), [2]);
    assert_eq!(numbers(&nodes[1].until(&game, 1), &game), [1]);
}

pub(super) fn overlapping_subscriptions_deliver_once(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let game = subject(world, "A");
    let kind = Subject::every_rest(world.prefix(), "game").unwrap();
    listener.subscribe(&[game.clone(), kind.clone()], 1);
    listener.subscribe(&[game.clone(), Subject::everything(world.prefix()).unwrap()], 2);
    sender.send(&game, 0..2_000);
    listener.until(&game, 1_999);
    sender.send(&game, 2_000..2_001);
    let received = numbers(&listener.until(&game, 2_000), &game);
    assert_eq!(received, (0..2_001).collect::<Vec<_>>());
    listener.unlisten(vec![game.clone().into()]);
    sender.send(&game, 2_001..2_002);
    let received = numbers(&listener.until(&game, 2_001), &game);
    assert_eq!(received[2_000..], [2_000, 2_001], "the wide subscription is still there");
}

pub(super) fn wide_subjects_match_their_kind(world: &dyn BusUnderTest) {
    let (sender, kind, all) =
        (BusNode::new(world, "n1"), BusNode::new(world, "n2"), BusNode::new(world, "n3"));
    kind.subscribe(&[Subject::every_rest(world.prefix(), "game").unwrap()], 1);
    all.subscribe(&[Subject::everything(world.prefix()).unwrap()], 1);
    let (game, empty) = (subject(world, "A"), subject(world, ""));
    let lobby = Subject::new(world.prefix(), "lobby", b"A").unwrap();
    let foreign = Subject::new(&format!("{}-other", world.prefix()), "game", b"A").unwrap();
    for subject in [&foreign, &lobby, &game, &empty] {
        sender.send(subject, 0..1);
    }
    let received = |node: &BusNode| node.until(&empty, 0).into_iter().map(|(on, _)| on).collect::<Vec<_>>();
    assert_eq!(received(&kind), [game.as_str(), empty.as_str()]);
    assert_eq!(received(&all), [lobby.as_str(), game.as_str(), empty.as_str()]);
}

pub(super) fn patterns_match_channels(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let pattern = |glob: &[u8]| Interest::Channels { prefix: world.prefix().into(), glob: glob.into() };
    listener.listen(vec![pattern(b"game#[ab]*"), pattern(b"*z"), pattern(b"game#a*")], 1);
    let names: [&[u8]; 6] = [b"game#a", b"game#c", b"\xffz", b"game#bz", b"other#a", b"game#az"];
    for (n, name) in names.iter().enumerate() {
        sender.send(&Subject::of_channel(world.prefix(), name).unwrap(), n as u64..n as u64 + 1);
    }
    let last = Subject::of_channel(world.prefix(), b"game#az").unwrap();
    let received: Vec<u64> = listener.until(&last, 5).into_iter().map(|(_, n)| n).collect();
    assert_eq!(received, [0, 2, 3, 5]);
    listener.unlisten(vec![pattern(b"game#[ab]*"), pattern(b"game#a*")]);
    listener.subscribe(&[subject(world, "still")], 2);
    sender.send(&Subject::of_channel(world.prefix(), b"game#a").unwrap(), 10..11);
    sender.send(&last, 11..12);
    let received: Vec<u64> = listener.until(&last, 11).into_iter().map(|(_, n)| n).collect();
    assert_eq!(received, [0, 2, 3, 5, 11]);
}

pub(super) fn a_repeated_subscription_holds_at_once(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    let game = subject(world, "A");
    listener.subscribe(from_ref(&game), 1);
    sender.send(&game, 0..1);
    listener.until(&game, 0);
    listener.subscribe(from_ref(&game), 2);
    assert!(listener.bus.subscribe(vec![game.clone().into()], Ticket(3)), "it is confirmed already");
    listener.unlisten(vec![game.clone().into()]);
    listener.subscribe(from_ref(&game), 4);
    sender.send(&game, 1..2);
    listener.until(&game, 1);
}

pub(super) fn a_node_with_others_is_not_alone(world: &dyn BusUnderTest) {
    let (sender, listener) = (BusNode::new(world, "n1"), BusNode::new(world, "n2"));
    listener.subscribe(&[subject(world, "A")], 1);
    assert!(!sender.bus.is_alone());
}

pub(super) fn a_stopped_node_gets_nothing(world: &dyn BusUnderTest) {
    let (sender, stopped, witness) =
        (BusNode::new(world, "n1"), BusNode::new(world, "n2"), BusNode::new(world, "n3"));
    let game = subject(world, "A");
    stopped.subscribe(from_ref(&game), 1);
    witness.subscribe(from_ref(&game), 1);
    stopped.bus.stop();
    stopped.bus.stop();
    sender.send(&game, 0..1);
    witness.until(&game, 0);
    assert_eq!(stopped.receiver.received.lock().unwrap().messages, []);
}
