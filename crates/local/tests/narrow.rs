//! Those who hear everything: a publisher that meets them asks what they really listen to, and then counts exactly.

mod support;

use std::time::{Duration, Instant};
use support::{Voice, drain};
use tavern_local::{Interest, Local, Options, Space, open};

#[test]
fn who_hears_everything_is_asked_to_narrow_and_then_counted_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let mut wide = Voice::at(folder.path());
    wide.tell("attend c d");
    assert_eq!(wide.line(), "attending");
    let mouth = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(mouth.publish("other", "x").unwrap(), 0);
    assert_eq!(mouth.publish("c", "1").unwrap(), 1);
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    assert_eq!(mouth.publish("d", "end").unwrap(), 1);
    assert_eq!(wide.line(), "message c 1");
    assert_eq!(wide.line(), "message d end");
    let asked: u64 = wide.line().strip_prefix("ok ").unwrap().parse().unwrap();
    assert!(asked >= 1);
}

#[test]
fn several_who_hear_everything_are_all_asked() {
    let folder = tempfile::tempdir().unwrap();
    let mut wide: Vec<Voice> = (0..3).map(|_| Voice::at(folder.path())).collect();
    for voice in &mut wide {
        voice.tell("attend c");
        assert_eq!(voice.line(), "attending");
    }
    let mouth = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(mouth.publish("c", "end").unwrap(), 3);
    assert!(began.elapsed() < Duration::from_millis(700), "{:?}", began.elapsed());
    for voice in &mut wide {
        assert_eq!(voice.line(), "message c end");
    }
}

#[test]
fn a_stopped_one_is_not_waited_for_longer_than_a_second_and_hears_it_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut wide = Voice::at(folder.path());
    wide.tell("attend c");
    assert_eq!(wide.line(), "attending");
    wide.stop();
    let mouth = open(folder.path()).unwrap();
    let began = Instant::now();
    assert_eq!(mouth.publish("c", "1").unwrap(), 0, "it is not known whether it wants this");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_millis(2_500), "{took:?}");
    // For a while it is left alone.
    let began = Instant::now();
    assert_eq!(mouth.publish("c", "2").unwrap(), 0);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    wide.resume();
    assert_eq!((wide.line(), wide.line()), ("message c 1".into(), "message c 2".into()));
}

#[test]
fn a_question_is_heard_even_if_the_bell_has_rung_too_often_to_take_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut wide = Voice::at(folder.path());
    wide.tell("attend c");
    assert_eq!(wide.line(), "attending");
    wide.stop();
    // As many signals as fit.
    let bell = folder.path().join(format!("bus.db-wake-{}", support::wake_files(folder.path())[0]));
    let ringer = std::os::unix::net::UnixDatagram::unbound().unwrap();
    ringer.set_nonblocking(true).unwrap();
    while ringer.send_to(b"l", &bell).is_ok() {}
    let counted = std::thread::scope(|scope| {
        let mouth = scope.spawn(|| open(folder.path()).unwrap().publish("c", "end").unwrap());
        // It asks in vain by now.
        std::thread::sleep(Duration::from_millis(100));
        wide.resume();
        mouth.join().unwrap()
    });
    assert_eq!(counted, 1);
    assert_eq!(wide.line(), "message c end");
}

#[test]
fn who_hears_everything_itself_need_not_be_asked_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    for echo in [true, false] {
        let local = Local::open_with(folder.path(), Options { echo, ..Options::default() }).unwrap();
        local.listen([Interest::everything(Space::Public)]).unwrap();
        let began = Instant::now();
        assert_eq!(local.publish("c", "x").unwrap(), 0);
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        assert!(!local.is_asked_to_narrow());
        assert_eq!(drain(&local).len(), usize::from(echo));
    }
}

#[test]
fn an_old_question_is_not_put_to_somebody_new() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    first.listen([Interest::everything(Space::Public)]).unwrap();
    let mut mouth = Voice::at(folder.path());
    mouth.tell("publish c x");
    assert!(first.wait(Duration::from_secs(10)).unwrap().is_none());
    assert!(first.is_asked_to_narrow() && !first.is_asked_to_narrow());
    first.unlisten([Interest::everything(Space::Public)]).unwrap();
    assert_eq!(mouth.line(), "ok 0");
    let second = open(folder.path()).unwrap();
    second.listen([Interest::everything(Space::Public)]).unwrap();
    assert!(!second.is_asked_to_narrow());
}

#[test]
fn the_two_spaces_do_not_hear_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let local = open(folder.path()).unwrap();
    local.listen([Interest::channel("c").in_space(Space::Private)]).unwrap();
    local.subscribe(["c"]).unwrap();
    local.psubscribe(["*"]).unwrap();
    let draft = |space| tavern_local::Draft { space, channel: b"c", payload: b"x", note: b"n" };
    assert_eq!(local.publish_all(&[draft(Space::Private), draft(Space::Public)]).unwrap(), [1, 2]);
    let spaces: Vec<Space> = std::iter::from_fn(|| local.poll().unwrap())
        .map(|message| message.words().unwrap().space())
        .collect();
    assert_eq!(spaces, [Space::Private, Space::Public, Space::Public]);
    assert_eq!(local.channels(None).unwrap(), [b"c"]);
    assert_eq!(local.numsub(["c"]).unwrap(), [("c", 1)]);
    assert_eq!(local.unsubscribe_all().unwrap(), 2, "the private one stays");
}
