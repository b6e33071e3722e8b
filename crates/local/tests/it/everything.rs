//! Subscriptions to everything: a publisher asks such a subscriber to narrow, and then counts recipients exactly.

use crate::support::{Peer, drain};
use std::time::{Duration, Instant};
use tavern_local::{ChannelNamespace, Interest, Local, Options, open};

#[test]
fn a_subscriber_to_everything_is_asked_to_narrow_and_then_counted_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let mut peer = Peer::at(folder.path());
    peer.send("narrow-on-request c d");
    assert_eq!(peer.line(), "subscribed");
    let publisher = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(publisher.publish("other", "x").unwrap(), 0);
    assert_eq!(publisher.publish("c", "1").unwrap(), 1);
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    assert_eq!(publisher.publish("d", "end").unwrap(), 1);
    assert_eq!(peer.line(), "message c 1");
    assert_eq!(peer.line(), "message d end");
    let asked: u64 = peer.line().strip_prefix("ok ").unwrap().parse().unwrap();
    assert!(asked >= 1);
}

#[test]
fn several_subscribers_to_everything_are_all_asked_to_narrow() {
    let folder = tempfile::tempdir().unwrap();
    let mut peers: Vec<Peer> = (0..3).map(|_| Peer::at(folder.path())).collect();
    for peer in &mut peers {
        peer.send("narrow-on-request c");
        assert_eq!(peer.line(), "subscribed");
    }
    let publisher = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(publisher.publish("c", "end").unwrap(), 3);
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    for peer in &mut peers {
        assert_eq!(peer.line(), "message c end");
    }
}

#[test]
fn a_stopped_subscriber_to_everything_is_waited_for_one_second_and_receives_it_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut peer = Peer::at(folder.path());
    peer.send("narrow-on-request c");
    assert_eq!(peer.line(), "subscribed");
    peer.stop();
    let publisher = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(publisher.publish("c", "1").unwrap(), 0, "it is unknown whether it wants this");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_millis(2_500), "{took:?}");
    // It is not asked again for a while.
    let began = Instant::now();
    assert_eq!(publisher.publish("c", "2").unwrap(), 0);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    peer.resume();
    assert_eq!((peer.line(), peer.line()), ("message c 1".into(), "message c 2".into()));
}

#[test]
fn a_narrow_request_arrives_although_the_wake_up_socket_was_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut peer = Peer::at(folder.path());
    peer.send("narrow-on-request c");
    assert_eq!(peer.line(), "subscribed");
    peer.stop();
    // Fill the socket.
    let socket = folder.path().join(format!("bus.db-wake-{}", crate::support::wake_files(folder.path())[0]));
    let sender = std::os::unix::net::UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"l", &socket).is_ok() {}
    let counted = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| open(folder.path()).unwrap().publish("c", "end").unwrap());
        // Requests are being dropped by now.
        std::thread::sleep(Duration::from_millis(100));
        peer.resume();
        publisher.join().unwrap()
    });
    assert_eq!(counted, 1);
    assert_eq!(peer.line(), "message c end");
}

#[test]
fn a_publisher_that_subscribes_to_everything_does_not_ask_itself_to_narrow() {
    let folder = tempfile::tempdir().unwrap();
    for echo in [true, false] {
        let local = Local::open_with(folder.path(), Options { echo, ..Options::default() }).unwrap();
        local.add_interests([Interest::everything(ChannelNamespace::Public)]).unwrap();
        let began = Instant::now();
        assert_eq!(local.publish("c", "x").unwrap(), 0);
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        assert!(!local.take_narrow_request());
        assert_eq!(drain(&local).len(), usize::from(echo));
    }
}

#[test]
fn an_old_narrow_request_does_not_reach_a_new_subscriber() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    first.add_interests([Interest::everything(ChannelNamespace::Public)]).unwrap();
    let mut publisher = Peer::at(folder.path());
    publisher.send("publish c x");
    assert!(first.wait(Duration::from_secs(10)).unwrap().is_none());
    assert!(first.take_narrow_request() && !first.take_narrow_request());
    first.remove_interests([Interest::everything(ChannelNamespace::Public)]).unwrap();
    assert_eq!(publisher.line(), "ok 0");
    let second = open(folder.path()).unwrap();
    second.add_interests([Interest::everything(ChannelNamespace::Public)]).unwrap();
    assert!(!second.take_narrow_request());
}

#[test]
fn the_two_namespaces_are_separate() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    local.add_interests([Interest::channel("c").in_namespace(ChannelNamespace::Private)]).unwrap();
    local.subscribe(["c"]).unwrap();
    local.psubscribe(["*"]).unwrap();
    let draft = |namespace| tavern_local::Draft { namespace, channel: b"c", payload: b"x", header: b"h" };
    assert_eq!(
        local.publish_all(&[draft(ChannelNamespace::Private), draft(ChannelNamespace::Public)]).unwrap(),
        [1, 2]
    );
    let namespaces: Vec<ChannelNamespace> = std::iter::from_fn(|| local.poll().unwrap())
        .map(|message| message.publication().unwrap().namespace())
        .collect();
    assert_eq!(namespaces, [ChannelNamespace::Private, ChannelNamespace::Public, ChannelNamespace::Public]);
    assert_eq!(local.channels(None).unwrap(), [b"c"]);
    assert_eq!(local.numsub(["c"]).unwrap(), [("c", 1)]);
    assert_eq!(local.unsubscribe_all().unwrap(), 2, "the private one stays");
}
