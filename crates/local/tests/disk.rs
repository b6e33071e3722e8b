//! Disks that fill up, and files that must not grow.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{PATIENCE, Voice, drain, word_of};
use tavern_local::{Draft, Local, Options, open};

const PAYLOAD: usize = 8_000;

/// Says numbers until there is no space, and tells how many were published.
fn fill(mouth: &mut Voice, prefix: &str) -> usize {
    mouth.tell(&format!("say c 100000 {prefix} {PAYLOAD}"));
    let mut said = 0;
    loop {
        let line = mouth.line();
        if line.starts_with("error ") {
            assert!(line.starts_with("error Full ") && line.contains("no space is left"), "{line}");
            return said;
        }
        assert_eq!(line, format!("said {said} 1"));
        said += 1;
    }
}

fn expected(prefix: &str, said: usize) -> Vec<String> {
    let tail = |n: usize| char::from(b'a' + (n % 26) as u8).to_string().repeat(PAYLOAD);
    (0..said).map(|n| format!("message c {prefix}:{n}:{}", tail(n))).collect()
}

#[test]
fn a_full_disk_refuses_what_it_cannot_hold_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let filler = place.join("filler");
    let script = "mount -t tmpfs -o size=3m none \"$0\" && head -c 1m /dev/zero > \"$0/filler\"";
    let mut ear = Voice::behind(script, &place);
    let mut mouth = Voice::beside(&ear);
    for voice in [&mut ear, &mut mouth] {
        voice.ok(&format!("open {}", word_of(&place)));
    }
    ear.ok("subscribe c");
    let said = fill(&mut mouth, "first");
    assert!(said > 10, "{said}");
    assert_eq!(ear.hear(said), expected("first", said));
    assert_eq!(ear.ask("poll"), "none");
    // Looking after the folder is not possible now, and no fault of those who read.
    assert_eq!(ear.ask("wait 1200"), "none");

    mouth.ok(&format!("remove {}", word_of(&filler)));
    let more = fill(&mut mouth, "second");
    assert!(more > 10, "{more}");
    assert_eq!(ear.hear(more), expected("second", more));
    assert_eq!(ear.ask("poll"), "none");
}

/// Opens and subscribes, which may find the disk full. Tells how far it came.
fn try_to_subscribe(voice: &mut Voice, folder: &Path) -> usize {
    let commands = [format!("open {}", word_of(folder)), "subscribe c".into()];
    for (done, command) in commands.iter().enumerate() {
        let answer = voice.ask(command);
        if !answer.starts_with("ok") {
            assert!(answer.starts_with("error Full "), "{command}: {answer}");
            return done;
        }
    }
    commands.len()
}

#[test]
fn wherever_opening_and_subscribing_find_the_disk_full_they_say_so_and_do_it_when_there_is_space() {
    let mut came = [0; 3];
    for free in (0..160).step_by(8) {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let taken = format!("head -c {}k /dev/zero > \"$0/filler\"", 1024 - free);
        let script = format!("mount -t tmpfs -o size=1m none \"$0\" && {taken}");
        let mut one = Voice::behind(&script, &place);
        let mut two = Voice::beside(&one);
        came[try_to_subscribe(&mut one, &place)] += 1;
        // The other one must not stumble over what the first could not finish.
        came[try_to_subscribe(&mut two, &place)] += 1;
        one.ok(&format!("remove {}", word_of(&place.join("filler"))));
        for voice in [&mut one, &mut two] {
            assert_eq!(try_to_subscribe(voice, &place), 2);
        }
        assert_eq!((one.count("sweep"), one.count("publish c x")), (0, 2), "with {free} KiB");
        assert_eq!((one.ask("poll"), two.ask("poll")), ("message c x".into(), "message c x".into()));
    }
    assert!(came.iter().all(|&times| times > 0), "{came:?}");
}

/// The largest size that a file had while something else was done.
fn highest(folder: &Path, work: impl FnOnce()) -> u64 {
    let file = folder.join("bus.db-wal");
    let (over, most) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let size = std::fs::metadata(&file).map_or(0, |file| file.len());
                most.fetch_max(size, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    most.load(Ordering::SeqCst)
}

/// Ten thousand messages while one process waits, for these or for others.
fn check_wal(listens: &str) {
    const SAID: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let mut waiter = Voice::at(folder.path());
    waiter.ok(&format!("subscribe {listens}"));
    let ear = open(folder.path()).unwrap();
    ear.subscribe(["c"]).unwrap();
    let recipients = 1 + u64::from(listens == "c");
    let most = highest(folder.path(), || {
        if listens == "c" {
            waiter.tell(&format!("hear {SAID}"));
        } else {
            waiter.tell("wait 60000");
        }
        for n in 0..SAID {
            assert_eq!(ear.publish("c", format!("{n:0>100}")).unwrap(), recipients);
            let message = ear.poll().unwrap().unwrap();
            assert_eq!(message.payload(), format!("{n:0>100}").as_bytes());
        }
        if listens == "c" {
            (0..SAID).for_each(|n| assert_eq!(waiter.line(), format!("message c {n:0>100}")));
        }
    });
    assert!(most > 0 && most < 8 << 20, "{most} bytes");
}

#[test]
fn the_write_ahead_log_stays_small_while_somebody_waits_for_something_else() {
    check_wal("other");
}

#[test]
fn the_write_ahead_log_stays_small_while_somebody_hears_everything() {
    check_wal("c");
}

#[test]
fn a_reader_stopped_in_the_midst_of_reading_does_not_hold_up_those_who_write() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { log_bytes: 1 << 20, ..Options::default() };
    let mouth = Local::open_with(folder.path(), options).unwrap();
    let ear = open(folder.path()).unwrap();
    ear.subscribe(["c"]).unwrap();
    // A read that does not end, as a process stopped at a bad moment has it.
    let reader = support::database(folder.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM log").unwrap();
    let payload = vec![b'x'; 64 << 10];
    let mut longest = Duration::ZERO;
    for n in 0..2_100 {
        // Large ones first, so that the file is beyond its size when it would be folded.
        let payload = if n < 700 { &payload[..] } else { b"small" };
        let began = Instant::now();
        mouth.publish_all(&[Draft::new(b"c", payload)]).unwrap();
        longest = longest.max(began.elapsed());
    }
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let wal = || std::fs::metadata(folder.path().join("bus.db-wal")).unwrap().len();
    assert!(wal() > 32 << 20, "it was beyond its size: {}", wal());
    drop(reader);
    let began = Instant::now();
    while wal() > 33 << 20 {
        assert!(began.elapsed() < PATIENCE, "{} bytes", wal());
        mouth.publish("c", "small").unwrap();
    }
    assert!(!drain(&ear).is_empty());
}
