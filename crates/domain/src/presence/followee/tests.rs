//! Facts in any order, delayed disconnects and repeated reads.

use super::*;
use alloc::format;
use alloc::string::String;
use alloc::vec;

const HOLD: u64 = 1_000;

fn activities() -> Activities {
    Activities {
        kinds: vec![("game".into(), "playing".into())],
        others: "online".into(),
        arrivals: vec![("game".into(), "in_game_channel".into())],
        ..Activities::default()
    }
}

struct Scene {
    followee: Followee,
    version: u64,
    announced: Vec<String>,
}

impl Scene {
    fn new() -> Scene {
        Scene { followee: Followee::default(), version: 0, announced: Vec::new() }
    }

    fn fact(&mut self, channel: &str, there: bool) -> UserFact {
        self.version += 1;
        UserFact::Channel {
            channel: channel.into(),
            version: self.version,
            presence: there.then_some(PresenceSummary { since: Time(1), leaving: false }),
            last_seen: None,
            name: None,
        }
    }

    fn apply(&mut self, now: u64, fact: UserFact) {
        let announced = self.followee.apply(Time(now), &activities(), HOLD, fact);
        self.note(announced);
    }

    fn step(&mut self, now: u64, channel: &str, there: bool) {
        let fact = self.fact(channel, there);
        self.apply(now, fact);
    }

    fn wake(&mut self, now: u64) {
        let announced = self.followee.wake(Time(now), &activities());
        self.note(announced);
    }

    fn note(&mut self, announced: Option<StatusUpdate>) {
        let shown = |announced: StatusUpdate| {
            let online = if announced.status.online { "online" } else { "offline" };
            format!("{online} {} {}", announced.status.channels.join("+"), announced.cause.as_str())
        };
        self.announced.extend(announced.map(shown));
    }

    #[track_caller]
    fn check(&mut self, expected: &[&str]) {
        assert_eq!(core::mem::take(&mut self.announced), expected);
    }
}

#[test]
fn every_change_is_announced_once_with_its_cause() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    scene.step(1, "game#A", true);
    scene.step(2, "game#A", true);
    scene.step(3, "game#A", false);
    scene.check(&["online  none", "online game#A in_game_channel", "online  none"]);
}

#[test]
fn a_short_disconnect_is_not_announced() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    scene.step(0, "game#A", true);
    scene.announced.clear();
    scene.step(10, "user#ann", false);
    scene.step(11, "game#A", false);
    assert_eq!(scene.followee.next_wake(), Some(Time(1_010)));
    scene.step(500, "game#A", true);
    scene.step(501, "user#ann", true);
    scene.wake(5_000);
    scene.check(&[]);
    let last_seen = Some(Time(7));
    let gone =
        UserFact::Channel { channel: "user#ann".into(), version: 100, presence: None, last_seen, name: None };
    scene.apply(6_000, gone);
    scene.version = 100;
    scene.step(6_001, "user#ann", true);
    scene.check(&[]);
    scene.step(7_000, "user#ann", false);
    scene.step(7_001, "game#B", true);
    scene.step(7_002, "user#ann", true);
    scene.check(&["online game#A+game#B in_game_channel"]);
}

#[test]
fn a_lasting_disconnect_is_announced() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    scene.step(0, "game#A", true);
    scene.announced.clear();
    scene.step(10, "user#ann", false);
    scene.step(11, "game#A", false);
    scene.wake(1_009);
    scene.check(&[]);
    scene.wake(1_010);
    scene.check(&["offline  disconnected"]);
    scene.step(2_000, "user#ann", true);
    scene.check(&["online  none"]);
}

#[test]
fn facts_in_the_wrong_order_give_the_latest_status() {
    let mut scene = Scene::new();
    let (come, go, again) =
        (scene.fact("user#ann", true), scene.fact("user#ann", false), scene.fact("user#ann", true));
    scene.apply(0, come.clone());
    scene.apply(1, again);
    scene.apply(2, go);
    scene.apply(3, come);
    scene.wake(9_000);
    scene.check(&["online  none"]);
}

#[test]
fn an_older_fact_does_not_bring_back_a_channel_that_was_left() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    let (come, go) = (scene.fact("game#A", true), scene.fact("game#A", false));
    scene.apply(1, go);
    scene.apply(2, come);
    scene.check(&["online  none"]);
}

#[test]
fn reading_a_user_again_announces_only_differences() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    scene.step(0, "game#A", true);
    scene.announced.clear();
    let facts = vec![scene.fact("user#ann", true), scene.fact("game#B", true)];
    let read = Followee::read(Time(5), None, Some(Time(3)), facts.into_iter());
    let announced = scene.followee.replace(Time(5), &activities(), HOLD, read);
    scene.note(announced);
    scene.check(&["online game#B none"]);
    let facts = vec![scene.fact("user#ann", true), scene.fact("game#B", true)];
    let read = Followee::read(Time(6), None, None, facts.into_iter());
    let announced = scene.followee.replace(Time(6), &activities(), HOLD, read);
    scene.note(announced);
    scene.check(&[]);
    let announced = scene.followee.replace(Time(7), &activities(), HOLD, Followee::default());
    scene.note(announced);
    scene.check(&[]);
    scene.wake(1_007);
    scene.check(&["offline  disconnected"]);
}

#[test]
fn an_older_visibility_is_ignored() {
    let mut followee = Followee::default();
    for (version, visibility) in [(2, Visibility::Nobody), (1, Visibility::Everyone)] {
        followee.apply(Time(0), &activities(), HOLD, UserFact::Shown { version, visibility });
    }
    assert_eq!(followee.visibility, Visibility::Nobody);
}

#[test]
fn stored_visibility_is_not_replaced_by_an_older_one() {
    let mut followee = Followee::read(Time(0), Some((5, Visibility::Nobody)), None, [].into_iter());
    let mut show = |version| {
        let fact = UserFact::Shown { version, visibility: Visibility::Everyone };
        followee.apply(Time(0), &activities(), HOLD, fact);
        followee.visibility
    };
    assert_eq!([show(4), show(5), show(6)], [Visibility::Nobody, Visibility::Nobody, Visibility::Everyone]);
}

#[test]
fn fact_supersedes_older_ones_about_the_same_row() {
    let mut scene = Scene::new();
    let (first, second, other) =
        (scene.fact("game#A", true), scene.fact("game#A", false), scene.fact("game#B", true));
    let shown = |version| UserFact::Shown { version, visibility: Visibility::Nobody };
    for (newer, older, expected) in [
        (&second, &first, true),
        (&first, &first, true),
        (&first, &second, false),
        (&other, &first, false),
        (&shown(2), &shown(1), true),
        (&shown(2), &shown(2), true),
        (&shown(1), &shown(2), false),
        (&shown(9), &first, false),
        (&other, &shown(1), false),
    ] {
        assert_eq!(newer.supersedes(older), expected, "{newer:?} {older:?}");
    }
}

#[test]
fn channel_that_was_left_is_forgotten_after_a_while() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    let (come, go) = (scene.fact("game#A", true), scene.fact("game#A", false));
    scene.apply(0, go);
    scene.announced.clear();
    scene.apply(LEFT_MS - 1, come.clone());
    scene.check(&[]);
    scene.apply(LEFT_MS, come);
    scene.check(&["online game#A in_game_channel"]);
}

#[test]
fn later_last_seen_of_an_offline_user_is_announced_once() {
    let mut scene = Scene::new();
    for (version, seen) in [(1, 7), (2, 7), (3, 9), (4, 8)] {
        let (channel, last_seen) = ("user#ann".into(), Some(Time(seen)));
        let fact = UserFact::Channel { channel, version, presence: None, last_seen, name: None };
        let update = scene.followee.apply(Time(20), &activities(), HOLD, fact);
        let seen = update.and_then(|update| update.status.last_seen);
        assert_eq!(seen, [None, Some(Time(7)), None, Some(Time(9)), None][version as usize]);
    }
}

#[test]
fn return_to_another_channel_is_announced_with_that_channel() {
    let mut scene = Scene::new();
    scene.step(0, "user#ann", true);
    scene.step(0, "game#A", true);
    scene.step(10, "user#ann", false);
    scene.step(11, "game#B", true);
    let back = scene.fact("user#ann", true);
    let update = scene.followee.apply(Time(12), &activities(), HOLD, back).unwrap();
    assert_eq!((update.cause.as_str(), update.channel.as_deref()), ("in_game_channel", Some("game#B")));
}

#[test]
fn stored_last_seen_is_known() {
    let followee = Followee::read(Time(5), None, Some(Time(3)), [].into_iter());
    assert_eq!(followee.status(&activities()).last_seen, Some(Time(3)));
}
