//! What the buses on a server do when something goes wrong: the server dies, the node is too slow, strangers speak, the
//! login is wrong. Each fact is shown on each engine, with a server of its own where it is harmed.

mod server;

use server::{PATIENCE, Server};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tavern_domain::Epoch;
use tavern_store::{Bus, BusError, BusMessage, BusReceiver, Lost, Subject, Ticket, Writer};

#[derive(Default)]
struct Ear {
    heard: Mutex<Vec<Heard>>,
    arrived: Condvar,
    is_blocked: AtomicBool,
}

#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Confirmed(Ticket, bool),
    Word(BusMessage),
    Lost(Lost),
}

impl Ear {
    fn add(&self, more: impl IntoIterator<Item = Heard>) {
        self.heard.lock().unwrap().extend(more);
        self.arrived.notify_all();
    }

    fn until(&self, what: &str, done: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        let heard = self.heard.lock().unwrap();
        let (heard, waited) = self.arrived.wait_timeout_while(heard, PATIENCE, |heard| !done(heard)).unwrap();
        assert!(!waited.timed_out(), "never: {what}; heard {} things", heard.len());
        heard.clone()
    }
}

impl BusReceiver for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        self.add([Heard::Confirmed(ticket, outcome.is_ok())]);
    }

    fn messages(&self, messages: Vec<BusMessage>) {
        while self.is_blocked.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.add(messages.into_iter().map(Heard::Word));
    }

    fn lost(&self, lost: Lost) {
        self.add([Heard::Lost(lost)]);
    }
}

struct Node {
    name: &'static str,
    bus: Arc<dyn Bus>,
    ear: Arc<Ear>,
}

fn subject(rest: &str) -> Subject {
    Subject::new("p", "game", rest.as_bytes()).unwrap()
}

impl Node {
    fn new(url: &str, name: &'static str) -> Node {
        let ear = Arc::new(Ear::default());
        let bus = server::open(url, "p", name, ear.clone()).expect("the bus opens");
        Node { name, bus, ear }
    }

    fn listening(url: &str, name: &'static str, subjects: &[Subject]) -> Node {
        let node = Node::new(url, name);
        assert!(!node.bus.subscribe(subjects.iter().cloned().map(Into::into).collect(), Ticket(1)));
        node.ear.until("confirmed", |heard| heard.contains(&Heard::Confirmed(Ticket(1), true)));
        node
    }

    fn parcel(&self, rest: &str, n: u64, bytes: usize) -> BusMessage {
        let payload = vec![n as u8; bytes].into();
        let from = Writer::new(self.name, Epoch(1));
        BusMessage { subject: subject(rest), from, n, note: Arc::from(*b"note"), payload }
    }

    fn say(&self, rest: &str, numbers: std::ops::Range<u64>) {
        self.bus.publish(numbers.map(|n| self.parcel(rest, n, 10)).collect());
    }

    /// Says something until it can be carried again.
    fn say_until_carried(&self) {
        let (sent, until) = (self.bus.counts().sent, std::time::Instant::now() + PATIENCE);
        while self.bus.counts().sent == sent {
            assert!(std::time::Instant::now() < until, "nothing is carried");
            self.say("noise", 0..1);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn has_lost(heard: &[Heard]) -> bool {
    heard.contains(&Heard::Lost(Lost::Everything))
}

fn numbers(heard: &[Heard], rest: &str) -> Vec<u64> {
    let on = subject(rest);
    let words = heard.iter().filter_map(|one| match one {
        Heard::Word(word) if word.subject == on => Some(word.n),
        _ => None,
    });
    words.collect()
}

fn a_server_that_came_back_is_listened_to_again(server: Server) {
    let listener =
        Node::listening(&server.url(), "n1", &[subject("A"), Subject::every_rest("p", "wide").unwrap()]);
    let speaker = Node::new(&server.url(), "n2");
    speaker.say("A", 0..10);
    listener.ear.until("before", |heard| numbers(heard, "A").len() == 10);
    server.kill();
    server.start();
    let heard = listener.ear.until("the loss", has_lost);
    assert_eq!(numbers(&heard, "A"), (0..10).collect::<Vec<_>>());
    assert!(listener.bus.subscribe(vec![subject("A").into()], Ticket(2)), "it holds again");
    assert!(listener.bus.counts().losses >= 1);
    speaker.say_until_carried();
    speaker.say("A", 100..200);
    let heard = listener.ear.until("after", |heard| numbers(heard, "A").contains(&199));
    assert_eq!(numbers(&heard, "A")[10..], (100..200).collect::<Vec<_>>());
}

fn while_the_server_is_away_words_fail_and_nobody_waits_long(server: Server) {
    let node = Node::listening(&server.url(), "n1", &[subject("A")]);
    server.kill();
    let until = std::time::Instant::now() + PATIENCE;
    while node.bus.counts().failed == 0 {
        assert!(std::time::Instant::now() < until, "nothing fails");
        node.say("B", 0..1);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!node.bus.subscribe(vec![subject("A").into()], Ticket(2)), "nothing holds");
    assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(3)));
    assert!(!node.bus.is_connected());
    let refused = [Heard::Confirmed(Ticket(2), false), Heard::Confirmed(Ticket(3), false)];
    node.ear.until("refused", |heard| refused.iter().all(|one| heard.contains(one)));
    assert!(!node.bus.subscribe(vec![subject("C").into()], Ticket(4)));
    server.start();
    node.ear.until("the loss", has_lost);
    assert!(node.bus.is_connected());
    let answers =
        |heard: &[Heard]| heard.iter().filter(|one| matches!(one, Heard::Confirmed(Ticket(4), _))).count();
    node.ear.until("an answer", |heard| answers(heard) == 1);
    // What was asked for meanwhile is carried all the same.
    assert!(node.bus.subscribe(vec![subject("B").into(), subject("C").into()], Ticket(5)));
    let speaker = Node::new(&server.url(), "n2");
    speaker.say("B", 5..6);
    node.ear.until("the word", |heard| numbers(heard, "B") == [5]);
}

fn a_burst_arrives_in_order(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("burst")]);
    let speaker = Node::new(&server.url(), "n2");
    for part in 0..100 {
        speaker.say("burst", part * 100..part * 100 + 100);
    }
    let heard = listener.ear.until("the last", |heard| numbers(heard, "burst").contains(&9_999));
    assert_eq!(numbers(&heard, "burst"), (0..10_000).collect::<Vec<_>>());
    assert!(!has_lost(&heard));
    let (said, taken) = (speaker.bus.counts(), listener.bus.counts());
    assert_eq!((said.sent, said.failed, taken.received, taken.losses), (10_000, 0, 10_000, 0));
}

fn a_long_word_comes_whole(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("long")]);
    let speaker = Node::new(&server.url(), "n2");
    let lengths = [0, 1024 * 1024 - 1, 1024 * 1024, 3_500_000];
    let words: Vec<BusMessage> =
        lengths.iter().enumerate().map(|(n, &bytes)| speaker.parcel("long", n as u64, bytes)).collect();
    speaker.bus.publish(words.clone());
    let heard = listener.ear.until("all", |heard| numbers(heard, "long").len() == lengths.len());
    assert_eq!(heard[1..], words.into_iter().map(Heard::Word).collect::<Vec<_>>());
    speaker.bus.publish(vec![speaker.parcel("long", 9, 20 * 1024 * 1024)]);
    speaker.say("long", 10..11);
    listener.ear.until("what follows one that is too long", |heard| numbers(heard, "long").contains(&10));
    assert_eq!(speaker.bus.counts().failed, 1);
}

fn a_stranger_is_not_heard(server: &Server, speak: fn(&Server, &str, &[u8])) {
    let listener =
        Node::listening(&server.url(), "n1", &[subject("open"), Subject::everything("p").unwrap()]);
    let speaker = Node::new(&server.url(), "n2");
    for words in [&b"hello"[..], b"", b"TV", b"TV\x01\x03aaaaaaaabbbbbbbb", b"TV\x01\x04aaaaaaa"] {
        speak(server, "p.game.open", words);
    }
    speak(server, "p.no.such.subject", b"hello");
    speak(server, "p.x", b"hello");
    speaker.say("open", 1..2);
    let heard = listener.ear.until("the node", |heard| !numbers(heard, "open").is_empty());
    assert_eq!(numbers(&heard, "open"), [1]);
    assert!(!has_lost(&heard));
}

/// The server must be one that gives up on a reader soon.
fn a_node_that_is_too_slow_hears_that_it_lost_something(server: Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("A")]);
    let speaker = Node::new(&server.url(), "n2");
    listener.ear.is_blocked.store(true, Ordering::SeqCst);
    let enough = 64 * 1024 * 1024;
    let mut said = 0;
    while said < enough {
        while speaker.bus.is_full() {
            std::thread::sleep(Duration::from_millis(1));
        }
        speaker.bus.publish((0..16).map(|n| speaker.parcel("A", n, 64 * 1024)).collect());
        said += 16 * 64 * 1024;
    }
    speaker.say("other", 0..1);
    let until = std::time::Instant::now() + PATIENCE;
    while speaker.bus.counts().sent < (enough / 65_536) as u64 + 1 {
        assert!(std::time::Instant::now() < until, "the speaker is held up");
        std::thread::sleep(Duration::from_millis(5));
    }
    listener.ear.is_blocked.store(false, Ordering::SeqCst);
    listener.ear.until("the loss", has_lost);
    speaker.say("A", 1_000..1_001);
    listener.ear.until("what comes after", |heard| numbers(heard, "A").contains(&1_000));
}

fn words_that_a_broken_connection_took_along_are_told(server: &Server) {
    let listener = Node::listening(&server.url(), "n1", &[subject("torn")]);
    let passage = Passage::to(server.port);
    let speaker = Node::new(&server.url().replace(&server.port.to_string(), &passage.port.to_string()), "n2");
    speaker.say("torn", 0..1);
    listener.ear.until("the word", |heard| numbers(heard, "torn") == [0]);
    passage.cut();
    let heard = listener.ear.until("the loss", has_lost);
    assert_eq!(numbers(&heard, "torn"), [0]);
    speaker.say_until_carried();
    speaker.say("torn", 1..2);
    listener.ear.until("what comes after", |heard| numbers(heard, "torn") == [0, 1]);
}

fn a_wrong_login_is_told_without_the_address(scheme: &str, port: u16, good: &[&str], bad: &[&str]) {
    for login in good {
        Node::listening(
            &format!("{scheme}://{}", login.replace("HOST", &format!("127.0.0.1:{port}"))),
            "n1",
            &[subject("A")],
        );
    }
    for login in bad {
        let url = format!("{scheme}://{}", login.replace("HOST", &format!("127.0.0.1:{port}")));
        let error = server::open(&url, "p", "n1", Arc::new(Ear::default())).err().expect("it is refused");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let shown = format!("{error} {error:?} {source:?}");
        assert!(!shown.contains("sesame") && !shown.contains("127.0.0.1"), "{shown}");
    }
}

/// A way to the server that can be cut.
struct Passage {
    port: u16,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Passage {
    fn to(port: u16) -> Passage {
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
        Passage { port: own, sockets }
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

/// Says bytes to a server and waits for the end of its answer.
fn tell(server: &Server, words: &[u8], answer: &str) {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(words).unwrap();
    let (mut said, mut buffer) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&said).contains(answer) {
        let length = socket.read(&mut buffer).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&buffer[..length]);
    }
}

mod nats {
    use super::*;

    fn speak(server: &Server, subject: &str, words: &[u8]) {
        let mut said =
            format!("CONNECT {{\"verbose\":false}}\r\nPUB {subject} {}\r\n", words.len()).into_bytes();
        said.extend_from_slice(words);
        said.extend_from_slice(b"\r\nPING\r\n");
        tell(server, &said, "PONG\r\n");
    }

    #[test]
    fn a_server_that_came_back_is_listened_to_again() {
        super::a_server_that_came_back_is_listened_to_again(Server::nats());
    }

    #[test]
    fn while_the_server_is_away_words_fail_and_nobody_waits_long() {
        super::while_the_server_is_away_words_fail_and_nobody_waits_long(Server::nats());
    }

    #[test]
    fn a_burst_arrives_in_order() {
        super::a_burst_arrives_in_order(&Server::nats());
    }

    #[test]
    fn a_long_word_comes_whole() {
        super::a_long_word_comes_whole(&Server::nats());
    }

    #[test]
    fn a_stranger_is_not_heard() {
        super::a_stranger_is_not_heard(&Server::nats(), speak);
    }

    #[test]
    fn words_that_a_broken_connection_took_along_are_told() {
        super::words_that_a_broken_connection_took_along_are_told(&Server::nats());
    }

    #[test]
    fn a_node_that_is_too_slow_hears_that_it_lost_something() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "max_pending: 2097152\nwrite_deadline: \"1s\"\n").unwrap();
        let server = Server::nats_with(&["-c", file.path().to_str().unwrap()]);
        super::a_node_that_is_too_slow_hears_that_it_lost_something(server);
    }

    #[test]
    fn a_wrong_login_is_told_without_the_address() {
        let server = Server::nats_with(&["--user", "ann", "--pass", "open sesame"]);
        let good = ["ann:open%20sesame@HOST"];
        let bad = ["HOST", "ann:sesame@HOST", "sesame@HOST", "ann:open%20sesame@HOST?creds=/sesame"];
        super::a_wrong_login_is_told_without_the_address("nats", server.port, &good, &bad);
        let server = Server::nats_with(&["--auth", "sesame"]);
        let good = ["sesame@HOST", "HOST?token=sesame"];
        super::a_wrong_login_is_told_without_the_address("nats", server.port, &good, &["x@HOST"]);
    }

    #[test]
    fn of_several_servers_one_that_lives_is_taken() {
        let (gone, server) = (server::free_port(), Server::nats());
        let url = format!("nats://127.0.0.1:{gone},127.0.0.1:{}", server.port);
        Node::listening(&url, "n1", &[subject("A")]);
    }

    #[test]
    fn a_refused_subscription_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let rules = "authorization { users = [ { user: ann, password: p, permissions: { subscribe: { deny: \"p.game.B\" } } } ] }";
        std::fs::write(file.path(), rules).unwrap();
        let server = Server::nats_with(&["-c", file.path().to_str().unwrap()]);
        let node = Node::listening(&format!("nats://ann:p@127.0.0.1:{}", server.port), "n1", &[subject("A")]);
        assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(2)));
        node.ear.until("the refusal", |heard| heard.contains(&Heard::Confirmed(Ticket(2), false)));
    }
}

mod redis {
    use super::*;

    fn speak(server: &Server, subject: &str, words: &[u8]) {
        let mut said =
            format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${}\r\n", subject.len(), words.len())
                .into_bytes();
        said.extend_from_slice(words);
        said.extend_from_slice(b"\r\n");
        tell(server, &said, "\r\n");
    }

    #[test]
    fn a_server_that_came_back_is_listened_to_again() {
        super::a_server_that_came_back_is_listened_to_again(Server::redis());
    }

    #[test]
    fn while_the_server_is_away_words_fail_and_nobody_waits_long() {
        super::while_the_server_is_away_words_fail_and_nobody_waits_long(Server::redis());
    }

    #[test]
    fn a_burst_arrives_in_order() {
        super::a_burst_arrives_in_order(&Server::redis());
    }

    #[test]
    fn a_long_word_comes_whole() {
        super::a_long_word_comes_whole(&Server::redis());
    }

    #[test]
    fn a_stranger_is_not_heard() {
        super::a_stranger_is_not_heard(&Server::redis(), speak);
    }

    #[test]
    fn words_that_a_broken_connection_took_along_are_told() {
        super::words_that_a_broken_connection_took_along_are_told(&Server::redis());
    }

    #[test]
    fn a_node_that_is_too_slow_hears_that_it_lost_something() {
        let server = Server::redis_with(&["--client-output-buffer-limit", "pubsub 2mb 0 0"]);
        super::a_node_that_is_too_slow_hears_that_it_lost_something(server);
    }

    #[test]
    fn a_wrong_login_is_told_without_the_address() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "requirepass \"open sesame\"\nuser ann on >sesame ~* &* +@all\n")
            .unwrap();
        let server = Server::redis_with(&["--include", file.path().to_str().unwrap()]);
        let good = [":open%20sesame@HOST", "default:open%20sesame@HOST/3", "ann:sesame@HOST"];
        let bad = ["HOST", ":sesame@HOST", "bob:sesame@HOST", "ann:sesame@HOST?creds=/x"];
        super::a_wrong_login_is_told_without_the_address("redis", server.port, &good, &bad);
    }

    #[test]
    fn a_refused_subscription_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "user ann on >p resetchannels &p.game.A &p._bus.% +@all\n").unwrap();
        let server = Server::redis_with(&["--include", file.path().to_str().unwrap()]);
        let node =
            Node::listening(&format!("redis://ann:p@127.0.0.1:{}", server.port), "n1", &[subject("A")]);
        assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(2)));
        node.ear.until("the refusal", |heard| heard.contains(&Heard::Confirmed(Ticket(2), false)));
    }
}
