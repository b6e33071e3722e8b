//! Nothing grows without bound, and a subscriber that loses messages because of that learns how many.

use crate::support::{Peer, database, drain, encode, rows};
use std::time::{Duration, Instant};
use tavern_local::{Draft, Local, Options, open};

/// Publishes numbers from `from` on, and asserts after each that the log is within its limits.
fn send_numbers(publisher: &Local, options: &Options, from: usize, count: usize, size: usize) {
    for n in from..from + count {
        let payload = format!("{n:0>size$}");
        publisher.publish("c", payload).unwrap();
        let stat = publisher.stat().unwrap();
        assert!(stat.log_messages <= options.log_messages.max(1), "{stat:?}");
        assert!(stat.log_bytes <= options.log_bytes.max(size as u64 + 1), "{stat:?}");
    }
}

/// What a slow reader must read when it lost the first `lost` of `sent` numbers.
fn gap_and_rest(lost: usize, sent: usize, size: usize) -> Vec<String> {
    let rest = (lost..sent).map(|n| format!("message c {n:0>size$}"));
    std::iter::once(format!("gap {lost}")).chain(rest).collect()
}

/// One peer never reads; another reads after every few messages and loses nothing.
fn check_slow_reader(options: Options, size: usize, kept_at_least: usize) {
    const SENT: usize = 400;
    let few = kept_at_least.min(20);
    let folder = tempfile::tempdir().unwrap();
    let publisher = Local::open_with(folder.path(), options.clone()).unwrap();
    let mut slow = Peer::at(folder.path());
    let mut reader = Peer::at(folder.path());
    slow.ok("subscribe c");
    reader.ok("subscribe c");
    for from in (0..SENT).step_by(few) {
        send_numbers(&publisher, &options, from, few, size);
        let received = reader.receive(few);
        let expected: Vec<String> = (from..from + few).map(|n| format!("message c {n:0>size$}")).collect();
        assert_eq!(received, expected, "the reader loses nothing");
    }
    assert_eq!(reader.ask("poll"), "none");
    let kept = rows(folder.path()).log as usize;
    assert!(kept >= kept_at_least && kept < SENT, "{kept}");
    assert_eq!(slow.receive(kept + 1), gap_and_rest(SENT - kept, SENT, size));
    assert_eq!(slow.ask("poll"), "none");
    assert_eq!(publisher.publish("c", "on").unwrap(), 2);
    assert_eq!((slow.ask("poll"), reader.ask("poll")), ("message c on".into(), "message c on".into()));
}

#[test]
fn a_subscriber_that_never_reads_loses_the_oldest_messages_above_the_message_limit() {
    check_slow_reader(Options { log_messages: 50, ..Options::default() }, 10, 44);
    check_slow_reader(Options { log_messages: 1, ..Options::default() }, 10, 1);
    check_slow_reader(Options { log_messages: 0, ..Options::default() }, 10, 1);
}

#[test]
fn a_subscriber_that_never_reads_loses_the_oldest_messages_above_the_byte_limit() {
    check_slow_reader(Options { log_bytes: 10_000, ..Options::default() }, 99, 89);
    // A single message is kept, however large it is.
    check_slow_reader(Options { log_bytes: 10, ..Options::default() }, 50, 1);
}

#[test]
fn a_subscriber_that_never_reads_loses_only_messages_above_the_age_limit() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_messages: 100, log_age: Duration::from_secs(60), ..Options::default() };
    let publisher = Local::open_with(folder.path(), options).unwrap();
    let mut slow = Peer::at(folder.path());
    slow.ok("subscribe c");
    for n in 0..97 {
        publisher.publish("c", format!("{n}")).unwrap();
    }
    let aged = database(folder.path()).execute("UPDATE log SET at = at - 61000 WHERE id <= 2", []);
    assert_eq!(aged.unwrap(), 2);
    publisher.publish("c", "97").unwrap();
    // Near the other limits but within them: only the two that are too old go.
    assert_eq!(slow.receive(97), gap_and_rest(2, 98, 1));
    assert_eq!(slow.ask("poll"), "none");
}

#[test]
fn messages_read_but_not_acknowledged_are_not_reported_lost() {
    let folder = tempfile::tempdir().unwrap();
    let publisher =
        Local::open_with(folder.path(), Options { log_messages: 20, ..Options::default() }).unwrap();
    let mut reader = Peer::at(folder.path());
    let mut slow = Peer::at(folder.path());
    reader.ok("subscribe mine");
    slow.ok("subscribe c");
    publisher.publish("mine", "1").unwrap();
    assert_eq!(reader.ask("poll"), "message mine 1");
    // The unacknowledged first message is dropped with those that the slow peer loses.
    for n in 0..60 {
        publisher.publish("c", format!("{n}")).unwrap();
    }
    assert_eq!(reader.ask("poll"), "none");
    publisher.publish("mine", "2").unwrap();
    assert_eq!(reader.ask("poll"), "message mine 2");
    assert_eq!(reader.ask("poll"), "none");
    assert!(slow.ask("poll").starts_with("gap "));
}

#[test]
fn a_gap_counts_only_unread_messages_after_an_acknowledgement() {
    let folder = tempfile::tempdir().unwrap();
    let publisher =
        Local::open_with(folder.path(), Options { log_messages: 20, ..Options::default() }).unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    let mut sent = 0;
    let mut send_numbers = |count: usize| {
        for _ in 0..count {
            publisher.publish("c", format!("{sent}")).unwrap();
            sent += 1;
        }
        sent
    };
    let sent = send_numbers(15);
    assert_eq!(subscriber.receive(sent).len(), 15);
    // These push out what was read and some of what was not; then maintenance acknowledges what was read.
    let sent = send_numbers(30);
    let kept = rows(folder.path()).log as usize;
    // Maintenance is due by then and runs before the next fetch.
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(subscriber.receive(kept + 1), {
        let rest = (sent - kept..sent).map(|n| format!("message c {n}"));
        std::iter::once(format!("gap {}", sent - kept - 15)).chain(rest).collect::<Vec<_>>()
    });
    assert_eq!(subscriber.ask("poll"), "none");
}

#[test]
fn only_the_slow_one_of_two_subscribers_in_a_process_gets_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_messages: 50, ..Options::default() };
    let reader = Local::open_with(folder.path(), options.clone()).unwrap();
    let slow = Local::open_with(folder.path(), options.clone()).unwrap();
    reader.subscribe(["c"]).unwrap();
    slow.subscribe(["c"]).unwrap();
    let publisher = Local::open_with(folder.path(), options.clone()).unwrap();
    for n in 0..200 {
        send_numbers(&publisher, &options, n, 1, 1);
        assert_eq!(drain(&reader), [format!("message c {n}")]);
    }
    assert_eq!(drain(&slow), gap_and_rest(150, 200, 1));
    assert_eq!(publisher.publish("c", "on").unwrap(), 2);
    assert_eq!((drain(&reader), drain(&slow)), (vec!["message c on".into()], vec!["message c on".into()]));
}

#[test]
fn a_gap_ends_a_wait() {
    let folder = tempfile::tempdir().unwrap();
    let publisher =
        Local::open_with(folder.path(), Options { log_messages: 5, ..Options::default() }).unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    subscriber.stop();
    for n in 0..10 {
        publisher.publish("c", format!("{n}")).unwrap();
    }
    subscriber.send("wait 20000");
    subscriber.resume();
    assert_eq!(subscriber.line_within(Duration::from_millis(700)), "gap 5");
}

#[test]
fn maximum_limits_drop_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        Options { log_messages: u64::MAX, log_bytes: u64::MAX, log_age: Duration::MAX, ..Options::default() };
    let local = Local::open_with(folder.path(), options).unwrap();
    local.subscribe(["c"]).unwrap();
    for n in 0..10 {
        local.publish("c", format!("{n}")).unwrap();
    }
    assert_eq!(drain(&local), (0..10).map(|n| format!("message c {n}")).collect::<Vec<_>>());
}

#[test]
fn a_message_above_the_byte_limit_is_published_as_fast_as_another() {
    let folder = tempfile::tempdir().unwrap();
    let local = Local::open_with(folder.path(), Options { log_bytes: 10, ..Options::default() }).unwrap();
    local.subscribe(["c"]).unwrap();
    let began = Instant::now();
    for _ in 0..20 {
        local.publish("c", [0; 100]).unwrap();
    }
    assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
}

#[test]
fn a_thousand_subscribers_need_no_descriptor_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut crowd = Peer::idle();
    crowd.ok("limit 256");
    crowd.ok(&format!("open {}", crate::support::word_of(folder.path())));
    assert_eq!(crowd.count("crowd 1000"), 1_000);
    let publisher = open(folder.path()).unwrap();
    assert_eq!(publisher.publish("crowd", "all").unwrap(), 1_000);
    assert_eq!(crowd.count("crowd-poll"), 1_000);
    let channels: Vec<String> = (0..1_000).map(|at| format!("crowd{at}")).collect();
    let drafts: Vec<Draft<'_>> =
        channels.iter().map(|channel| Draft::new(channel.as_bytes(), b"x")).collect();
    assert_eq!(publisher.publish_all(&drafts).unwrap(), [1; 1_000]);
    assert_eq!(crowd.count("crowd-poll"), 1_000);
    assert_eq!(rows(folder.path()).processes.len(), 1);
    // Running out of descriptors gives an error that names the cause.
    crowd.ok("limit 8");
    let other = encode(folder.path().join("other").to_str().unwrap().as_bytes());
    let refused = crowd.ask(&format!("open {other}"));
    assert!(refused.starts_with("error ") && !refused.contains("written to"), "{refused}");
}

#[test]
fn the_audience_cache_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    let before = resident_bytes();
    for n in 0..200u32 {
        let mut name = vec![b'n'; 1 << 20];
        name[..4].copy_from_slice(&n.to_be_bytes());
        assert_eq!(local.publish(&name, "x").unwrap(), 0);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 60 << 20, "{grown} bytes more");
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
