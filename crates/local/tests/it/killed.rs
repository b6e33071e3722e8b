//! Processes killed at random moments; `TAVERN_LOCAL_KILLS` sets how many. What was acknowledged is received, what was
//! not is complete or absent, and no other process is blocked.

use crate::support::{Peer, Random, drain, rows, wake_files};
use std::path::Path;
use std::time::{Duration, Instant};
use tavern_local::{Error, Local, Message, Options, open};

/// How long the next writer may be delayed by a killed process.
const AT_ONCE: Duration = Duration::from_millis(500);

fn kills(usual: u64) -> u64 {
    std::env::var("TAVERN_LOCAL_KILLS").map_or(usual, |kills| kills.parse().expect("a number"))
}

fn report(what: &str, done: u64, of: u64) {
    if std::env::var_os("TAVERN_LOCAL_KILLS").is_some() && (done.is_multiple_of(50) || done == of) {
        eprintln!("{what}: {done} of {of} killed");
    }
}

fn spin(longest: Duration, random: &mut Random) {
    let until = Instant::now() + Duration::from_nanos(random.below(longest.as_nanos() as u64));
    while Instant::now() < until {}
}

/// Lets a peer publish numbers and kills it. Returns how many publishes had returned.
fn kill_a_publisher(folder: &Path, run: u64, size: u64, random: &mut Random) -> usize {
    let mut peer = Peer::idle();
    peer.send(&format!("open {}", crate::support::word_of(folder)));
    if random.below(2) == 0 {
        peer.send("subscribe c");
    }
    peer.send(&format!("send-numbers c 1000000 {run} {size}"));
    let mut seen = 0;
    if random.below(5) == 0 {
        // At any moment, even before it has opened the folder.
        spin(Duration::from_millis(12), random);
    } else {
        for _ in 0..random.below(25) + 3 {
            seen += usize::from(peer.line().starts_with("sent"));
        }
        spin(Duration::from_millis(1), random);
    }
    peer.kill();
    seen + peer.rest().iter().filter(|line| line.starts_with("sent")).count()
}

fn is_whole(payload: &[u8], run: u64, n: usize, size: u64) -> bool {
    let tail = char::from(b'a' + (n % 26) as u8).to_string().repeat(size as usize);
    payload == format!("{run}:{n}:{tail}").as_bytes()
}

#[test]
fn a_killed_publisher_leaves_acknowledged_messages_and_no_partial_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (subscriber, mut publisher) = (open(folder.path()).unwrap(), Peer::at(folder.path()));
    subscriber.subscribe(["c"]).unwrap();
    let own = rows(folder.path()).processes;
    let mut random = Random::new(3);
    let kills = kills(50);
    let mut unacknowledged = 0;
    for run in 0..kills {
        let size = [0, 100, 3_000, 40_000][random.below(4) as usize];
        let sent = kill_a_publisher(folder.path(), run, size, &mut random);
        let began = Instant::now();
        assert_eq!(publisher.count(&format!("publish c after{run}")), 1);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());

        let mut received = 0;
        loop {
            let message = subscriber.poll().unwrap().expect("the message after the kill");
            assert!(matches!(message, Message::Channel(_)), "{message:?}");
            if message.payload() == format!("after{run}").as_bytes() {
                break;
            }
            assert!(
                is_whole(message.payload(), run, received, size),
                "run {run}: {message:?} is not {received}"
            );
            received += 1;
        }
        assert!(
            received == sent || received == sent + 1,
            "run {run}: {sent} acknowledged, {received} received"
        );
        unacknowledged += received - sent;
        assert!(subscriber.poll().unwrap().is_none());
        open(folder.path()).unwrap().close().unwrap();
        assert_eq!(rows(folder.path()).processes, own, "run {run}");
        report("publishers", run + 1, kills);
    }
    assert!(unacknowledged < kills as usize, "not every kill can come between the commit and the answer");
}

#[test]
fn processes_killed_while_they_subscribe_read_and_unsubscribe_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let subscriber = open(path).unwrap();
    subscriber.subscribe(["churn"]).unwrap();
    let own = rows(path).processes;
    let mut publisher = Peer::at(path);
    let mut random = Random::new(4);
    let kills = kills(40);
    for run in 0..kills {
        let mut peer = Peer::idle();
        peer.send(&format!("open {}", crate::support::word_of(path)));
        peer.send(&format!("churn {run}"));
        if random.below(4) > 0 {
            while peer.line() != "churning" {}
        }
        spin(Duration::from_millis(6), &mut random);
        peer.kill();
        let began = Instant::now();
        if run % 2 == 0 {
            // One of these matches whatever it had subscribed to.
            for name in
                ["churn", "churn0", "churn1", "churn2", "churn3", "churn4", "churn5", "churn6", "churn7"]
            {
                assert_eq!(publisher.count(&format!("publish {name} x")), u64::from(name == "churn"));
            }
            for name in ["c0", "c1", "c2", "c3"] {
                assert_eq!(publisher.count(&format!("publish {name} x")), 0);
            }
            assert_eq!(rows(path).subscriptions, 1, "run {run}");
            assert!(began.elapsed() < 13 * AT_ONCE, "{:?}", began.elapsed());
        }
        // A process that died without a subscription is found by a sweep, which opening does.
        open(path).unwrap().close().unwrap();
        let found = rows(path);
        assert_eq!((found.processes, found.subscriptions), (own.clone(), 1), "run {run}");
        assert_eq!(found.queued, found.log, "run {run}");
        assert_eq!(wake_files(path), own, "run {run}");
        assert!(drain(&subscriber).iter().all(|line| line.starts_with("message churn ")));
        report("subscribers", run + 1, kills);
    }
}

/// A peer that was stopped while it held the write lock.
fn stopped_writer(folder: &Path) -> Peer {
    let mut writer = Peer::at(folder);
    writer.ok("hold-write-lock");
    writer.stop();
    writer
}

#[test]
fn a_stopped_holder_of_the_write_lock_is_named_and_others_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let busy_timeout = Duration::from_millis(150);
    let options = Options { busy_timeout, ..Options::default() };
    let check_busy = |writer: &Peer, attempt: &dyn Fn() -> Result<(), Error>| {
        let began = Instant::now();
        match attempt() {
            Err(error @ Error::Busy { holder: Some(pid), .. }) => {
                assert_eq!(pid, writer.pid() as u32);
                assert!(error.to_string().contains(&format!("process {pid} ")), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let took = began.elapsed();
        assert!(took >= busy_timeout && took < 6 * busy_timeout, "{took:?}");
    };
    let mut writer = stopped_writer(folder.path());
    check_busy(&writer, &|| Local::open_with(folder.path(), options.clone()).map(drop));
    writer.kill();

    let local = Local::open_with(folder.path(), options).unwrap();
    let mut writer = stopped_writer(folder.path());
    check_busy(&writer, &|| local.publish("c", "x").map(drop));
    check_busy(&writer, &|| local.subscribe(["c"]).map(drop));
    check_busy(&writer, &|| local.sweep().map(drop));
    writer.kill();
    let began = Instant::now();
    local.subscribe(["c"]).unwrap();
    assert_eq!(local.publish("c", "x").unwrap(), 1);
    assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
}

#[test]
fn reading_continues_while_a_stopped_process_holds_the_write_lock() {
    let folder = tempfile::tempdir().unwrap();
    let subscriber = open(folder.path()).unwrap();
    subscriber.subscribe(["c"]).unwrap();
    let mut publisher = Peer::at(folder.path());
    // More than is acknowledged at once.
    assert_eq!(publisher.count("flood c 5000 d"), 5_000);
    let mut writer = stopped_writer(folder.path());
    let began = Instant::now();
    let received = std::iter::from_fn(|| subscriber.poll().unwrap()).count();
    assert_eq!(received, 5_000);
    // Long enough for maintenance, which cannot finish.
    assert!(subscriber.wait(Duration::from_millis(1_200)).unwrap().is_none());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    writer.kill();
    assert_eq!(subscriber.publish("c", "x").unwrap(), 1);
    assert_eq!(drain(&subscriber), ["message c x"]);
}
