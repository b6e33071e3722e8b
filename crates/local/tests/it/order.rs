//! What is received, in which order, and how it is counted, across processes.

use crate::support::{DEADLINE, Peer, decode, drain, encode};
use std::time::{Duration, Instant};
use tavern_local::{Draft, Error, Local, MESSAGE_BYTES, Options, open};

#[test]
fn messages_of_each_publisher_arrive_in_order_none_missing_none_twice() {
    const SENT: usize = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let mut subscribers: Vec<Peer> = (0..3).map(|_| Peer::at(folder.path())).collect();
    subscribers[0].ok("subscribe c0 c1 c2");
    subscribers[1].ok("psubscribe c?");
    subscribers[2].ok("subscribe c0 c1 c2");
    subscribers[2].ok("psubscribe c*");
    let times = [1, 1, 2];
    let mut publishers: Vec<Peer> = (0..3).map(|_| Peer::at(folder.path())).collect();
    for (at, publisher) in publishers.iter_mut().enumerate() {
        publisher.send(&format!("send-numbers c{at} {SENT} m{at} 20"));
    }
    for (subscriber, times) in subscribers.iter_mut().zip(times) {
        subscriber.send(&format!("receive {}", 3 * SENT * times));
    }
    for publisher in &mut publishers {
        for n in 0..SENT {
            assert_eq!(publisher.line(), format!("sent {n} 4"));
        }
    }
    for (subscriber, times) in subscribers.iter_mut().zip(times) {
        let mut next = [0; 3];
        for _ in 0..3 * SENT * times {
            let line = subscriber.line();
            let mut parts = line.rsplit(' ').next().unwrap().split(':');
            let from: usize = parts.next().unwrap()[1..].parse().unwrap();
            let n: usize = parts.next().unwrap().parse().unwrap();
            assert_eq!(n, next[from] / times, "{line}");
            assert!(parts.next().unwrap().len() == 20, "{line}");
            next[from] += 1;
        }
        assert_eq!(next, [SENT * times; 3]);
        assert_eq!(subscriber.line(), format!("ok {}", 3 * SENT * times));
        assert_eq!(subscriber.ask("poll"), "none");
    }
}

#[test]
fn a_message_published_between_polls_is_there_at_the_next_poll() {
    let folder = tempfile::tempdir().unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    let publisher = open(folder.path()).unwrap();
    for n in 0..3 {
        assert_eq!(publisher.publish("c", format!("{n}")).unwrap(), 1);
        assert_eq!(publisher.publish("d", "no subscriber").unwrap(), 0);
    }
    for n in 0..3 {
        assert_eq!(subscriber.ask("poll"), format!("message c {n}"));
    }
    assert_eq!(subscriber.ask("poll"), "none");
}

#[test]
fn a_message_from_before_the_subscription_is_not_received() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Peer::at(folder.path());
    first.ok("subscribe c");
    let publisher = open(folder.path()).unwrap();
    publisher.publish("c", "early").unwrap();
    let late = open(folder.path()).unwrap();
    late.subscribe(["c"]).unwrap();
    assert_eq!(publisher.publish("c", "late").unwrap(), 2);
    assert_eq!(drain(&late), ["message c late"]);
    assert_eq!(first.receive(2), ["message c early", "message c late"]);
}

#[test]
fn a_matching_channel_and_pattern_are_both_delivered_and_counted_channel_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("psubscribe n*");
    assert_eq!(subscriber.count("subscribe news"), 2);
    subscriber.ok("psubscribe *ws");
    let mut publisher = Peer::at(folder.path());
    assert_eq!(publisher.count("publish news 1"), 3);
    assert_eq!(subscriber.receive(3), ["message news 1", "pmessage *ws news 1", "pmessage n* news 1"]);
    assert_eq!(publisher.count("publish nothing 2"), 1);
    assert_eq!(subscriber.receive(1), ["pmessage n* nothing 2"]);
    assert_eq!(subscriber.ask("poll"), "none");
}

#[test]
fn a_second_subscription_to_the_same_name_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    assert_eq!(local.subscribe(["c", "c"]).unwrap(), 1);
    assert_eq!(local.subscribe(["c"]).unwrap(), 1);
    assert_eq!(local.publish("c", "1").unwrap(), 1);
    assert_eq!(drain(&local), ["message c 1"]);
    assert_eq!(local.unsubscribe(["c", "d"]).unwrap(), 0);
    assert_eq!(local.publish("c", "2").unwrap(), 0);
}

#[test]
fn messages_from_before_an_unsubscription_are_delivered_and_none_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut publisher = Peer::at(folder.path());
    let subscriber = open(folder.path()).unwrap();
    subscriber.subscribe(["c", "d"]).unwrap();
    subscriber.psubscribe(["c*"]).unwrap();
    assert_eq!(publisher.count("publish c before"), 2);
    assert_eq!(subscriber.unsubscribe(["c"]).unwrap(), 2);
    assert_eq!(publisher.count("publish c between"), 1);
    subscriber.punsubscribe(["c*"]).unwrap();
    assert_eq!(publisher.count("publish c after"), 0);
    assert_eq!(drain(&subscriber), ["message c before", "pmessage c* c before", "pmessage c* c between"]);
}

#[test]
fn deliveries_equal_counted_recipients_while_subscriptions_change() {
    const SENT: usize = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let (fickle, constant) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    constant.subscribe(["c"]).unwrap();
    let mut publisher = Peer::at(folder.path());
    publisher.send(&format!("send-numbers c {SENT} m 1"));
    let (mut counted, mut sent, mut received) = (0, 0, 0);
    let began = Instant::now();
    while sent < SENT {
        assert!(began.elapsed() < DEADLINE, "{sent} of {SENT}");
        fickle.subscribe(["c"]).unwrap();
        fickle.psubscribe(["c*"]).unwrap();
        fickle.unsubscribe(["c"]).unwrap();
        received += drain(&fickle).len();
        fickle.punsubscribe(["c*"]).unwrap();
        received += drain(&constant).len();
        while let Some(line) = publisher.try_line() {
            if let Some(recipients) = line.strip_prefix(&format!("sent {sent} ")) {
                counted += recipients.parse::<usize>().unwrap();
                sent += 1;
            }
        }
    }
    received += drain(&fickle).len() + drain(&constant).len();
    assert_eq!(received, counted);
    assert!(counted > SENT, "some were received by both");
}

#[test]
fn unsubscribing_from_all_affects_only_that_handle() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Peer::at(folder.path());
    other.ok("subscribe c d");
    let (one, two) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    for local in [&one, &two] {
        local.subscribe(["c", "d"]).unwrap();
        local.psubscribe(["c*"]).unwrap();
    }
    assert_eq!(one.unsubscribe_all().unwrap(), 1);
    assert_eq!(two.publish("c", "1").unwrap(), 4);
    assert_eq!(one.punsubscribe_all().unwrap(), 0);
    assert_eq!(two.publish("c", "2").unwrap(), 3);
    assert_eq!(drain(&one), ["pmessage c* c 1"]);
    assert_eq!(drain(&two).len(), 4);
    assert_eq!(other.receive(2), ["message c 1", "message c 2"]);
}

#[test]
fn dead_processes_are_neither_listed_nor_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut dead = Peer::at(folder.path());
    let mut living = Peer::at(folder.path());
    dead.ok("subscribe both gone");
    dead.ok("psubscribe g* b*");
    living.ok("subscribe both here");
    living.ok("psubscribe b*");
    let local = open(folder.path()).unwrap();
    let names = |pattern: Option<&[u8]>| {
        let names = local.channels(pattern).unwrap();
        names.iter().map(|name| encode(name)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(None), "both gone here");
    assert_eq!(names(Some(b"?o*")), "both gone");
    assert_eq!(local.numsub(["both", "gone", "none"]).unwrap(), [("both", 2), ("gone", 1), ("none", 0)]);
    assert_eq!(local.numpat().unwrap(), 2);
    dead.kill();
    assert_eq!(names(None), "both here");
    assert_eq!(local.numsub(["both", "gone"]).unwrap(), [("both", 1), ("gone", 0)]);
    assert_eq!(local.numpat().unwrap(), 1);
    assert_eq!(local.stat().unwrap().processes.iter().filter(|process| process.alive).count(), 1);
}

#[test]
fn names_and_payloads_are_any_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    let odd: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe", b"a b\nc", &all];
    local.subscribe(odd).unwrap();
    let mut other = Peer::at(folder.path());
    for name in odd {
        assert_eq!(other.count(&format!("subscribe {}", encode(name))), 1);
        for payload in odd {
            assert_eq!(other.count(&format!("publish {} {}", encode(name), encode(payload))), 2);
            let message = local.poll().unwrap().unwrap();
            assert_eq!(message.elements(), [b"message", name, payload]);
            let received = other.receive(1).remove(0);
            let publication: Vec<Vec<u8>> = received.split(' ').skip(1).map(decode).collect();
            assert_eq!(publication, [name, payload]);
        }
        other.ok(&format!("unsubscribe {}", encode(name)));
    }
}

#[test]
fn one_mebibyte_is_accepted_and_a_byte_more_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    let mut name = vec![b'n'; MESSAGE_BYTES];
    let mut payload: Vec<u8> = (0..MESSAGE_BYTES).map(|at| (at * 31) as u8).collect();
    local.subscribe([&name]).unwrap();
    assert_eq!(local.publish(&name, &payload).unwrap(), 1);
    let message = local.poll().unwrap().unwrap();
    assert!(message.channel() == name && message.payload() == payload);

    let refused = |outcome: Result<(), Error>, part: &str| match outcome {
        Err(Error::TooLarge { what, bytes, limit }) => {
            assert_eq!((what, bytes, limit), (part, MESSAGE_BYTES + 1, MESSAGE_BYTES));
        }
        other => panic!("{other:?}"),
    };
    payload.push(0);
    refused(local.publish("c", &payload).map(drop), "payload");
    name.push(0);
    refused(local.publish(&name, "").map(drop), "channel");
    refused(local.subscribe([&name]).map(drop), "name");
    refused(local.psubscribe([&name]).map(drop), "name");
    assert!(local.poll().unwrap().is_none());
}

#[test]
fn publish_all_keeps_the_order_and_counts_each_message() {
    let folder = tempfile::tempdir().unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe even");
    let payloads: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let draft =
        |n: usize| Draft::new(if n.is_multiple_of(2) { b"even" } else { b"odd" }, payloads[n].as_bytes());
    let drafts: Vec<Draft<'_>> = (0..2_000).map(draft).collect();
    let publisher = open(folder.path()).unwrap();
    let recipients = publisher.publish_all(&drafts).unwrap();
    assert!(recipients.iter().enumerate().all(|(n, &count)| count == u64::from(n.is_multiple_of(2))));
    let expected: Vec<String> = (0..1_000).map(|n| format!("message even {}", 2 * n)).collect();
    assert_eq!(subscriber.receive(1_000), expected);
    assert!(publisher.publish_all(&[]).unwrap().is_empty());
}

#[test]
fn a_handle_without_echo_does_not_receive_or_count_its_own_messages() {
    let folder = tempfile::tempdir().unwrap();
    let quiet = Local::open_with(folder.path(), Options { echo: false, ..Options::default() }).unwrap();
    let beside = open(folder.path()).unwrap();
    quiet.subscribe(["c"]).unwrap();
    quiet.psubscribe(["c*"]).unwrap();
    assert_eq!(quiet.publish("c", "alone").unwrap(), 0);
    beside.subscribe(["c"]).unwrap();
    assert_eq!(quiet.publish("c", "mine").unwrap(), 1);
    assert_eq!(beside.publish("c", "yours").unwrap(), 3);
    assert_eq!(drain(&quiet), ["message c yours", "pmessage c* c yours"]);
    assert_eq!(drain(&beside), ["message c mine", "message c yours"]);
}

#[test]
fn a_publish_without_recipients_does_not_touch_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let publisher =
        Local::open_with(folder.path(), Options { busy_timeout: Duration::ZERO, ..Options::default() })
            .unwrap();
    assert_eq!(publisher.publish("c", "x").unwrap(), 0);
    let mut holder = Peer::at(folder.path());
    holder.ok("hold-write-lock");
    // Known from the cache: it needs no write lock.
    assert_eq!(publisher.publish("c", "x").unwrap(), 0);
    assert!(matches!(publisher.publish("d", "x"), Err(Error::Busy { .. })));
    holder.kill();
    assert_eq!(publisher.stat().unwrap().last_id, 0);

    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    assert_eq!(publisher.publish("c", "y").unwrap(), 1);
    assert_eq!(subscriber.ask("poll"), "message c y");
}
