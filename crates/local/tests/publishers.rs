//! Processes killed in the midst of what they do, at moments of chance; `TAVERN_LOCAL_KILLS` says how many. What was
//! acknowledged is heard, what was not is whole or not there, and nobody else is held up.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};
use support::{Dice, Voice, drain, rows, wake_files};
use tavern_local::{Error, Local, Message, Options, open};

/// The next one to write may wait this long for whatever the dead left behind.
const AT_ONCE: Duration = Duration::from_millis(500);

fn kills(usual: u64) -> u64 {
    std::env::var("TAVERN_LOCAL_KILLS").map_or(usual, |kills| kills.parse().expect("a number"))
}

fn report(what: &str, done: u64, of: u64) {
    if std::env::var_os("TAVERN_LOCAL_KILLS").is_some() && (done.is_multiple_of(50) || done == of) {
        eprintln!("{what}: {done} of {of} killed");
    }
}

fn spin(longest: Duration, dice: &mut Dice) {
    let until = Instant::now() + Duration::from_nanos(dice.roll(longest.as_nanos() as u64));
    while Instant::now() < until {}
}

/// Lets a process say numbers and kills it. Tells how many it had been told were published.
fn kill_a_publisher(folder: &Path, run: u64, size: u64, dice: &mut Dice) -> usize {
    let mut voice = Voice::silent();
    voice.tell(&format!("open {}", support::word_of(folder)));
    if dice.roll(2) == 0 {
        voice.tell("subscribe c");
    }
    voice.tell(&format!("say c 1000000 {run} {size}"));
    let mut seen = 0;
    if dice.roll(5) == 0 {
        // Anywhere, even before it has opened the folder.
        spin(Duration::from_millis(12), dice);
    } else {
        for _ in 0..dice.roll(25) + 3 {
            seen += usize::from(voice.line().starts_with("said"));
        }
        spin(Duration::from_millis(1), dice);
    }
    voice.kill();
    seen + voice.rest().iter().filter(|line| line.starts_with("said")).count()
}

fn is_whole(payload: &[u8], run: u64, n: usize, size: u64) -> bool {
    let tail = char::from(b'a' + (n % 26) as u8).to_string().repeat(size as usize);
    payload == format!("{run}:{n}:{tail}").as_bytes()
}

#[test]
fn killed_publishers_leave_what_was_acknowledged_and_nothing_by_halves() {
    let folder = tempfile::tempdir().unwrap();
    let (ear, mut mouth) = (open(folder.path()).unwrap(), Voice::at(folder.path()));
    ear.subscribe(["c"]).unwrap();
    let own = rows(folder.path()).processes;
    let mut dice = Dice::new(3);
    let kills = kills(50);
    let mut unacknowledged = 0;
    for run in 0..kills {
        let size = [0, 100, 3_000, 40_000][dice.roll(4) as usize];
        let said = kill_a_publisher(folder.path(), run, size, &mut dice);
        let began = Instant::now();
        assert_eq!(mouth.count(&format!("publish c after{run}")), 1);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());

        let mut heard = 0;
        loop {
            let message = ear.poll().unwrap().expect("the one after is there");
            assert!(matches!(message, Message::Message(_)), "{message:?}");
            if message.payload() == format!("after{run}").as_bytes() {
                break;
            }
            assert!(is_whole(message.payload(), run, heard, size), "run {run}: {message:?} is not {heard}");
            heard += 1;
        }
        assert!(heard == said || heard == said + 1, "run {run}: {said} acknowledged, {heard} heard");
        unacknowledged += heard - said;
        assert!(ear.poll().unwrap().is_none());
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
    let ear = open(path).unwrap();
    ear.subscribe(["churn"]).unwrap();
    let own = rows(path).processes;
    let mut mouth = Voice::at(path);
    let mut dice = Dice::new(4);
    let kills = kills(40);
    for run in 0..kills {
        let mut voice = Voice::silent();
        voice.tell(&format!("open {}", support::word_of(path)));
        voice.tell(&format!("churn {run}"));
        if dice.roll(4) > 0 {
            while voice.line() != "churning" {}
        }
        spin(Duration::from_millis(6), &mut dice);
        voice.kill();
        let began = Instant::now();
        if run % 2 == 0 {
            // Whatever it had subscribed to is met by one of these.
            for name in
                ["churn", "churn0", "churn1", "churn2", "churn3", "churn4", "churn5", "churn6", "churn7"]
            {
                assert_eq!(mouth.count(&format!("publish {name} x")), u64::from(name == "churn"));
            }
            for name in ["c0", "c1", "c2", "c3"] {
                assert_eq!(mouth.count(&format!("publish {name} x")), 0);
            }
            assert_eq!(rows(path).subscriptions, 1, "run {run}");
            assert!(began.elapsed() < 13 * AT_ONCE, "{:?}", began.elapsed());
        }
        // One that died without a subscription is met by nobody; those who open look at all.
        open(path).unwrap().close().unwrap();
        let found = rows(path);
        assert_eq!((found.processes, found.subscriptions), (own.clone(), 1), "run {run}");
        assert_eq!(found.queued, found.log, "run {run}");
        assert_eq!(wake_files(path), own, "run {run}");
        assert!(drain(&ear).iter().all(|line| line.starts_with("message churn ")));
        report("subscribers", run + 1, kills);
    }
}

/// A process that was stopped while it had the turn to write.
fn stopped_writer(folder: &Path) -> Voice {
    let mut writer = Voice::at(folder);
    writer.ok("hold");
    writer.stop();
    writer
}

#[test]
fn a_stopped_process_that_has_the_turn_is_named_and_nobody_hangs() {
    let folder = tempfile::tempdir().unwrap();
    let patience = Duration::from_millis(150);
    let options = Options { patience, ..Options::default() };
    let check_busy = |writer: &Voice, attempt: &dyn Fn() -> Result<(), Error>| {
        let began = Instant::now();
        match attempt() {
            Err(error @ Error::Busy { holder: Some(pid), .. }) => {
                assert_eq!(pid, writer.pid() as u32);
                assert!(error.to_string().contains(&format!("process {pid} ")), "{error}");
            }
            other => panic!("{other:?}"),
        }
        let took = began.elapsed();
        assert!(took >= patience && took < 6 * patience, "{took:?}");
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
fn reading_goes_on_while_a_stopped_process_has_the_turn() {
    let folder = tempfile::tempdir().unwrap();
    let ear = open(folder.path()).unwrap();
    ear.subscribe(["c"]).unwrap();
    let mut mouth = Voice::at(folder.path());
    // More than are marked as read at once.
    assert_eq!(mouth.count("flood c 5000 d"), 5_000);
    let mut writer = stopped_writer(folder.path());
    let began = Instant::now();
    let heard = std::iter::from_fn(|| ear.poll().unwrap()).count();
    assert_eq!(heard, 5_000);
    // Long enough for a look at the folder, which cannot be finished.
    assert!(ear.wait(Duration::from_millis(1_200)).unwrap().is_none());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    writer.kill();
    assert_eq!(ear.publish("c", "x").unwrap(), 1);
    assert_eq!(drain(&ear), ["message c x"]);
}
