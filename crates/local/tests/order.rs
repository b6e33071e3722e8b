//! What is heard, in which order, and how it is counted, across processes.

mod support;

use std::time::{Duration, Instant};
use support::{PATIENCE, Voice, decode, drain, encode};
use tavern_local::{Draft, Error, Local, MESSAGE_BYTES, Options, open};

#[test]
fn each_publisher_is_heard_in_order_nothing_missing_nothing_twice() {
    const SAID: usize = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let mut ears: Vec<Voice> = (0..3).map(|_| Voice::at(folder.path())).collect();
    ears[0].ok("subscribe c0 c1 c2");
    ears[1].ok("psubscribe c?");
    ears[2].ok("subscribe c0 c1 c2");
    ears[2].ok("psubscribe c*");
    let times = [1, 1, 2];
    let mut mouths: Vec<Voice> = (0..3).map(|_| Voice::at(folder.path())).collect();
    for (at, mouth) in mouths.iter_mut().enumerate() {
        mouth.tell(&format!("say c{at} {SAID} m{at} 20"));
    }
    for (ear, times) in ears.iter_mut().zip(times) {
        ear.tell(&format!("hear {}", 3 * SAID * times));
    }
    for mouth in &mut mouths {
        for n in 0..SAID {
            assert_eq!(mouth.line(), format!("said {n} 4"));
        }
    }
    for (ear, times) in ears.iter_mut().zip(times) {
        let mut next = [0; 3];
        for _ in 0..3 * SAID * times {
            let line = ear.line();
            let mut parts = line.rsplit(' ').next().unwrap().split(':');
            let from: usize = parts.next().unwrap()[1..].parse().unwrap();
            let n: usize = parts.next().unwrap().parse().unwrap();
            assert_eq!(n, next[from] / times, "{line}");
            assert!(parts.next().unwrap().len() == 20, "{line}");
            next[from] += 1;
        }
        assert_eq!(next, [SAID * times; 3]);
        assert_eq!(ear.line(), format!("ok {}", 3 * SAID * times));
        assert_eq!(ear.ask("poll"), "none");
    }
}

#[test]
fn what_is_said_while_nobody_looks_is_there_at_the_next_poll() {
    let folder = tempfile::tempdir().unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    let mouth = open(folder.path()).unwrap();
    for n in 0..3 {
        assert_eq!(mouth.publish("c", format!("{n}")).unwrap(), 1);
        assert_eq!(mouth.publish("d", "nobody hears this").unwrap(), 0);
    }
    for n in 0..3 {
        assert_eq!(ear.ask("poll"), format!("message c {n}"));
    }
    assert_eq!(ear.ask("poll"), "none");
}

#[test]
fn nothing_from_before_the_subscription_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Voice::at(folder.path());
    first.ok("subscribe c");
    let mouth = open(folder.path()).unwrap();
    mouth.publish("c", "early").unwrap();
    let late = open(folder.path()).unwrap();
    late.subscribe(["c"]).unwrap();
    assert_eq!(mouth.publish("c", "late").unwrap(), 2);
    assert_eq!(drain(&late), ["message c late"]);
    assert_eq!(first.hear(2), ["message c early", "message c late"]);
}

#[test]
fn a_channel_and_a_pattern_that_both_match_are_both_delivered_and_counted_the_channel_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("psubscribe n*");
    assert_eq!(ear.count("subscribe news"), 2);
    ear.ok("psubscribe *ws");
    let mut mouth = Voice::at(folder.path());
    assert_eq!(mouth.count("publish news 1"), 3);
    assert_eq!(ear.hear(3), ["message news 1", "pmessage *ws news 1", "pmessage n* news 1"]);
    assert_eq!(mouth.count("publish nothing 2"), 1);
    assert_eq!(ear.hear(1), ["pmessage n* nothing 2"]);
    assert_eq!(ear.ask("poll"), "none");
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
fn what_was_counted_before_an_unsubscription_is_still_delivered_and_nothing_after() {
    let folder = tempfile::tempdir().unwrap();
    let mut mouth = Voice::at(folder.path());
    let ear = open(folder.path()).unwrap();
    ear.subscribe(["c", "d"]).unwrap();
    ear.psubscribe(["c*"]).unwrap();
    assert_eq!(mouth.count("publish c before"), 2);
    assert_eq!(ear.unsubscribe(["c"]).unwrap(), 2);
    assert_eq!(mouth.count("publish c between"), 1);
    ear.punsubscribe(["c*"]).unwrap();
    assert_eq!(mouth.count("publish c after"), 0);
    assert_eq!(drain(&ear), ["message c before", "pmessage c* c before", "pmessage c* c between"]);
}

#[test]
fn what_is_counted_is_delivered_exactly_while_subscriptions_come_and_go() {
    const SAID: usize = 2_000;
    let folder = tempfile::tempdir().unwrap();
    let (fickle, constant) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    constant.subscribe(["c"]).unwrap();
    let mut mouth = Voice::at(folder.path());
    mouth.tell(&format!("say c {SAID} m 1"));
    let (mut counted, mut said, mut heard) = (0, 0, 0);
    let began = Instant::now();
    while said < SAID {
        assert!(began.elapsed() < PATIENCE, "{said} of {SAID}");
        fickle.subscribe(["c"]).unwrap();
        fickle.psubscribe(["c*"]).unwrap();
        fickle.unsubscribe(["c"]).unwrap();
        heard += drain(&fickle).len();
        fickle.punsubscribe(["c*"]).unwrap();
        heard += drain(&constant).len();
        while let Some(line) = mouth.try_line() {
            if let Some(recipients) = line.strip_prefix(&format!("said {said} ")) {
                counted += recipients.parse::<usize>().unwrap();
                said += 1;
            }
        }
    }
    heard += drain(&fickle).len() + drain(&constant).len();
    assert_eq!(heard, counted);
    assert!(counted > SAID, "some were heard by both");
}

#[test]
fn ending_all_subscriptions_touches_only_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Voice::at(folder.path());
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
    assert_eq!(other.hear(2), ["message c 1", "message c 2"]);
}

#[test]
fn only_the_living_are_shown_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut dead = Voice::at(folder.path());
    let mut living = Voice::at(folder.path());
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
fn any_bytes_are_a_name_and_a_payload() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    let odd: [&[u8]; 5] = [b"", b"\0", b"\xff\xfe", b"a b\nc", &all];
    local.subscribe(odd).unwrap();
    let mut other = Voice::at(folder.path());
    for name in odd {
        assert_eq!(other.count(&format!("subscribe {}", encode(name))), 1);
        for payload in odd {
            assert_eq!(other.count(&format!("publish {} {}", encode(name), encode(payload))), 2);
            let message = local.poll().unwrap().unwrap();
            assert_eq!(message.elements(), [b"message", name, payload]);
            let heard = other.hear(1).remove(0);
            let words: Vec<Vec<u8>> = heard.split(' ').skip(1).map(decode).collect();
            assert_eq!(words, [name, payload]);
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
        Err(Error::TooLarge { what, bytes, most }) => {
            assert_eq!((what, bytes, most), (part, MESSAGE_BYTES + 1, MESSAGE_BYTES));
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
fn many_in_one_go_keep_their_order_and_are_counted_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe even");
    let payloads: Vec<String> = (0..2_000).map(|n| n.to_string()).collect();
    let draft =
        |n: usize| Draft::new(if n.is_multiple_of(2) { b"even" } else { b"odd" }, payloads[n].as_bytes());
    let drafts: Vec<Draft<'_>> = (0..2_000).map(draft).collect();
    let mouth = open(folder.path()).unwrap();
    let recipients = mouth.publish_all(&drafts).unwrap();
    assert!(recipients.iter().enumerate().all(|(n, &count)| count == u64::from(n.is_multiple_of(2))));
    let expected: Vec<String> = (0..1_000).map(|n| format!("message even {}", 2 * n)).collect();
    assert_eq!(ear.hear(1_000), expected);
    assert!(mouth.publish_all(&[]).unwrap().is_empty());
}

#[test]
fn who_wants_no_echo_does_not_hear_itself_and_does_not_count() {
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
fn a_publish_that_nobody_hears_asks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let mouth =
        Local::open_with(folder.path(), Options { patience: Duration::ZERO, ..Options::default() }).unwrap();
    assert_eq!(mouth.publish("c", "x").unwrap(), 0);
    let mut holder = Voice::at(folder.path());
    holder.ok("hold");
    // Known from memory: it needs no turn to write.
    assert_eq!(mouth.publish("c", "x").unwrap(), 0);
    assert!(matches!(mouth.publish("d", "x"), Err(Error::Busy { .. })));
    holder.kill();
    assert_eq!(mouth.stat().unwrap().last_id, 0);

    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    assert_eq!(mouth.publish("c", "y").unwrap(), 1);
    assert_eq!(ear.ask("poll"), "message c y");
}
