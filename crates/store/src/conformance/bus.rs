//! The bus: confirmed subscriptions, order, echo, wide subjects. Cases wait for words, never for time: silence is
//! shown by a later word that arrives instead.

use super::{BusWorld, PATIENCE};
use crate::bus::{Bus, BusError, BusInbox, Lost, Parcel};
use crate::interest::Interest;
use crate::row::Writer;
use crate::store::Ticket;
use crate::subject::Subject;
use std::slice::from_ref;
use std::sync::{Arc, Condvar, Mutex};
use tavern_domain::Epoch;

/// A node on the bus, and what it has heard.
struct Node {
    name: &'static str,
    bus: Arc<dyn Bus>,
    ear: Arc<Ear>,
}

#[derive(Default)]
struct Ear {
    heard: Mutex<Heard>,
    arrived: Condvar,
}

#[derive(Default)]
struct Heard {
    confirmed: Vec<Ticket>,
    words: Vec<Parcel>,
    /// What the node listens to, for a bus that asks.
    needs: Vec<Interest>,
}

impl BusInbox for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        outcome.expect("the subscription holds");
        self.heard.lock().unwrap().confirmed.push(ticket);
        self.arrived.notify_all();
    }

    fn words(&self, parcels: Vec<Parcel>) {
        self.heard.lock().unwrap().words.extend(parcels);
        self.arrived.notify_all();
    }

    fn lost(&self, lost: Lost) {
        panic!("nothing is lost here, but {lost:?}");
    }

    fn needs(&self) -> Vec<Interest> {
        self.heard.lock().unwrap().needs.clone()
    }
}

impl Node {
    fn new(world: &dyn BusWorld, name: &'static str) -> Node {
        let ear = Arc::new(Ear::default());
        Node { name, bus: world.open(name, ear.clone()), ear }
    }

    fn subscribe(&self, subjects: &[Subject], ticket: u64) {
        self.listen(subjects.iter().cloned().map(Interest::from).collect(), ticket);
    }

    fn listen(&self, interests: Vec<Interest>, ticket: u64) {
        self.ear.heard.lock().unwrap().needs.extend(interests.iter().cloned());
        if self.bus.hears_everything() || self.bus.subscribe(interests, Ticket(ticket)) {
            return;
        }
        self.wait(|heard| heard.confirmed.contains(&Ticket(ticket)));
        let heard = self.ear.heard.lock().unwrap();
        assert_eq!(heard.confirmed.iter().filter(|&&one| one == Ticket(ticket)).count(), 1);
    }

    fn unlisten(&self, interests: Vec<Interest>) {
        self.ear.heard.lock().unwrap().needs.retain(|own| !interests.contains(own));
        self.bus.unsubscribe(interests);
    }

    fn say(&self, subject: &Subject, numbers: std::ops::Range<u64>) {
        let from = Writer::new(self.name, Epoch(1));
        let parcel = |n: u64| Parcel {
            subject: subject.clone(),
            from: from.clone(),
            n,
            note: Arc::from(*b"note"),
            payload: n.to_string().into_bytes().into(),
        };
        self.bus.publish(numbers.map(parcel).collect());
    }

    /// Waits until the last word heard is `n` on `subject`; gives everything heard so far.
    fn until(&self, subject: &Subject, n: u64) -> Vec<(String, u64)> {
        self.wait(|heard| heard.words.iter().any(|word| word.subject == *subject && word.n == n));
        let heard = self.ear.heard.lock().unwrap();
        heard.words.iter().map(|word| (word.subject.to_string(), word.n)).collect()
    }

    fn wait(&self, done: impl Fn(&Heard) -> bool) {
        let heard = self.ear.heard.lock().unwrap();
        let (_heard, waited) =
            self.ear.arrived.wait_timeout_while(heard, PATIENCE, |heard| !done(heard)).unwrap();
        assert!(!waited.timed_out(), "{} never heard it", self.name);
    }
}

fn subject(world: &dyn BusWorld, rest: &str) -> Subject {
    Subject::new(world.prefix(), "game", rest.as_bytes()).unwrap()
}

fn numbers(words: &[(String, u64)], subject: &Subject) -> Vec<u64> {
    words.iter().filter(|(on, _)| on == subject.as_str()).map(|(_, n)| *n).collect()
}

pub(super) fn a_confirmed_subscription_hears_everything_after_it(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let game = subject(world, "A b.c");
    speaker.say(&game, 0..3);
    listener.subscribe(from_ref(&game), 1);
    speaker.say(&game, 3..50);
    let words = numbers(&listener.until(&game, 49), &game);
    let after: Vec<u64> = words.into_iter().filter(|&n| n >= 3).collect();
    assert_eq!(after, (3..50).collect::<Vec<_>>());
    let heard = listener.ear.heard.lock().unwrap();
    let word = heard.words.last().unwrap();
    assert_eq!((&word.from, &*word.payload), (&Writer::new("n1", Epoch(1)), &b"49"[..]));
    assert_eq!(&*word.note, b"note");
}

pub(super) fn after_unsubscribing_nothing_is_heard(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let (left, kept, new) = (subject(world, "left"), subject(world, "kept"), subject(world, "new"));
    listener.subscribe(&[left.clone(), kept.clone()], 1);
    speaker.say(&left, 0..1);
    listener.until(&left, 0);
    listener.unlisten(vec![left.clone().into(), subject(world, "never").into()]);
    listener.subscribe(&[new], 2);
    speaker.say(&left, 1..2);
    speaker.say(&kept, 0..1);
    assert_eq!(numbers(&listener.until(&kept, 0), &left), [0]);
}

pub(super) fn a_node_does_not_hear_itself(world: &dyn BusWorld) {
    let (one, two) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let game = subject(world, "A");
    one.subscribe(&[game.clone(), Subject::everything(world.prefix()).unwrap()], 1);
    two.subscribe(from_ref(&game), 1);
    one.say(&game, 0..5);
    assert_eq!(numbers(&two.until(&game, 4), &game), [0, 1, 2, 3, 4]);
    two.say(&game, 100..101);
    assert_eq!(numbers(&one.until(&game, 100), &game), [100]);
}

pub(super) fn one_publisher_has_one_order(world: &dyn BusWorld) {
    let speakers = [Node::new(world, "n1"), Node::new(world, "n2")];
    let listener = Node::new(world, "n3");
    let (game, done) = (subject(world, "A"), subject(world, "done"));
    listener.subscribe(&[game.clone(), done.clone()], 1);
    std::thread::scope(|scope| {
        for (at, speaker) in speakers.iter().enumerate() {
            let (game, done) = (&game, &done);
            scope.spawn(move || {
                (0..50).for_each(|n| speaker.say(game, n * 10..n * 10 + 10));
                speaker.say(done, at as u64..at as u64 + 1);
            });
        }
    });
    listener.until(&done, 0);
    listener.until(&done, 1);
    let heard = listener.ear.heard.lock().unwrap();
    for speaker in &speakers {
        let of_speaker = |word: &&Parcel| *word.from.node == *speaker.name && word.subject == game;
        let words: Vec<u64> = heard.words.iter().filter(of_speaker).map(|word| word.n).collect();
        assert_eq!(words, (0..500).collect::<Vec<_>>());
    }
}

pub(super) fn two_nodes_hear_each_other(world: &dyn BusWorld) {
    let nodes = [Node::new(world, "n1"), Node::new(world, "n2")];
    let game = subject(world, "A");
    nodes.iter().for_each(|node| node.subscribe(from_ref(&game), 7));
    nodes[0].say(&game, 1..2);
    nodes[1].say(&game, 2..3);
    assert_eq!(numbers(&nodes[0].until(&game, 2), &game), [2]);
    assert_eq!(numbers(&nodes[1].until(&game, 1), &game), [1]);
}

pub(super) fn overlapping_subscriptions_hear_once(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let game = subject(world, "A");
    let kind = Subject::every_rest(world.prefix(), "game").unwrap();
    listener.subscribe(&[game.clone(), kind.clone()], 1);
    listener.subscribe(&[game.clone(), Subject::everything(world.prefix()).unwrap()], 2);
    speaker.say(&game, 0..2_000);
    listener.until(&game, 1_999);
    speaker.say(&game, 2_000..2_001);
    let heard = numbers(&listener.until(&game, 2_000), &game);
    assert_eq!(heard, (0..2_001).collect::<Vec<_>>());
    listener.unlisten(vec![game.clone().into()]);
    speaker.say(&game, 2_001..2_002);
    let heard = numbers(&listener.until(&game, 2_001), &game);
    assert_eq!(heard[2_000..], [2_000, 2_001], "the wide one still hears");
}

pub(super) fn wide_subjects_hear_their_kind(world: &dyn BusWorld) {
    let (speaker, kind, all) = (Node::new(world, "n1"), Node::new(world, "n2"), Node::new(world, "n3"));
    kind.subscribe(&[Subject::every_rest(world.prefix(), "game").unwrap()], 1);
    all.subscribe(&[Subject::everything(world.prefix()).unwrap()], 1);
    let (game, empty) = (subject(world, "A"), subject(world, ""));
    let lobby = Subject::new(world.prefix(), "lobby", b"A").unwrap();
    let foreign = Subject::new(&format!("{}-other", world.prefix()), "game", b"A").unwrap();
    for subject in [&foreign, &lobby, &game, &empty] {
        speaker.say(subject, 0..1);
    }
    let heard = |node: &Node| node.until(&empty, 0).into_iter().map(|(on, _)| on).collect::<Vec<_>>();
    assert_eq!(heard(&kind), [game.as_str(), empty.as_str()]);
    assert_eq!(heard(&all), [lobby.as_str(), game.as_str(), empty.as_str()]);
}

pub(super) fn patterns_hear_the_channels_that_match(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let pattern = |glob: &[u8]| Interest::Channels { prefix: world.prefix().into(), glob: glob.into() };
    listener.listen(vec![pattern(b"game#[ab]*"), pattern(b"*z"), pattern(b"game#a*")], 1);
    let names: [&[u8]; 6] = [b"game#a", b"game#c", b"\xffz", b"game#bz", b"other#a", b"game#az"];
    for (n, name) in names.iter().enumerate() {
        speaker.say(&Subject::of_channel(world.prefix(), name).unwrap(), n as u64..n as u64 + 1);
    }
    let last = Subject::of_channel(world.prefix(), b"game#az").unwrap();
    let heard: Vec<u64> = listener.until(&last, 5).into_iter().map(|(_, n)| n).collect();
    assert_eq!(heard, [0, 2, 3, 5]);
    listener.unlisten(vec![pattern(b"game#[ab]*"), pattern(b"game#a*")]);
    listener.subscribe(&[subject(world, "still")], 2);
    speaker.say(&Subject::of_channel(world.prefix(), b"game#a").unwrap(), 10..11);
    speaker.say(&last, 11..12);
    let heard: Vec<u64> = listener.until(&last, 11).into_iter().map(|(_, n)| n).collect();
    assert_eq!(heard, [0, 2, 3, 5, 11]);
}

pub(super) fn what_is_subscribed_to_holds_at_once_when_asked_again(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    let game = subject(world, "A");
    listener.subscribe(from_ref(&game), 1);
    speaker.say(&game, 0..1);
    listener.until(&game, 0);
    listener.subscribe(from_ref(&game), 2);
    assert!(listener.bus.subscribe(vec![game.clone().into()], Ticket(3)), "it is confirmed already");
    listener.unlisten(vec![game.clone().into()]);
    listener.subscribe(from_ref(&game), 4);
    speaker.say(&game, 1..2);
    listener.until(&game, 1);
}

pub(super) fn a_node_that_is_not_alone_does_not_say_so(world: &dyn BusWorld) {
    let (speaker, listener) = (Node::new(world, "n1"), Node::new(world, "n2"));
    listener.subscribe(&[subject(world, "A")], 1);
    assert!(!speaker.bus.is_alone());
}

pub(super) fn a_stopped_node_hears_nothing(world: &dyn BusWorld) {
    let (speaker, stopped, witness) =
        (Node::new(world, "n1"), Node::new(world, "n2"), Node::new(world, "n3"));
    let game = subject(world, "A");
    stopped.subscribe(from_ref(&game), 1);
    witness.subscribe(from_ref(&game), 1);
    stopped.bus.stop();
    stopped.bus.stop();
    speaker.say(&game, 0..1);
    witness.until(&game, 0);
    assert_eq!(stopped.ear.heard.lock().unwrap().words, []);
}
