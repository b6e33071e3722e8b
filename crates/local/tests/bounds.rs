//! Nothing grows without bound, and whoever loses something because of that is told how much.

mod support;

use std::time::{Duration, Instant};
use support::{Voice, database, drain, encode, rows};
use tavern_local::{Draft, Local, Options, open};

/// Says numbers from `from` on, and asserts after each that the log is within its bounds.
fn say(mouth: &Local, options: &Options, from: usize, count: usize, size: usize) {
    for n in from..from + count {
        let payload = format!("{n:0>size$}");
        mouth.publish("c", payload).unwrap();
        let stat = mouth.stat().unwrap();
        assert!(stat.log_messages <= options.log_messages.max(1), "{stat:?}");
        assert!(stat.log_bytes <= options.log_bytes.max(size as u64 + 1), "{stat:?}");
    }
}

/// What a laggard must read when it lost the first `lost` of `said` numbers.
fn after_a_gap(lost: usize, said: usize, size: usize) -> Vec<String> {
    let rest = (lost..said).map(|n| format!("message c {n:0>size$}"));
    std::iter::once(format!("gap {lost}")).chain(rest).collect()
}

/// One never reads; another reads after every few messages and loses nothing.
fn check_laggard(options: Options, size: usize, kept_at_least: usize) {
    const SAID: usize = 400;
    let few = kept_at_least.min(20);
    let folder = tempfile::tempdir().unwrap();
    let mouth = Local::open_with(folder.path(), options.clone()).unwrap();
    let mut laggard = Voice::at(folder.path());
    let mut reader = Voice::at(folder.path());
    laggard.ok("subscribe c");
    reader.ok("subscribe c");
    for from in (0..SAID).step_by(few) {
        say(&mouth, &options, from, few, size);
        let heard = reader.hear(few);
        let expected: Vec<String> = (from..from + few).map(|n| format!("message c {n:0>size$}")).collect();
        assert_eq!(heard, expected, "who reads loses nothing");
    }
    assert_eq!(reader.ask("poll"), "none");
    let kept = rows(folder.path()).log as usize;
    assert!(kept >= kept_at_least && kept < SAID, "{kept}");
    assert_eq!(laggard.hear(kept + 1), after_a_gap(SAID - kept, SAID, size));
    assert_eq!(laggard.ask("poll"), "none");
    assert_eq!(mouth.publish("c", "on").unwrap(), 2);
    assert_eq!((laggard.ask("poll"), reader.ask("poll")), ("message c on".into(), "message c on".into()));
}

#[test]
fn who_never_reads_loses_the_oldest_above_a_number_of_messages() {
    check_laggard(Options { log_messages: 50, ..Options::default() }, 10, 44);
    check_laggard(Options { log_messages: 1, ..Options::default() }, 10, 1);
    check_laggard(Options { log_messages: 0, ..Options::default() }, 10, 1);
}

#[test]
fn who_never_reads_loses_the_oldest_above_a_number_of_bytes() {
    check_laggard(Options { log_bytes: 10_000, ..Options::default() }, 99, 89);
    // A single message is kept, however large it is.
    check_laggard(Options { log_bytes: 10, ..Options::default() }, 50, 1);
}

#[test]
fn who_never_reads_loses_what_is_too_old_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_messages: 100, log_age: Duration::from_secs(60), ..Options::default() };
    let mouth = Local::open_with(folder.path(), options).unwrap();
    let mut laggard = Voice::at(folder.path());
    laggard.ok("subscribe c");
    for n in 0..97 {
        mouth.publish("c", format!("{n}")).unwrap();
    }
    let aged = database(folder.path()).execute("UPDATE log SET at = at - 61000 WHERE id <= 2", []);
    assert_eq!(aged.unwrap(), 2);
    mouth.publish("c", "97").unwrap();
    // Within the other bounds, though near them: only the two that are too old go.
    assert_eq!(laggard.hear(97), after_a_gap(2, 98, 1));
    assert_eq!(laggard.ask("poll"), "none");
}

#[test]
fn messages_that_were_read_but_not_yet_marked_are_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    let mouth = Local::open_with(folder.path(), Options { log_messages: 20, ..Options::default() }).unwrap();
    let mut reader = Voice::at(folder.path());
    let mut laggard = Voice::at(folder.path());
    reader.ok("subscribe mine");
    laggard.ok("subscribe c");
    mouth.publish("mine", "1").unwrap();
    assert_eq!(reader.ask("poll"), "message mine 1");
    // The mark of the first goes with what the other one loses, far beyond what the reader has seen.
    for n in 0..60 {
        mouth.publish("c", format!("{n}")).unwrap();
    }
    assert_eq!(reader.ask("poll"), "none");
    mouth.publish("mine", "2").unwrap();
    assert_eq!(reader.ask("poll"), "message mine 2");
    assert_eq!(reader.ask("poll"), "none");
    assert!(laggard.ask("poll").starts_with("gap "));
}

#[test]
fn a_loss_is_counted_right_when_marks_were_written_between() {
    let folder = tempfile::tempdir().unwrap();
    let mouth = Local::open_with(folder.path(), Options { log_messages: 20, ..Options::default() }).unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    let mut said = 0;
    let mut say = |count: usize| {
        for _ in 0..count {
            mouth.publish("c", format!("{said}")).unwrap();
            said += 1;
        }
        said
    };
    let said = say(15);
    assert_eq!(ear.hear(said).len(), 15);
    // These push out what was read and some of what was not; then the ear looks, which marks what it has read.
    let said = say(30);
    let kept = rows(folder.path()).log as usize;
    // Nothing is taken from the queue before the look: it comes first.
    std::thread::sleep(Duration::from_millis(1_050));
    assert_eq!(ear.hear(kept + 1), {
        let rest = (said - kept..said).map(|n| format!("message c {n}"));
        std::iter::once(format!("gap {}", said - kept - 15)).chain(rest).collect::<Vec<_>>()
    });
    assert_eq!(ear.ask("poll"), "none");
}

#[test]
fn of_two_subscribers_in_one_process_only_the_one_that_does_not_read_loses() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_messages: 50, ..Options::default() };
    let reader = Local::open_with(folder.path(), options.clone()).unwrap();
    let laggard = Local::open_with(folder.path(), options.clone()).unwrap();
    reader.subscribe(["c"]).unwrap();
    laggard.subscribe(["c"]).unwrap();
    let mouth = Local::open_with(folder.path(), options.clone()).unwrap();
    for n in 0..200 {
        say(&mouth, &options, n, 1, 1);
        assert_eq!(drain(&reader), [format!("message c {n}")]);
    }
    assert_eq!(drain(&laggard), after_a_gap(150, 200, 1));
    assert_eq!(mouth.publish("c", "on").unwrap(), 2);
    assert_eq!((drain(&reader), drain(&laggard)), (vec!["message c on".into()], vec!["message c on".into()]));
}

#[test]
fn a_gap_wakes_whoever_waits() {
    let folder = tempfile::tempdir().unwrap();
    let mouth = Local::open_with(folder.path(), Options { log_messages: 5, ..Options::default() }).unwrap();
    let mut ear = Voice::at(folder.path());
    ear.ok("subscribe c");
    ear.stop();
    for n in 0..10 {
        mouth.publish("c", format!("{n}")).unwrap();
    }
    ear.tell("wait 20000");
    ear.resume();
    assert_eq!(ear.line_within(Duration::from_millis(700)), "gap 5");
}

#[test]
fn bounds_that_are_none_bound_nothing() {
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
fn a_message_above_the_bound_is_published_as_fast_as_another() {
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
    let mut crowd = Voice::silent();
    crowd.ok("limit 256");
    crowd.ok(&format!("open {}", support::word_of(folder.path())));
    assert_eq!(crowd.count("crowd 1000"), 1_000);
    let mouth = open(folder.path()).unwrap();
    assert_eq!(mouth.publish("crowd", "all").unwrap(), 1_000);
    assert_eq!(crowd.count("crowd-poll"), 1_000);
    let channels: Vec<String> = (0..1_000).map(|at| format!("crowd{at}")).collect();
    let drafts: Vec<Draft<'_>> =
        channels.iter().map(|channel| Draft::new(channel.as_bytes(), b"x")).collect();
    assert_eq!(mouth.publish_all(&drafts).unwrap(), [1; 1_000]);
    assert_eq!(crowd.count("crowd-poll"), 1_000);
    assert_eq!(rows(folder.path()).processes.len(), 1);
    // What does run out of descriptors says so.
    crowd.ok("limit 8");
    let other = encode(folder.path().join("other").to_str().unwrap().as_bytes());
    let refused = crowd.ask(&format!("open {other}"));
    assert!(refused.starts_with("error ") && !refused.contains("written to"), "{refused}");
}

#[test]
fn names_are_remembered_within_bounds() {
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
