//! How soon a wait ends after a publish: across processes, among the threads of one process, and when a wake-up was
//! lost. A lost wake-up shows as a delay of up to a second, until maintenance runs.

use crate::support::protocol::Queueing;
use crate::support::{DEADLINE, Peer, check_latencies, drain, now_ns, show, until, wake_files};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tavern_local::{ChannelNamespace, Error, Interest, Local, Message, open};

/// These tests measure time, so they run one after the other.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets a flag when dropped, so that a failed test does not leave its threads running.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Lets two peers publish in turn. Returns how long after each publish the other's wait returned.
fn race(folder: &Path, rounds: usize, spin_ns: u64) -> Vec<u64> {
    let (mut one, mut two) = (Peer::at(folder), Peer::at(folder));
    two.send(&format!("pong {rounds} 7 {spin_ns}"));
    one.send(&format!("ping {rounds} 8 {spin_ns}"));
    let times = |peer: &mut Peer| {
        assert_eq!(peer.line(), "ready");
        let lines = (0..rounds).map(|_| {
            let line = peer.line_within(2 * DEADLINE);
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().expect(&line)).collect();
            <[u64; 3]>::try_from(numbers).expect(&line)
        });
        lines.collect::<Vec<_>>()
    };
    let (one, two) = (times(&mut one), times(&mut two));
    let late = |sent: u64, received: u64, queued: u64| received.saturating_sub(sent).saturating_sub(queued);
    let pairs = one.iter().zip(&two);
    pairs.flat_map(|(one, two)| [late(one[0], two[1], two[2]), late(two[0], one[1], one[2])]).collect()
}

#[test]
fn a_wait_ends_soon_after_a_publish_by_another_process() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    // Long enough for the other peer to be asleep.
    check_latencies("asleep", race(folder.path(), 150, 4_000_000));
}

#[test]
fn no_wake_up_is_lost_when_publish_and_wait_race_ten_thousand_times() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let late = race(folder.path(), 5_000, 150_000);
    assert_eq!(late.len(), 10_000);
    check_latencies("races", late);
}

/// Polls after a short pause, so that other threads get the lock.
fn poll(local: &Local) -> Result<Option<Message>, Error> {
    std::thread::sleep(Duration::from_micros(20));
    local.poll()
}

/// Several handles of this process wait or poll while a peer publishes to one of them at a time.
fn stress(folder: &Path, waiters: usize, pollers: usize, rounds: usize) {
    let done = AtomicBool::new(false);
    let subscribers: Vec<Local> = (0..waiters + pollers).map(|_| open(folder).unwrap()).collect();
    for (at, subscriber) in subscribers.iter().enumerate() {
        subscriber.subscribe([format!("c{at}")]).unwrap();
    }
    let mut publisher = Peer::at(folder);
    let received = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, subscriber) in subscribers.iter().enumerate() {
            let (done, received) = (&done, &received);
            scope.spawn(move || {
                let queueing = Queueing::of_this_thread();
                while !done.load(Ordering::SeqCst) {
                    let before = queueing.total_ns();
                    let polls = at >= waiters;
                    let message =
                        if polls { poll(subscriber) } else { subscriber.wait(Duration::from_secs(5)) };
                    let (now, queued) = (now_ns(), queueing.total_ns() - before);
                    if let Some(message) = message.unwrap() {
                        let round = String::from_utf8_lossy(message.payload()).into_owned();
                        received.lock().unwrap().push((round, now, queued));
                    }
                }
            });
        }
        let _done = Done(&done);
        let mut late = Vec::new();
        for round in 0..rounds {
            let subscriber = round % waiters;
            assert_eq!(publisher.count(&format!("publish c{subscriber} {round}")), 1);
            let sent = now_ns();
            until("it is received", || received.lock().unwrap().len() > round);
            let (name, now, queued) = received.lock().unwrap()[round].clone();
            assert_eq!(name, round.to_string());
            late.push(now.saturating_sub(sent).saturating_sub(queued));
        }
        done.store(true, Ordering::SeqCst);
        subscribers.iter().for_each(|subscriber| subscriber.interrupter().interrupt());
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
    let subscribers: Vec<Local> = (0..40).map(|_| open(folder.path()).unwrap()).collect();
    for (at, subscriber) in subscribers.iter().enumerate() {
        // Some of them subscribe, some do not.
        if at % 3 > 0 {
            subscriber.subscribe(["c"]).unwrap();
        }
    }
    let ended = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (at, subscriber) in subscribers.iter().enumerate() {
            let ended = &ended;
            scope.spawn(move || {
                assert!(subscriber.wait(None).unwrap().is_none());
                ended.lock().unwrap().push(at);
            });
        }
        let mut longest = Duration::ZERO;
        for (at, subscriber) in subscribers.iter().enumerate() {
            let began = Instant::now();
            subscriber.interrupter().interrupt();
            until("it ends", || ended.lock().unwrap().len() > at);
            longest = longest.max(began.elapsed());
            assert_eq!(ended.lock().unwrap().last(), Some(&at));
        }
        assert!(longest < Duration::from_millis(500), "{longest:?}");
    });
    // An interruption between two waits ends the next one, once.
    subscribers[1].interrupter().interrupt();
    let began = Instant::now();
    assert!(subscribers[1].wait(None).unwrap().is_none());
    assert!(subscribers[1].wait(Duration::from_millis(20)).unwrap().is_none());
    assert!(began.elapsed() >= Duration::from_millis(20));
}

/// Runs `wait` in a thread that is asleep when `then` begins. Returns how long it took after `then` had returned.
fn while_asleep(subscriber: &Local, then: impl FnOnce()) -> (Option<String>, Duration) {
    std::thread::scope(|scope| {
        let (send, thread) = std::sync::mpsc::channel();
        let sleeper = scope.spawn(move || {
            // SAFETY: a plain system call.
            send.send(unsafe { libc::gettid() }).unwrap();
            let message = subscriber.wait(DEADLINE).unwrap();
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
fn a_wait_that_began_before_the_first_subscription_does_not_block_others() {
    let _alone = alone();
    // A process gets a new socket to sleep at when it first subscribes.
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let (idle, subscriber) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
        let mut publisher = Peer::at(folder.path());
        let (message, _) = while_asleep(&idle, || {
            subscriber.subscribe(["c"]).unwrap();
            let (message, took) = while_asleep(&subscriber, || {
                publisher.count("publish c 1");
            });
            assert_eq!(message.as_deref(), Some("message c 1"));
            assert!(took < Duration::from_millis(100), "{took:?}");
            idle.interrupter().interrupt();
        });
        assert_eq!(message, None);
    }
}

#[test]
fn wait_receives_messages_of_a_later_subscription() {
    let _alone = alone();
    for _ in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let subscriber = open(folder.path()).unwrap();
        let mut publisher = Peer::at(folder.path());
        let (message, took) = while_asleep(&subscriber, || {
            subscriber.subscribe(["c"]).unwrap();
            publisher.count("publish c 1");
        });
        assert_eq!(message.as_deref(), Some("message c 1"));
        assert!(took < Duration::from_millis(100), "{took:?}");
    }
}

#[test]
fn a_poll_does_not_take_the_wake_up_of_a_waiting_thread() {
    let _alone = alone();
    // More messages than one fetch returns come before the one for the waiting thread.
    let folder = tempfile::tempdir().unwrap();
    let (poller, subscriber) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    poller.subscribe(["many"]).unwrap();
    subscriber.subscribe(["one"]).unwrap();
    let mut publisher = Peer::at(folder.path());
    for _ in 0..10 {
        // The socket is away while the messages are published, so the poll comes first.
        let file = folder.path().join(format!("bus.db-wake-{}", wake_files(folder.path())[0]));
        let aside = folder.path().join("aside");
        let (message, took) = while_asleep(&subscriber, || {
            std::fs::rename(&file, &aside).unwrap();
            assert_eq!(publisher.count("flood many 400 one"), 401);
            std::fs::rename(&aside, &file).unwrap();
            assert!(poller.poll().unwrap().is_some());
        });
        assert_eq!(message.as_deref(), Some("message one x"));
        assert!(took < Duration::from_millis(100), "{took:?}");
        assert_eq!(drain(&poller).len(), 399);
    }
}

#[test]
fn wait_of_zero_returns_queued_messages_while_another_thread_sleeps() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (idle, subscriber) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    idle.subscribe(["other"]).unwrap();
    subscriber.subscribe(["c"]).unwrap();
    let mut publisher = Peer::at(folder.path());
    while_asleep(&idle, || {
        for n in 0..200 {
            publisher.count(&format!("publish c {n}"));
            let message = subscriber.wait(Duration::ZERO).unwrap();
            assert_eq!(message.as_ref().map(show), Some(format!("message c {n}")));
        }
        idle.interrupter().interrupt();
    });
}

#[test]
fn a_message_without_a_wake_up_is_found_within_about_a_second() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut subscriber = Peer::at(folder.path());
    subscriber.ok("subscribe c");
    let publisher = open(folder.path()).unwrap();
    let number = wake_files(folder.path())[0];
    // As if the publisher had been killed between the commit and the wake-up.
    std::fs::remove_file(folder.path().join(format!("bus.db-wake-{number}"))).unwrap();
    for n in 0..2 {
        subscriber.send("wait 20000");
        assert_eq!(publisher.publish("c", format!("{n}")).unwrap(), 1);
        let line = subscriber.line_within(Duration::from_millis(1_800));
        assert_eq!(line, format!("message c {n}"));
    }
}

#[test]
fn a_narrow_request_consumed_by_another_thread_still_ends_the_wait() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let (peer, poller) = (open(folder.path()).unwrap(), open(folder.path()).unwrap());
    peer.add_interests([Interest::everything(ChannelNamespace::Private)]).unwrap();
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
            let (message, took) = while_asleep(&peer, || {
                asking.send_to(b"n", &file).unwrap();
            });
            assert!(message.is_none() && peer.take_narrow_request());
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
    });
}
