//! Processes that die, are stopped or are taken for dead: dead ones leave nothing, living ones lose nothing.

use crate::support::{Peer, Rows, database, drain, names, rows, until, wake_files};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tavern_local::open;

/// What finds the dead processes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finder {
    Publish,
    Open,
    Sweep,
    Waiting,
}

/// Several processes subscribe to a channel and a pattern; some are killed; `finder` removes them.
fn check(many: usize, victims: &[usize], finder: Finder) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let publisher = open(path).unwrap();
    let mut peers: Vec<Peer> = (0..many).map(|_| Peer::at(path)).collect();
    for peer in &mut peers {
        peer.ok("subscribe c d");
        peer.ok("psubscribe c*");
    }
    let numbers = rows(path).processes;
    assert_eq!(publisher.publish("c", "before").unwrap(), 2 * many as u64);
    for &victim in victims {
        peers[victim].kill();
    }
    let is_alive = |at: &usize| !victims.contains(at);
    let living: Vec<i64> = (0..many).filter(is_alive).map(|at| numbers[at]).collect();
    let alive = living.len() as u64;
    let mut sent = vec!["before"];
    let mut queued = alive;
    match finder {
        Finder::Publish => {
            assert_eq!(publisher.publish("c", "after").unwrap(), 2 * alive);
            sent.push("after");
            queued += alive;
        }
        Finder::Open => drop(open(path).unwrap()),
        Finder::Sweep => assert_eq!(publisher.sweep().unwrap(), victims.len()),
        Finder::Waiting => {
            removed_while_waiting(path, &mut peers[(0..many).find(is_alive).unwrap()], &living);
            queued -= 1;
        }
    }
    let log = if queued == 0 { 0 } else { sent.len() as u64 };
    let expected = Rows { processes: living.clone(), subscriptions: 3 * alive, queued, log };
    assert_eq!(rows(path), expected, "{victims:?} {finder:?}");
    assert_eq!(wake_files(path), living, "{victims:?} {finder:?}");

    assert_eq!(publisher.publish("c", "last").unwrap(), 2 * alive);
    assert_eq!(publisher.numsub(["d"]).unwrap()[0].1, alive);
    sent.push("last");
    for (place, at) in (0..many).filter(is_alive).enumerate() {
        // The one that waited has received the first already.
        let from = usize::from(finder == Finder::Waiting && place == 0);
        let both = |word: &&str| [format!("message c {word}"), format!("pmessage c* c {word}")];
        let expected: Vec<String> = sent[from..].iter().flat_map(both).collect();
        let answers = if from > 0 { vec![peers[at].line()] } else { Vec::new() };
        let received = peers[at].receive(expected.len() - from);
        assert_eq!([answers, received].concat(), expected);
        assert_eq!(peers[at].ask("poll"), "none");
    }
}

/// A living process waits for a message that never comes, and removes the dead ones meanwhile.
fn removed_while_waiting(folder: &Path, waiter: &mut Peer, living: &[i64]) {
    assert_eq!(waiter.receive(2), ["message c before", "pmessage c* c before"]);
    // As if the last sweep were long ago.
    database(folder).execute("UPDATE counters SET swept_at = swept_at - 5000", []).unwrap();
    waiter.send("wait 20000");
    let began = Instant::now();
    until("the dead processes are removed", || rows(folder).processes == living);
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
}

#[test]
fn a_publish_removes_dead_processes() {
    for victim in 0..4 {
        check(4, &[victim], Finder::Publish);
    }
    check(4, &[0, 3], Finder::Publish);
    check(4, &[1, 2], Finder::Publish);
    check(3, &[0, 1, 2], Finder::Publish);
}

#[test]
fn opening_and_sweeping_remove_dead_processes() {
    for victim in 0..3 {
        check(3, &[victim], Finder::Open);
        check(3, &[victim], Finder::Sweep);
    }
    check(3, &[0, 2], Finder::Open);
    check(3, &[0, 1, 2], Finder::Sweep);
}

#[test]
fn a_waiting_process_removes_dead_processes_of_a_quiet_folder() {
    check(3, &[1], Finder::Waiting);
    check(3, &[0, 2], Finder::Waiting);
}

#[test]
fn two_publishers_that_meet_the_same_dead_process_clean_up_once_without_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let subscriber = open(path).unwrap();
    subscriber.subscribe(["c"]).unwrap();
    let own = rows(path).processes;
    let (mut one, mut two) = (Peer::at(path), Peer::at(path));
    for round in 0..20 {
        let mut dead = Peer::at(path);
        dead.ok("subscribe c");
        dead.ok("psubscribe c* *");
        dead.kill();
        one.send(&format!("publish c one{round}"));
        two.send(&format!("publish c two{round}"));
        assert_eq!((one.line(), two.line()), ("ok 1".into(), "ok 1".into()));
        let found = rows(path);
        assert_eq!((found.processes, found.subscriptions), (own.clone(), 1));
        assert_eq!(wake_files(path), own);
        let received: BTreeSet<String> = drain(&subscriber).into_iter().collect();
        assert_eq!(received, [format!("message c one{round}"), format!("message c two{round}")].into());
    }
}

#[test]
fn of_two_concurrent_sweeps_one_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Peer::at(folder.path()), Peer::at(folder.path()));
    for _ in 0..30 {
        let mut dead = Peer::at(folder.path());
        dead.ok("subscribe c");
        dead.kill();
        one.send("sweep");
        two.send("sweep");
        let found = [one.line(), two.line()];
        assert!(found == ["ok 0", "ok 1"] || found == ["ok 1", "ok 0"], "{found:?}");
        assert_eq!(rows(folder.path()), Rows::default());
    }
}

#[test]
fn a_stopped_process_is_alive_and_receives_everything_when_it_continues() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = open(folder.path()).unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    subscriber.stop();
    for n in 0..50 {
        assert_eq!(publisher.publish("c", format!("{n}")).unwrap(), 1);
    }
    assert_eq!(publisher.sweep().unwrap(), 0);
    drop(Peer::at(folder.path()));
    assert_eq!(publisher.numsub(["c"]).unwrap(), [("c", 1)]);
    subscriber.resume();
    assert_eq!(subscriber.receive(50), (0..50).map(|n| format!("message c {n}")).collect::<Vec<_>>());
}

#[test]
fn a_process_number_is_never_reused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut last = 0;
    let mut is_new = |path: &Path| {
        let found = rows(path).processes;
        let &[number] = &found[..] else { panic!("{found:?}") };
        assert!(number > last, "{number} after {last}");
        last = number;
    };
    for round in 0..12 {
        let mut peer = Peer::at(path);
        peer.ok("subscribe c");
        is_new(path);
        if round % 3 == 0 {
            peer.kill();
        } else if round % 3 == 1 {
            peer.ok("close");
        } else {
            peer.end();
        }
        drop(open(path).unwrap());
        let local = open(path).unwrap();
        local.subscribe(["c"]).unwrap();
        is_new(path);
        local.unsubscribe_all().unwrap();
        local.subscribe(["c"]).unwrap();
        local.close().unwrap();
    }
}

#[test]
fn a_clean_close_leaves_only_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let local = open(path).unwrap();
    local.subscribe(["c"]).unwrap();
    let mut peer = Peer::at(path);
    peer.ok("psubscribe c*");
    // More than one transaction removes from the log, and not read by anyone.
    assert_eq!(peer.count("flood c 10000 d"), 20_000);
    assert_eq!(rows(path).log, 10_000);
    local.close().unwrap();
    peer.end();
    assert_eq!(rows(path), Rows::default());
    assert_eq!(names(path), ["bus.db", "bus.db-lock"].map(String::from).into());
}

#[test]
fn every_queued_message_of_a_dead_process_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let publisher = open(folder.path()).unwrap();
    let mut dead = Peer::at(folder.path());
    dead.ok("subscribe c");
    assert_eq!(dead.count("flood c 10000 d"), 10_000);
    dead.kill();
    assert_eq!(publisher.publish("c", "x").unwrap(), 0);
    assert_eq!(rows(folder.path()), Rows::default());
}

#[test]
fn subscriptions_that_could_not_be_ended_at_close_are_ended_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut peer = Peer::with(folder.path(), "busy_timeout=20");
    let mut publisher = Peer::at(folder.path());
    peer.ok("crowd 1");
    peer.ok("subscribe c");
    assert_eq!(publisher.count("publish crowd x"), 1);
    let mut holder = Peer::at(folder.path());
    holder.ok("hold-write-lock");
    peer.ok("crowd-end");
    holder.kill();
    assert_eq!(peer.ask("wait 1500"), "none");
    assert_eq!(publisher.count("publish crowd y"), 0);
    assert_eq!(publisher.count("publish c y"), 1);
    assert_eq!(peer.ask("poll"), "message c y");
}

#[test]
fn a_lock_released_by_other_code_of_the_process_is_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut subscriber, mut publisher) = (Peer::at(folder.path()), Peer::at(folder.path()));
    subscriber.ok("subscribe c");
    subscriber.ok("release-locks");
    // Maintenance runs once a second.
    assert_eq!(subscriber.ask("wait 1200"), "none");
    assert_eq!(publisher.count("sweep"), 0);
    assert_eq!(publisher.count("publish c x"), 1);
    assert_eq!(subscriber.ask("poll"), "message c x");
}

#[test]
fn a_process_taken_for_dead_registers_again_and_reports_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (mut subscriber, mut publisher) = (Peer::at(path), Peer::at(path));
    subscriber.ok("subscribe c d");
    subscriber.ok("psubscribe c*");
    subscriber.ok("release-locks");
    assert_eq!(publisher.count("publish c missed"), 0);
    assert_eq!(rows(path), Rows::default());
    assert_eq!(wake_files(path), [0i64; 0]);
    assert_eq!(subscriber.ask("poll"), "gap 0");
    assert_eq!(subscriber.ask("poll"), "none");
    assert_eq!((wake_files(path).len(), rows(path).subscriptions), (1, 3));
    subscriber.send("wait 20000");
    assert_eq!(publisher.count("publish c received"), 2);
    assert_eq!(subscriber.line_within(Duration::from_millis(700)), "message c received");
    assert_eq!(subscriber.ask("poll"), "pmessage c* c received");
    assert_eq!(subscriber.count("unsubscribe c"), 2);
    assert_eq!(publisher.count("publish d x"), 1);
    subscriber.end();
    assert_eq!(rows(path), Rows::default());
}

#[test]
fn a_process_taken_for_dead_that_cannot_register_at_once_does_so_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (mut subscriber, mut publisher) = (Peer::at(path), Peer::at(path));
    subscriber.ok("subscribe c");
    subscriber.ok("release-locks");
    assert_eq!(publisher.count("sweep"), 1);
    let mut holder = Peer::at(path);
    holder.ok("hold-write-lock");
    assert_eq!(subscriber.ask("wait 300"), "none");
    holder.kill();
    assert_eq!(subscriber.ask("wait 3000"), "gap 0");
    assert_eq!(publisher.count("publish c x"), 1);
    assert_eq!(subscriber.ask("poll"), "message c x");
}

#[test]
fn an_interrupter_that_outlives_its_handle_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Peer::at(folder.path());
    let old = open(folder.path()).unwrap();
    old.subscribe(["c"]).unwrap();
    let interrupter = old.interrupter();
    old.close().unwrap();
    let new = open(folder.path()).unwrap();
    new.subscribe(["c"]).unwrap();
    interrupter.interrupt();
    drop(interrupter);
    assert_eq!(other.count("sweep"), 0);
    assert_eq!(other.count("publish c x"), 1);
    assert_eq!(drain(&new), ["message c x"]);
}

#[test]
fn interrupting_while_the_handle_is_closed_leaves_nothing_open() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Peer::at(folder.path());
    let over = AtomicBool::new(false);
    let current = Mutex::new(open(folder.path()).unwrap().interrupter());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let interrupter = current.lock().unwrap().clone();
                interrupter.interrupt();
            }
        });
        let mut counts = Vec::new();
        for _ in 0..50 {
            let local = open(folder.path()).unwrap();
            local.subscribe(["c"]).unwrap();
            *current.lock().unwrap() = local.interrupter();
            counts.push(other.count("publish c x"));
        }
        over.store(true, Ordering::SeqCst);
        assert_eq!(counts, [1; 50]);
    });
}

#[test]
fn a_sweep_does_not_take_its_own_process_for_dead() {
    for _ in 0..60 {
        let folder = tempfile::tempdir().unwrap();
        let (sweeper, local) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
        let joined = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let swept = scope.spawn(|| {
                let mut swept = 0;
                while !joined.load(Ordering::SeqCst) {
                    swept += sweeper.sweep().unwrap();
                }
                swept
            });
            let subscribed = local.subscribe(["c"]);
            joined.store(true, Ordering::SeqCst);
            assert_eq!((subscribed.unwrap(), swept.join().unwrap()), (1, 0));
        });
        assert_eq!(rows(folder.path()).subscriptions, 1);
    }
}

#[test]
fn a_wake_file_from_before_the_database_was_removed_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut subscriber = Peer::at(path);
    subscriber.ok("subscribe c");
    subscriber.kill();
    for name in names(path).iter().filter(|name| !name.contains("wake") && !name.ends_with("lock")) {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    assert_eq!(wake_files(path), [1]);
    let mut subscriber = Peer::at(path);
    subscriber.ok("subscribe c");
    let mut publisher = Peer::at(path);
    subscriber.send("wait 20000");
    assert_eq!(publisher.count("publish c x"), 1);
    assert_eq!(subscriber.line_within(Duration::from_millis(700)), "message c x");
}
