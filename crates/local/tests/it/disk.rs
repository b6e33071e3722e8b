//! Full disks, and files that must not grow.

use crate::support::{DEADLINE, Peer, drain, word_of};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tavern_local::{Draft, Local, Options, open};

const PAYLOAD: usize = 8_000;

/// Publishes numbers until there is no space. Returns how many were published.
fn fill(publisher: &mut Peer, prefix: &str) -> usize {
    publisher.send(&format!("send-numbers c 100000 {prefix} {PAYLOAD}"));
    let mut sent = 0;
    loop {
        let line = publisher.line();
        if line.starts_with("error ") {
            assert!(line.starts_with("error Full ") && line.contains("no space is left"), "{line}");
            return sent;
        }
        assert_eq!(line, format!("sent {sent} 1"));
        sent += 1;
    }
}

fn expected(prefix: &str, sent: usize) -> Vec<String> {
    let tail = |n: usize| char::from(b'a' + (n % 26) as u8).to_string().repeat(PAYLOAD);
    (0..sent).map(|n| format!("message c {prefix}:{n}:{}", tail(n))).collect()
}

#[test]
fn a_full_disk_refuses_what_it_cannot_hold_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let filler = place.join("filler");
    let script = "mount -t tmpfs -o size=3m none \"$0\" && head -c 1m /dev/zero > \"$0/filler\"";
    let mut subscriber = Peer::behind(script, &place);
    let mut publisher = Peer::beside(&subscriber);
    for peer in [&mut subscriber, &mut publisher] {
        peer.ok(&format!("open {}", word_of(&place)));
    }
    subscriber.ok("subscribe c");
    let sent = fill(&mut publisher, "first");
    assert!(sent > 10, "{sent}");
    assert_eq!(subscriber.receive(sent), expected("first", sent));
    assert_eq!(subscriber.ask("poll"), "none");
    // Maintenance fails now, and that is no error for a reader.
    assert_eq!(subscriber.ask("wait 1200"), "none");

    publisher.ok(&format!("remove {}", word_of(&filler)));
    let more = fill(&mut publisher, "second");
    assert!(more > 10, "{more}");
    assert_eq!(subscriber.receive(more), expected("second", more));
    assert_eq!(subscriber.ask("poll"), "none");
}

/// Opens and subscribes, which may find the disk full. Returns how many of the two steps succeeded.
fn try_to_subscribe(peer: &mut Peer, folder: &Path) -> usize {
    let commands = [format!("open {}", word_of(folder)), "subscribe c".into()];
    for (done, command) in commands.iter().enumerate() {
        let answer = peer.ask(command);
        if !answer.starts_with("ok") {
            assert!(answer.starts_with("error Full "), "{command}: {answer}");
            return done;
        }
    }
    commands.len()
}

#[test]
fn opening_and_subscribing_on_a_full_disk_fail_with_full_and_succeed_when_there_is_space() {
    let mut came = [0; 3];
    for free in (0..160).step_by(8) {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let taken = format!("head -c {}k /dev/zero > \"$0/filler\"", 1024 - free);
        let script = format!("mount -t tmpfs -o size=1m none \"$0\" && {taken}");
        let mut one = Peer::behind(&script, &place);
        let mut two = Peer::beside(&one);
        came[try_to_subscribe(&mut one, &place)] += 1;
        // The second peer must cope with what the first could not finish.
        came[try_to_subscribe(&mut two, &place)] += 1;
        one.ok(&format!("remove {}", word_of(&place.join("filler"))));
        for peer in [&mut one, &mut two] {
            assert_eq!(try_to_subscribe(peer, &place), 2);
        }
        assert_eq!((one.count("sweep"), one.count("publish c x")), (0, 2), "with {free} KiB");
        assert_eq!((one.ask("poll"), two.ask("poll")), ("message c x".into(), "message c x".into()));
    }
    assert!(came.iter().all(|&times| times > 0), "{came:?}");
}

/// The largest size of the write-ahead log during some work.
fn highest(folder: &Path, work: impl FnOnce()) -> u64 {
    let file = folder.join("bus.db-wal");
    let (over, max) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let size = std::fs::metadata(&file).map_or(0, |file| file.len());
                max.fetch_max(size, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    max.load(Ordering::SeqCst)
}

/// Publishes ten thousand messages while one process waits, for these or for others.
fn check_wal(listens: &str) {
    const SENT: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let mut waiter = Peer::at(folder.path());
    waiter.ok(&format!("subscribe {listens}"));
    let subscriber = open(folder.path()).unwrap();
    subscriber.subscribe(["c"]).unwrap();
    let recipients = 1 + u64::from(listens == "c");
    let max = highest(folder.path(), || {
        if listens == "c" {
            waiter.send(&format!("receive {SENT}"));
        } else {
            waiter.send("wait 60000");
        }
        for n in 0..SENT {
            assert_eq!(subscriber.publish("c", format!("{n:0>100}")).unwrap(), recipients);
            let message = subscriber.poll().unwrap().unwrap();
            assert_eq!(message.payload(), format!("{n:0>100}").as_bytes());
        }
        if listens == "c" {
            (0..SENT).for_each(|n| assert_eq!(waiter.line(), format!("message c {n:0>100}")));
        }
    });
    assert!(max > 0 && max < 8 << 20, "{max} bytes");
}

#[test]
fn the_write_ahead_log_stays_small_while_a_process_waits_for_another_channel() {
    check_wal("other");
}

#[test]
fn the_write_ahead_log_stays_small_while_a_process_receives_everything() {
    check_wal("c");
}

#[test]
fn a_reader_stopped_inside_a_transaction_does_not_block_writers() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_bytes: 1 << 20, ..Options::default() };
    let publisher = Local::open_with(folder.path(), options).unwrap();
    let subscriber = open(folder.path()).unwrap();
    subscriber.subscribe(["c"]).unwrap();
    // A read transaction that does not end, as in a process stopped inside it.
    let reader = crate::support::database(folder.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM log").unwrap();
    let payload = vec![b'x'; 64 << 10];
    let mut longest = Duration::ZERO;
    for n in 0..2_100 {
        // Large ones first, so that the file is above its limit when the checkpoint is due.
        let payload = if n < 700 { &payload[..] } else { b"small" };
        let began = Instant::now();
        publisher.publish_all(&[Draft::new(b"c", payload)]).unwrap();
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let wal = || std::fs::metadata(folder.path().join("bus.db-wal")).unwrap().len();
    assert!(wal() > 32 << 20, "it was above its limit: {}", wal());
    drop(reader);
    let began = Instant::now();
    while wal() > 33 << 20 {
        assert!(began.elapsed() < DEADLINE, "{} bytes", wal());
        publisher.publish("c", "small").unwrap();
    }
    assert!(!drain(&subscriber).is_empty());
}
