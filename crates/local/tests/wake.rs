//! How soon those who wait hear of a message: from other processes, among the threads of one process, and when a
//! signal was lost. A lost signal shows as the rest of the second after which everybody looks by itself.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::words::Queueing;
use support::{PATIENCE, Voice, check_latencies, drain, now_ns, show, until, wake_files};
use tavern_local::{Error, Interest, Local, Message, Space, open};

/// These measure time, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a flag when it goes, so that a test that fails does not leave its threads running.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets two processes speak in turn, and tells how long each wait outlasted the publish that ended it.
fn race(folder: &Path, rounds: usize, spin_ns: u64) -> Vec<u64> {
    let (mut one, mut two) = (Voice::at(folder), Voice::at(folder));
    two.tell(&format!("pong {rounds} 7 {spin_ns}"));
    one.tell(&format!("ping {rounds} 8 {spin_ns}"));
    let times = |voice: &mut Voice| {
        assert_eq!(voice.line(), "ready");
        let lines = (0..rounds).map(|_| {
            let line = voice.line_within(2 * PATIENCE);
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().expect(&line)).collect();
            <[u64; 3]>::try_from(numbers).expect(&line)
        });
        lines.collect::<Vec<_>>()
    };
    let (one, two) = (times(&mut one), times(&mut two));
    let late = |said: u64, heard: u64, queued: u64| heard.saturating_sub(said).saturating_sub(queued);
    let pairs = one.iter().zip(&two);
    pairs.flat_map(|(one, two)| [late(one[0], two[1], two[2]), late(two[0], one[1], one[2])]).collect()
}

#[test]
fn a_wait_ends_soon_after_a_publish_by_another_process() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // Long enough for the other one to have fallen asleep.
    check_latencies("asleep", race(folder.path(), 150, 4_000_000));
}

#[test]
fn no_signal_is_lost_when_publish_and_wait_race_ten_thousand_times() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let late = race(folder.path(), 5_000, 150_000);
    assert_eq!(late.len(), 10_000);
    check_latencies("races", late);
}

/// Polls, and lets others have their turn before it may do so again.
fn poll(local: &Local) -> Result<Option<Message>, Error> {
    std::thread::sleep(Duration::from_micros(20));
    local.poll()
}

/// Several handles of this process wait or poll while another process speaks to one of them at a time.
fn stress(folder: &Path, waiters: usize, pollers: usize, rounds: usize) {
    let done = AtomicBool::new(false);
    let ears: Vec<Local> = (0..waiters + pollers).map(|_| open(folder).unwrap()).collect();
    for (at, ear) in ears.iter().enumerate() {
        ear.subscribe([format!("c{at}")]).unwrap();
    }
    let mut mouth = Voice::at(folder);
    let heard = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, ear) in ears.iter().enumerate() {
            let (done, heard) = (&done, &heard);
            scope.spawn(move || {
                let queueing = Queueing::of_this_thread();
                while !done.load(Ordering::SeqCst) {
                    let before = queueing.total_ns();
                    let polls = at >= waiters;
                    let message = if polls { poll(ear) } else { ear.wait(Duration::from_secs(5)) };
                    let (now, queued) = (now_ns(), queueing.total_ns() - before);
                    if let Some(message) = message.unwrap() {
                        let round = String::from_utf8_lossy(message.payload()).into_owned();
                        heard.lock().unwrap().push((round, now, queued));
                    }
                }
            });
        }
        let _done = Done(&done);
        let mut late = Vec::new();
        for round in 0..rounds {
            let ear = round % waiters;
            assert_eq!(mouth.count(&format!("publish c{ear} {round}")), 1);
            let said = now_ns();
            until("it is heard", || heard.lock().unwrap().len() > round);
            let (name, now, queued) = heard.lock().unwrap()[round].clone();
            assert_eq!(name, round.to_string());
            late.push(now.saturating_sub(said).saturating_sub(queued));
        }
        done.store(true, Ordering::SeqCst);
        ears.iter().for_each(|ear| ear.interrupter().interrupt());
        check_latencies("threads", late);
    });
}

#[test]
fn threads_that_wait_are_woken_while_others_poll() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    stress(folder.path(), 3, 2, 600);
}

#[test]
fn dozens_of_threads_wait_at_once_and_each_is_woken() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    stress(folder.path(), 48, 0, 200);
}

#[test]
fn an_interrupted_wait_ends_at_once_and_only_that_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let ears: Vec<Local> = (0..40).map(|_| open(folder.path()).unwrap()).collect();
    for (at, ear) in ears.iter().enumerate() {
        // Some of them listen, some do not.
        if at % 3 > 0 {
            ear.subscribe(["c"]).unwrap();
        }
    }
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, ear) in ears.iter().enumerate() {
            let ended = &ended;
            scope.spawn(move || {
                assert!(ear.wait(None).unwrap().is_none());
                ended.lock().unwrap().push(at);
            });
        }
        let mut longest = Duration::ZERO;
        for (at, ear) in ears.iter().enumerate() {
            let began = Instant::now();
            ear.interrupter().interrupt();
            until("it ends", || ended.lock().unwrap().len() > at);
            longest = longest.max(began.elapsed());
            assert_eq!(ended.lock().unwrap().last(), Some(&at));
        }
        assert!(longest < Duration::from_millis(500), "{longest:?}");
    });
    // An interruption that nobody waits for ends the next wait, once.
    ears[1].interrupter().interrupt();
    let began = Instant::now();
    assert!(ears[1].wait(None).unwrap().is_none());
    assert!(ears[1].wait(Duration::from_millis(20)).unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(20));
}

/// Runs `wait` in a thread that is asleep when `then` begins, and tells how long it took after `then` had returned.
fn while_asleep(ear: &Local, then: impl FnOnce()) -> (Option<String>, Duration) {
    std::thread::scope(|scope| {
        let (send, thread) = std::sync::mpsc::channel();
        let sleeper = scope.spawn(move || {
            // SAFETY: a plain system call.
            send.send(unsafe { libc::gettid() }).unwrap();
            let message = ear.wait(PATIENCE).unwrap();
            (message.as_ref().map(show), Instant::now())
        });
        let stat = format!("/proc/self/task/{}/stat", thread.recv().unwrap());
        let mut calm = 0;
        until("it sleeps", || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            let sleeps = text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'));
            calm = if sleeps { calm + 1 } else { 0 };
            calm > 5
        });
        then();
        let began = Instant::now();
        let (message, ended) = sleeper.join().unwrap();
        (message, ended.saturating_duration_since(began))
    })
}

#[test]
fn who_waits_before_anything_is_subscribed_to_does_not_keep_the_others_from_hearing() {
    let _alone = alone();
    // The place where a process sleeps changes when it first subscribes.
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let (idle, ear) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
        let mut mouth = Voice::at(folder.path());
        let (message, _) = while_asleep(&idle, || {
            ear.subscribe(["c"]).unwrap();
            let (message, took) = while_asleep(&ear, || {
                mouth.count("publish c 1");
            });
            assert_eq!(message.as_deref(), Some("message c 1"));
            assert!(took < Duration::from_millis(100), "{took:?}");
            idle.interrupter().interrupt();
        });
        assert_eq!(message, None);
    }
}

#[test]
fn a_subscription_made_while_another_thread_waits_on_the_handle_is_heard_by_it() {
    let _alone = alone();
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let ear = open(folder.path()).unwrap();
        let mut mouth = Voice::at(folder.path());
        let (message, took) = while_asleep(&ear, || {
            ear.subscribe(["c"]).unwrap();
            mouth.count("publish c 1");
        });
        assert_eq!(message.as_deref(), Some("message c 1"));
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}

#[test]
fn a_thread_that_polls_does_not_take_the_signal_of_one_that_waits() {
    let _alone = alone();
    // More than is taken from the database at once stands before the message of the one who waits.
    let folder = tempfile::tempdir().unwrap();
    let (poller, ear) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    poller.subscribe(["many"]).unwrap();
    ear.subscribe(["one"]).unwrap();
    let mut mouth = Voice::at(folder.path());
    for _ in 0..10 {
        // The waker is away while the messages are put there, so the one who polls comes first.
        let file = folder.path().join(format!("bus.db-wake-{}", wake_files(folder.path())[0]));
        let aside = folder.path().join("aside");
        let (message, took) = while_asleep(&ear, || {
            std::fs::rename(&file, &aside).unwrap();
            assert_eq!(mouth.count("flood many 400 one"), 401);
            std::fs::rename(&aside, &file).unwrap();
            assert!(poller.poll().unwrap().is_some());
        });
        assert_eq!(message.as_deref(), Some("message one x"));
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(drain(&poller).len(), 399);
    }
}

#[test]
fn a_wait_without_time_finds_what_is_there_even_while_another_thread_sleeps() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (idle, ear) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    idle.subscribe(["other"]).unwrap();
    ear.subscribe(["c"]).unwrap();
    let mut mouth = Voice::at(folder.path());
    while_asleep(&idle, || {
        for n in 0..200 {
            mouth.count(&format!("publish c {n}"));
            let message = ear.wait(Duration::ZERO).unwrap();
            assert_eq!(message.as_ref().map(show), Some(format!("message c {n}")));
        }
        idle.interrupter().interrupt();
    });
}

#[test]
fn a_message_whose_signal_was_never_sent_is_found_within_about_a_second() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    let mouth = open(folder.path()).unwrap();
    let number = wake_files(folder.path())[0];
    // As if the publisher had been killed after the commit: the signal finds nobody.
    std::fs::remove_file(folder.path().join(format!("bus.db-wake-{number}"))).unwrap();
    for n in 0..2 {
        ear.tell("wait 20000");
        assert_eq!(mouth.publish("c", format!("{n}")).unwrap(), 1);
        let line = ear.line_within(Duration::from_millis(1_800));
        assert_eq!(line, format!("message c {n}"));
    }
}

#[test]
fn a_question_that_another_thread_takes_from_the_bell_still_ends_the_wait() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (wide, poller) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    wide.listen([Interest::everything(Space::Private)]).unwrap();
    let file = folder.path().join(format!("bus.db-wake-{}", wake_files(folder.path())[0]));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                poll(&poller).unwrap();
            }
        });
        let _done = Done(&done);
        for _ in 0..20 {
            let asking = std::os::unix::net::UnixDatagram::unbound().unwrap();
            let (message, took) = while_asleep(&wide, || {
                asking.send_to(b"n", &file).unwrap();
            });
            assert!(message.is_none() && wide.is_asked_to_narrow());
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
    });
}
