//! Activities, and the causes of status changes.

use super::*;
use alloc::string::String;

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
        arrivals: pairs(&[
            ("activegame", "started_game"),
            ("game", "in_game_channel"),
            ("anno", "annotating_game"),
            ("lobby#puzzles", "solving_puzzles"),
        ]),
        departures: pairs(&[("activegame", "ended_game")]),
        priority: ["playing", "in_game_channel", "watching", "solving_puzzles", "annotating", "online"]
            .map(Arc::from)
            .to_vec(),
    }
}

fn status(channels: &[&str]) -> Status {
    let places: Vec<UserChannel> =
        channels.iter().map(|name| UserChannel { channel: (*name).into(), since: Time(1) }).collect();
    activities().status(true, false, &places, None)
}

fn shown(status: &Status) -> String {
    let one = |activity: &Activity| alloc::format!("{} {}", activity.activity, activity.channel);
    status.activities.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn activities_are_listed_by_priority() {
    assert_eq!(
        shown(&status(&["lobby#puzzles", "user#ann", "game#G", "activegame#G", "lobby#x"])),
        "playing activegame#G, in_game_channel game#G, solving_puzzles lobby#puzzles, online lobby#x"
    );
    assert_eq!(shown(&status(&["game#B", "game#A"])), "in_game_channel game#A, in_game_channel game#B");
}

#[test]
fn the_users_own_channel_is_not_listed() {
    let status = status(&["user#ann", "game#A"]);
    assert_eq!((status.channels.len(), status.activities.len()), (1, 1));
}

#[test]
fn an_offline_user_has_no_activities() {
    let places = [UserChannel { channel: "game#A".into(), since: Time(1) }];
    let status = activities().status(false, true, &places, Some(Time(9)));
    assert_eq!(status, Status { last_seen: Some(Time(9)), ..Status::default() });
}

#[test]
fn last_seen_of_an_online_user_is_now() {
    let status = |online| activities().status(online, online, &[], Some(Time(9))).last_seen;
    assert_eq!((status(true), status(false)), (None, Some(Time(9))));
}

#[test]
fn arrivals_and_departures_use_the_configured_causes() {
    for (channel, arrived, cause) in [
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
        assert_eq!(activities().cause(channel, arrived).as_str(), cause, "{channel} {arrived}");
    }
}
