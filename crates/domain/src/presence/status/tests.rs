//! Activities, the words for changes, what is held back, who sees whom.

use super::*;
use alloc::string::String;
use alloc::vec;

fn activities() -> Activities {
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
    Activities {
        kinds: pairs(&[
            ("activegame", "playing"),
            ("game", "in_game_channel"),
            ("gametv", "watching"),
            ("anno", "annotating"),
        ]),
        channels: pairs(&[("lobby#puzzles", "solving_puzzles")]),
        others: "online".into(),
        priority: ["playing", "in_game_channel", "watching", "solving_puzzles", "annotating", "online"]
            .map(Arc::from)
            .to_vec(),
    }
}

fn status(channels: &[&str]) -> Status {
    let places: Vec<Whereabouts> =
        channels.iter().map(|name| Whereabouts { channel: (*name).into(), since: Time(1) }).collect();
    activities().status(true, false, &places, None)
}

fn shown(status: &Status) -> String {
    let one = |activity: &Activity| alloc::format!("{} {}", activity.activity, activity.channel);
    status.activities.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_most_telling_activity_comes_first() {
    assert_eq!(
        shown(&status(&["lobby#puzzles", "user#ann", "game#G", "activegame#G", "lobby#x"])),
        "playing activegame#G, in_game_channel game#G, solving_puzzles lobby#puzzles, online lobby#x"
    );
    assert_eq!(shown(&status(&["game#B", "game#A"])), "in_game_channel game#A, in_game_channel game#B");
}

#[test]
fn his_own_channel_is_in_neither_list() {
    let status = status(&["user#ann", "game#A"]);
    assert_eq!((status.channels.len(), status.activities.len()), (1, 1));
}

#[test]
fn who_is_offline_does_nothing_anywhere() {
    let places = [Whereabouts { channel: "game#A".into(), since: Time(1) }];
    let status = activities().status(false, true, &places, Some(Time(9)));
    assert_eq!(status, Status { last_seen: Some(Time(9)), ..Status::default() });
}

#[test]
fn arrivals_and_departures_have_their_words() {
    for (channel, arrived, word) in [
        ("activegame#G", true, "started_game"),
        ("activegame#G", false, "ended_game"),
        ("game#G", true, "in_game_channel"),
        ("game#G", false, "none"),
        ("gametv#G", true, "none"),
        ("anno#G", true, "annotating_game"),
        ("lobby#puzzles", true, "solving_puzzles"),
        ("lobby#main", true, "none"),
        ("user#ann", true, "none"),
        ("user#ann", false, "disconnected"),
    ] {
        assert_eq!(turn(channel, arrived).as_str(), word, "{channel} {arrived}");
    }
}

fn tidings(channels: &[&str], turn: Turn) -> Tidings {
    Tidings { status: status(channels), turn, channel: None }
}

fn gone() -> Tidings {
    Tidings { status: Status::default(), turn: Turn::Disconnected, channel: None }
}

#[test]
fn a_page_switch_never_shows_a_disconnect() {
    let mut herald = Herald::default();
    let mut told = Vec::new();
    herald.handle(Time(0), tidings(&["game#A"], Turn::None), 1000, &mut told);
    herald.handle(Time(10), gone(), 1000, &mut told);
    assert_eq!(herald.next_wake(), Some(Time(1010)));
    herald.handle(Time(500), tidings(&["game#A"], Turn::None), 1000, &mut told);
    herald.wake(Time(5000), &mut told);
    assert_eq!(told.len(), 1, "back as he was: nothing to tell");
    herald.handle(Time(6000), gone(), 1000, &mut told);
    herald.handle(Time(6500), tidings(&["game#B"], Turn::InGameChannel), 1000, &mut told);
    assert_eq!(told.last().map(|one| one.turn), Some(Turn::InGameChannel));
    assert!(told.iter().all(|one| one.status.online));
}

#[test]
fn a_disconnect_that_lasts_is_told_and_is_the_last() {
    let mut herald = Herald::default();
    let mut told = Vec::new();
    herald.handle(Time(0), tidings(&["game#A"], Turn::None), 1000, &mut told);
    herald.handle(Time(10), gone(), 1000, &mut told);
    herald.wake(Time(1009), &mut told);
    assert_eq!(told.len(), 1);
    herald.wake(Time(1010), &mut told);
    assert_eq!(told[1..], [gone()]);
    assert_eq!(herald.next_wake(), None);
    herald.handle(Time(2000), tidings(&["game#A"], Turn::None), 1000, &mut told);
    assert_eq!(told.len(), 3, "back again");
}

#[test]
fn without_a_hold_everything_is_told_at_once_but_nothing_twice() {
    let mut herald = Herald::default();
    let mut told = Vec::new();
    for tidings in
        [tidings(&[], Turn::None), gone(), gone(), tidings(&[], Turn::None), tidings(&[], Turn::None)]
    {
        herald.handle(Time(0), tidings, 0, &mut told);
    }
    let words: Vec<bool> = told.iter().map(|one| one.status.online).collect();
    assert_eq!(words, vec![true, false, true]);
}

#[test]
fn who_hides_is_seen_by_those_he_chose() {
    let (stranger, friend) = (Viewer::Other { mutual: false }, Viewer::Other { mutual: true });
    for (value, to_stranger, to_friend) in
        [("everyone", true, true), ("followers_i_follow", false, true), ("nobody", false, false)]
    {
        let visibility = Visibility::parse(value).unwrap();
        assert_eq!(visibility.as_str(), value);
        assert_eq!(
            (visibility.shows(stranger), visibility.shows(friend)),
            (to_stranger, to_friend),
            "{value}"
        );
        assert!(visibility.shows(Viewer::Himself));
    }
    assert_eq!(Visibility::parse("friends"), None);
}
