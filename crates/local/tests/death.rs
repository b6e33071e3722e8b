//! Processes that die, stand still or are taken for dead: the dead leave nothing, the living lose nothing.

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Rows, Voice, database, drain, names, rows, until, wake_files};
use tavern_local::open;

/// Who finds the dead.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Finder {
    Publish,
    Open,
    Sweep,
    Waiting,
}

/// Some processes on a channel and a pattern; some are killed; somebody finds them.
fn check(many: usize, victims: &[usize], finder: Finder) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mouth = open(path).unwrap();
    let mut voices: Vec<Voice> = (0..many).map(|_| Voice::at(path)).collect();
    for voice in &mut voices {
        voice.ok("subscribe c d");
        voice.ok("psubscribe c*");
    }
    let numbers = rows(path).processes;
    assert_eq!(mouth.publish("c", "before").unwrap(), 2 * many as u64);
    for &victim in victims {
        voices[victim].kill();
    }
    let is_alive = |at: &usize| !victims.contains(at);
    let living: Vec<i64> = (0..many).filter(is_alive).map(|at| numbers[at]).collect();
    let alive = living.len() as u64;
    let mut said = vec!["before"];
    let mut queued = alive;
    match finder {
        Finder::Publish => {
            assert_eq!(mouth.publish("c", "after").unwrap(), 2 * alive);
            said.push("after");
            queued += alive;
        }
        Finder::Open => drop(open(path).unwrap()),
        Finder::Sweep => assert_eq!(mouth.sweep().unwrap(), victims.len()),
        Finder::Waiting => {
            find_by_waiting(path, &mut voices[(0..many).find(is_alive).unwrap()], &living);
            queued -= 1;
        }
    }
    let log = if queued == 0 { 0 } else { said.len() as u64 };
    let expected = Rows { processes: living.clone(), subscriptions: 3 * alive, queued, log };
    assert_eq!(rows(path), expected, "{victims:?} {finder:?}");
    assert_eq!(wake_files(path), living, "{victims:?} {finder:?}");

    assert_eq!(mouth.publish("c", "last").unwrap(), 2 * alive);
    assert_eq!(mouth.numsub(["d"]).unwrap()[0].1, alive);
    said.push("last");
    for (place, at) in (0..many).filter(is_alive).enumerate() {
        // The one who waited has heard the first already.
        let from = usize::from(finder == Finder::Waiting && place == 0);
        let both = |word: &&str| [format!("message c {word}"), format!("pmessage c* c {word}")];
        let expected: Vec<String> = said[from..].iter().flat_map(both).collect();
        let answers = if from > 0 { vec![voices[at].line()] } else { Vec::new() };
        let heard = voices[at].hear(expected.len() - from);
        assert_eq!([answers, heard].concat(), expected);
        assert_eq!(voices[at].ask("poll"), "none");
    }
}

/// One of the living waits for something that is not said, and finds the dead meanwhile.
fn find_by_waiting(folder: &Path, waiter: &mut Voice, living: &[i64]) {
    assert_eq!(waiter.hear(2), ["message c before", "pmessage c* c before"]);
    // As if nobody had looked for a while.
    database(folder).execute("UPDATE head SET swept_at = swept_at - 5000", []).unwrap();
    waiter.tell("wait 20000");
    let began = Instant::now();
    until("the dead are found", || rows(folder).processes == living);
    assert!(began.elapsed() < Duration::from_millis(2_500), "{:?}", began.elapsed());
}

#[test]
fn a_publish_finds_the_dead_wherever_they_stand() {
    for victim in 0..4 {
        check(4, &[victim], Finder::Publish);
    }
    check(4, &[0, 3], Finder::Publish);
    check(4, &[1, 2], Finder::Publish);
    check(3, &[0, 1, 2], Finder::Publish);
}

#[test]
fn opening_and_sweeping_find_the_dead_wherever_they_stand() {
    for victim in 0..3 {
        check(3, &[victim], Finder::Open);
        check(3, &[victim], Finder::Sweep);
    }
    check(3, &[0, 2], Finder::Open);
    check(3, &[0, 1, 2], Finder::Sweep);
}

#[test]
fn somebody_who_waits_finds_the_dead_of_a_quiet_folder() {
    check(3, &[1], Finder::Waiting);
    check(3, &[0, 2], Finder::Waiting);
}

#[test]
fn two_publishers_that_meet_the_same_corpse_clean_up_once_and_without_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let ear = open(path).unwrap();
    ear.subscribe(["c"]).unwrap();
    let own = rows(path).processes;
    let (mut one, mut two) = (Voice::at(path), Voice::at(path));
    for round in 0..20 {
        let mut dead = Voice::at(path);
        dead.ok("subscribe c");
        dead.ok("psubscribe c* *");
        dead.kill();
        one.tell(&format!("publish c one{round}"));
        two.tell(&format!("publish c two{round}"));
        assert_eq!((one.line(), two.line()), ("ok 1".into(), "ok 1".into()));
        let found = rows(path);
        assert_eq!((found.processes, found.subscriptions), (own.clone(), 1));
        assert_eq!(wake_files(path), own);
        let heard: BTreeSet<String> = drain(&ear).into_iter().collect();
        assert_eq!(heard, [format!("message c one{round}"), format!("message c two{round}")].into());
    }
}

#[test]
fn of_two_that_sweep_at_once_one_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut two) = (Voice::at(folder.path()), Voice::at(folder.path()));
    for _ in 0..30 {
        let mut dead = Voice::at(folder.path());
        dead.ok("subscribe c");
        dead.kill();
        one.tell("sweep");
        two.tell("sweep");
        let found = [one.line(), two.line()];
        assert!(found == ["ok 0", "ok 1"] || found == ["ok 1", "ok 0"], "{found:?}");
        assert_eq!(rows(folder.path()), Rows::default());
    }
}

#[test]
fn a_stopped_process_is_alive_and_hears_everything_when_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mouth = open(folder.path()).unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    ear.stop();
    for n in 0..50 {
        assert_eq!(mouth.publish("c", format!("{n}")).unwrap(), 1);
    }
    assert_eq!(mouth.sweep().unwrap(), 0);
    drop(Voice::at(folder.path()));
    assert_eq!(mouth.numsub(["c"]).unwrap(), [("c", 1)]);
    ear.resume();
    assert_eq!(ear.hear(50), (0..50).map(|n| format!("message c {n}")).collect::<Vec<_>>());
}

#[test]
fn a_number_is_never_given_twice() {
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
        let mut voice = Voice::at(path);
        voice.ok("subscribe c");
        is_new(path);
        if round % 3 == 0 {
            voice.kill();
        } else if round % 3 == 1 {
            voice.ok("close");
        } else {
            voice.end();
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
    let mut voice = Voice::at(path);
    voice.ok("psubscribe c*");
    // More than is removed from the log in one turn, and read by nobody.
    assert_eq!(voice.count("flood c 10000 d"), 20_000);
    assert_eq!(rows(path).log, 10_000);
    local.close().unwrap();
    voice.end();
    assert_eq!(rows(path), Rows::default());
    assert_eq!(names(path), ["bus.db", "bus.db-lock"].map(String::from).into());
}

#[test]
fn the_messages_of_the_dead_go_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let mouth = open(folder.path()).unwrap();
    let mut dead = Voice::at(folder.path());
    dead.ok("subscribe c");
    assert_eq!(dead.count("flood c 10000 d"), 10_000);
    dead.kill();
    assert_eq!(mouth.publish("c", "x").unwrap(), 0);
    assert_eq!(rows(folder.path()), Rows::default());
}

#[test]
fn a_handle_that_could_not_end_its_subscriptions_ends_them_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut voice = Voice::with(folder.path(), "patience=20");
    let mut mouth = Voice::at(folder.path());
    voice.ok("crowd 1");
    voice.ok("subscribe c");
    assert_eq!(mouth.count("publish crowd x"), 1);
    let mut holder = Voice::at(folder.path());
    holder.ok("hold");
    voice.ok("crowd-end");
    holder.kill();
    assert_eq!(voice.ask("wait 1500"), "none");
    assert_eq!(mouth.count("publish crowd y"), 0);
    assert_eq!(mouth.count("publish c y"), 1);
    assert_eq!(voice.ask("poll"), "message c y");
}

#[test]
fn a_lock_freed_by_somebody_else_in_the_process_is_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ear, mut mouth) = (Voice::at(folder.path()), Voice::at(folder.path()));
    ear.ok("subscribe c");
    ear.ok("touch");
    // Looks once a second.
    assert_eq!(ear.ask("wait 1200"), "none");
    assert_eq!(mouth.count("sweep"), 0);
    assert_eq!(mouth.count("publish c x"), 1);
    assert_eq!(ear.ask("poll"), "message c x");
}

#[test]
fn a_process_taken_for_dead_joins_again_and_says_that_it_may_have_missed_something() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (mut ear, mut mouth) = (Voice::at(path), Voice::at(path));
    ear.ok("subscribe c d");
    ear.ok("psubscribe c*");
    ear.ok("touch");
    assert_eq!(mouth.count("publish c missed"), 0);
    assert_eq!(rows(path), Rows::default());
    assert_eq!(wake_files(path), [0i64; 0]);
    assert_eq!(ear.ask("poll"), "gap 0");
    assert_eq!(ear.ask("poll"), "none");
    assert_eq!((wake_files(path).len(), rows(path).subscriptions), (1, 3));
    ear.tell("wait 20000");
    assert_eq!(mouth.count("publish c heard"), 2);
    assert_eq!(ear.line_within(Duration::from_millis(700)), "message c heard");
    assert_eq!(ear.ask("poll"), "pmessage c* c heard");
    assert_eq!(ear.count("unsubscribe c"), 2);
    assert_eq!(mouth.count("publish d x"), 1);
    ear.end();
    assert_eq!(rows(path), Rows::default());
}

#[test]
fn a_process_taken_for_dead_that_cannot_join_at_once_does_so_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (mut ear, mut mouth) = (Voice::at(path), Voice::at(path));
    ear.ok("subscribe c");
    ear.ok("touch");
    assert_eq!(mouth.count("sweep"), 1);
    let mut holder = Voice::at(path);
    holder.ok("hold");
    assert_eq!(ear.ask("wait 300"), "none");
    holder.kill();
    assert_eq!(ear.ask("wait 3000"), "gap 0");
    assert_eq!(mouth.count("publish c x"), 1);
    assert_eq!(ear.ask("poll"), "message c x");
}

#[test]
fn an_interrupter_that_outlives_its_handle_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let mut other = Voice::at(folder.path());
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
    let mut other = Voice::at(folder.path());
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
fn a_thread_that_sweeps_does_not_take_its_own_process_for_dead() {
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
    let mut ear = Voice::at(path);
    ear.ok("subscribe c");
    ear.kill();
    for name in names(path).iter().filter(|name| !name.contains("wake") && !name.ends_with("lock")) {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    assert_eq!(wake_files(path), [1]);
    let mut ear = Voice::at(path);
    ear.ok("subscribe c");
    let mut mouth = Voice::at(path);
    ear.tell("wait 20000");
    assert_eq!(mouth.count("publish c x"), 1);
    assert_eq!(ear.line_within(Duration::from_millis(700)), "message c x");
}
