//! What the buses on a server do when something goes wrong: the server dies, the node is too slow, another program publishes,
//! the login is wrong. Each case runs on each engine, with a server of its own where it breaks the server.

mod nats;
mod postgres;
mod redis;

use crate::server;
use crate::server::{PATIENCE, Server};
use crate::table_reader::Reader;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tavern_domain::Epoch;
use tavern_store::{Bus, BusError, BusLoss, BusPacket, BusReceiver, Subject, Ticket, Writer};

#[derive(Default)]
struct Receiver {
    received: Mutex<Vec<Received>>,
    arrived: Condvar,
    is_blocked: AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
enum Received {
    Confirmed(Ticket, bool),
    Message(BusPacket),
    Lost(BusLoss),
}

impl Receiver {
    fn add(&self, more: impl IntoIterator<Item = Received>) {
        self.received.lock().unwrap().extend(more);
        self.arrived.notify_all();
    }

    fn until(&self, what: &str, done: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let received = self.received.lock().unwrap();
        let (received, waited) =
            self.arrived.wait_timeout_while(received, PATIENCE, |received| !done(received)).unwrap();
        assert!(!waited.timed_out(), "never: {what}; received {} things", received.len());
        received.clone()
    }
}

impl BusReceiver for Receiver {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        self.add([Received::Confirmed(ticket, outcome.is_ok())]);
    }

    fn messages(&self, messages: Vec<BusPacket>) {
        while self.is_blocked.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.add(messages.into_iter().map(Received::Message));
    }

    fn lost(&self, lost: BusLoss) {
        self.add([Received::Lost(lost)]);
    }
}

struct Node {
    name: &'static str,
    bus: Arc<dyn Bus>,
    receiver: Arc<Receiver>,
}

fn subject(rest: &str) -> Subject {
    Subject::new("p", "game", rest.as_bytes()).unwrap()
}

impl Node {
    fn new(url: &str, name: &'static str) -> Node {
        let receiver = Arc::new(Receiver::default());
        let bus = server::open(url, "p", name, receiver.clone()).expect("the bus opens");
        Node { name, bus, receiver }
    }

    fn listening(url: &str, name: &'static str, subjects: &[Subject]) -> Node {
        let node = Node::new(url, name);
        assert!(!node.bus.subscribe(subjects.iter().cloned().map(Into::into).collect(), Ticket(1)));
        node.receiver.until("confirmed", |received| received.contains(&Received::Confirmed(Ticket(1), true)));
        node
    }

    fn message(&self, rest: &str, n: u64, bytes: usize) -> BusPacket {
        let payload = vec![n as u8; bytes].into();
        let from = Writer::new(self.name, Epoch(1));
        BusPacket { subject: subject(rest), from, n, header: Arc::from(*b"note"), payload }
    }

    fn send(&self, rest: &str, numbers: std::ops::Range<u64>) {
        self.bus.publish(numbers.map(|n| self.message(rest, n, 10)).collect());
    }

    /// Sends messages until one is sent again.
    fn send_until_sent(&self) {
        let (sent, until) = (self.bus.counts().sent, std::time::Instant::now() + PATIENCE);
        while self.bus.counts().sent == sent {
            assert!(std::time::Instant::now() < until, "no message is sent");
            self.send("noise", 0..1);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn has_lost(received: &[Received]) -> bool {
    received.contains(&Received::Lost(BusLoss::Everything))
}

fn numbers(received: &[Received], rest: &str) -> Vec<u64> {
    let on = subject(rest);
    let messages = received.iter().filter_map(|one| match one {
        Received::Message(message) if message.subject == on => Some(message.n),
        _ => None,
    });
    messages.collect()
}

fn a_restarted_server_is_subscribed_to_again(server: Server) {
    let listener =
        Node::listening(&server.url(), "n1", &[subject("A"), Subject::every_rest("p", "wide").unwrap()]);
    let sender = Node::new(&server.url(), "n2");
    sender.send("A", 0..10);
    listener.receiver.until("before", |received| numbers(received, "A").len() == 10);
    server.kill();
    server.start();
    let received = listener.receiver.until("the loss", has_lost);
    assert_eq!(numbers(&received, "A"), (0..10).collect::<Vec<_>>());
    assert!(listener.bus.subscribe(vec![subject("A").into()], Ticket(2)), "it holds again");
    assert!(listener.bus.counts().losses >= 1);
    sender.send_until_sent();
    sender.send("A", 100..200);
    let received = listener.receiver.until("after", |received| numbers(received, "A").contains(&199));
    assert_eq!(numbers(&received, "A")[10..], (100..200).collect::<Vec<_>>());
}

fn while_the_server_is_away_messages_fail_and_no_caller_waits_long(server: Server) {
    let node = Node::listening(&server.url(), "n1", &[subject("A")]);
    server.kill();
    let until = std::time::Instant::now() + PATIENCE;
    while node.bus.counts().failed == 0 {
        assert!(std::time::Instant::now() < until, "nothing fails");
        node.send("B", 0..1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!node.bus.subscribe(vec![subject("A").into()], Ticket(2)), "nothing holds");
    assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(3)));
    assert!(!node.bus.is_connected());
    let refused = [Received::Confirmed(Ticket(2), false), Received::Confirmed(Ticket(3), false)];
    node.receiver.until("refused", |received| refused.iter().all(|one| received.contains(one)));
    assert!(!node.bus.subscribe(vec![subject("C").into()], Ticket(4)));
    server.start();
    node.receiver.until("the loss", has_lost);
    assert!(node.bus.is_connected());
    let answers = |received: &[Received]| {
        received.iter().filter(|one| matches!(one, Received::Confirmed(Ticket(4), _))).count()
    };
    node.receiver.until("an answer", |received| answers(received) == 1);
    // What was subscribed to meanwhile holds all the same.
    assert!(node.bus.subscribe(vec![subject("B").into(), subject("C").into()], Ticket(5)));
    let sender = Node::new(&server.url(), "n2");
    sender.send("B", 5..6);
    node.receiver.until("the message", |received| numbers(received, "B") == [5]);
}

fn a_burst_arrives_in_order(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("burst")]);
    let sender = Node::new(&server.url(), "n2");
    for part in 0..100 {
        sender.send("burst", part * 100..part * 100 + 100);
    }
    let received =
        listener.receiver.until("the last", |received| numbers(received, "burst").contains(&9_999));
    assert_eq!(numbers(&received, "burst"), (0..10_000).collect::<Vec<_>>());
    assert!(!has_lost(&received));
    // Postgres delivers a message before it answers the sender.
    let until = std::time::Instant::now() + PATIENCE;
    while sender.bus.counts().sent < 10_000 {
        assert!(std::time::Instant::now() < until, "the sender has no answer");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (sending, receiving) = (sender.bus.counts(), listener.bus.counts());
    assert_eq!((sending.sent, sending.failed, receiving.received, receiving.losses), (10_000, 0, 10_000, 0));
}

fn a_long_message_arrives_whole(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("long")]);
    let sender = Node::new(&server.url(), "n2");
    let lengths = [0, 1024 * 1024 - 1, 1024 * 1024, 3_500_000];
    let messages: Vec<BusPacket> =
        lengths.iter().enumerate().map(|(n, &bytes)| sender.message("long", n as u64, bytes)).collect();
    sender.bus.publish(messages.clone());
    let received =
        listener.receiver.until("all", |received| numbers(received, "long").len() == lengths.len());
    assert_eq!(received[1..], messages.into_iter().map(Received::Message).collect::<Vec<_>>());
    sender.bus.publish(vec![sender.message("long", 9, 20 * 1024 * 1024)]);
    sender.send("long", 10..11);
    listener
        .receiver
        .until("what follows one that is too long", |received| numbers(received, "long").contains(&10));
    assert_eq!(sender.bus.counts().failed, 1);
}

fn messages_without_a_prefix_are_ignored(server: &Server, publish_raw: fn(&Server, &str, &[u8])) {
    let listener =
        Node::listening(&server.url(), "n1", &[subject("open"), Subject::everything("p").unwrap()]);
    let sender = Node::new(&server.url(), "n2");
    for message in [&b"hello"[..], b"", b"TV", b"TV\x01\x03aaaaaaaabbbbbbbb", b"TV\x01\x04aaaaaaa"] {
        publish_raw(server, "p.game.open", message);
    }
    publish_raw(server, "p.no.such.subject", b"hello");
    publish_raw(server, "p.x", b"hello");
    sender.send("open", 1..2);
    let received = listener.receiver.until("the node", |received| !numbers(received, "open").is_empty());
    assert_eq!(numbers(&received, "open"), [1]);
    assert!(!has_lost(&received));
}

/// The server must be one that soon closes the connection of a slow reader, or drops what it keeps for it: less than `enough`.
fn a_node_that_is_too_slow_learns_of_the_loss(server: Server, enough: usize) {
    let listener = Node::listening(&server.url(), "n1", &[subject("A")]);
    let sender = Node::new(&server.url(), "n2");
    listener.receiver.is_blocked.store(true, Ordering::SeqCst);
    let mut sent = 0;
    while sent < enough {
        while sender.bus.is_full() {
            std::thread::sleep(Duration::from_millis(1));
        }
        sender.bus.publish((0..16).map(|n| sender.message("A", n, 64 * 1024)).collect());
        sent += 16 * 64 * 1024;
    }
    sender.send("other", 0..1);
    let until = std::time::Instant::now() + PATIENCE;
    while sender.bus.counts().sent < (enough / 65_536) as u64 + 1 {
        assert!(std::time::Instant::now() < until, "the sender is blocked");
        std::thread::sleep(Duration::from_millis(5));
    }
    listener.receiver.is_blocked.store(false, Ordering::SeqCst);
    listener.receiver.until("the loss", has_lost);
    sender.send("A", 1_000..1_001);
    listener.receiver.until("what comes after", |received| numbers(received, "A").contains(&1_000));
}

fn messages_lost_with_a_connection_are_reported(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("cut")]);
    let proxy = Proxy::to(server.port);
    let sender = Node::new(&server.url().replace(&server.port.to_string(), &proxy.port.to_string()), "n2");
    sender.send("cut", 0..1);
    listener.receiver.until("the message", |received| numbers(received, "cut") == [0]);
    proxy.cut();
    let received = listener.receiver.until("the loss", has_lost);
    assert_eq!(numbers(&received, "cut"), [0]);
    sender.send_until_sent();
    sender.send("cut", 1..2);
    listener.receiver.until("what comes after", |received| numbers(received, "cut") == [0, 1]);
}

fn a_wrong_login_is_reported_without_the_address(scheme: &str, port: u16, good: &[&str], bad: &[&str]) {
    for login in good {
        Node::listening(
            &format!("{scheme}://{}", login.replace("HOST", &format!("127.0.0.1:{port}"))),
            "n1",
            &[subject("A")],
        );
    }
    for login in bad {
        let url = format!("{scheme}://{}", login.replace("HOST", &format!("127.0.0.1:{port}")));
        let error =
            server::open(&url, "p", "n1", Arc::new(Receiver::default())).err().expect("it is refused");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let shown = format!("{error} {error:?} {source:?}");
        assert!(!shown.contains("sesame") && !shown.contains("127.0.0.1"), "{shown}");
    }
}

/// A proxy to the server that can be cut.
struct Proxy {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn to(port: u16) -> Proxy {
        let door = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = door.local_addr().unwrap().port();
        let sockets: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let kept = sockets.clone();
        std::thread::spawn(move || {
            for near in door.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(("127.0.0.1", port)).unwrap());
                kept.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let (back, forth) = ((far.try_clone().unwrap(), near.try_clone().unwrap()), (near, far));
                for (from, to) in [back, forth] {
                    std::thread::spawn(move || copy(from, to));
                }
            }
        });
        Proxy { port: own, sockets }
    }

    fn cut(&self) {
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Sends bytes to a server and waits for the end of its answer.
fn send_raw(server: &Server, bytes: &[u8], answer: &str) {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    let (mut out, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&out).contains(answer) {
        let length = socket.read(&mut buffer).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&out));
        out.extend_from_slice(&buffer[..length]);
    }
}
