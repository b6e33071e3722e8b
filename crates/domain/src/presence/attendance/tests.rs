//! Scripted scenarios of one user in one channel. The grace period is 15 unless a step gives another.
//!
//! `5: tab 1 joins` · `5: tab 1 joins as X` · `5: tab 1 becomes X` · `5: tab 1 leaves` · `5: tab 1 logs out` ·
//! `5: tab 1 is lost` · `5: tab 1 was lost at 3` · `5: tab 1 is lost, grace 2` · `5: node b dies` ·
//! `5: node b dies, last seen at 3` ·
//! `5: node b is unknown` · `5: a sweep` · `5` (time passes).
//! Tabs 1 to 4 live on node a, 5 to 9 on node b.

use super::*;
use alloc::format;
use alloc::string::{String, ToString};

const GRACE: u64 = 15;

fn client(tab: &str) -> ClientId {
    ClientId::from_random(tab.parse().unwrap())
}

fn home(tab: &str) -> NodeEpoch {
    node(if tab < "5" { "a" } else { "b" })
}

fn node(name: &str) -> NodeEpoch {
    NodeEpoch { node: name.into(), epoch: Epoch(1) }
}

fn state(text: &str) -> ClientState {
    ClientState { text: text.into(), digest: text.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte)) }
}

fn tab(client: ClientId) -> String {
    client.to_string().trim_start_matches('0').to_string()
}

fn read(words: &str, now: u64) -> AttendanceInput {
    let parts: Vec<&str> = words.split([' ', ',']).filter(|part| !part.is_empty()).collect();
    let loss = |at: u64, grace_ms: u64| ClientLoss { at: Time(at), grace_ms, reason: OfflineReason::Lost };
    match parts[..] {
        ["tab", t, "joins"] => AttendanceInput::Join { client: client(t), node: home(t), state: None },
        ["tab", t, "joins", "as", s] => {
            AttendanceInput::Join { client: client(t), node: home(t), state: Some(state(s)) }
        }
        ["tab", t, "becomes", s] => AttendanceInput::Update { client: client(t), state: state(s) },
        ["tab", t, "leaves"] => AttendanceInput::Leave { client: client(t), reason: OfflineReason::Left },
        ["tab", t, "logs", "out"] => AttendanceInput::Leave { client: client(t), reason: OfflineReason::Bye },
        ["tab", t, "is", "lost"] => AttendanceInput::Lose { client: client(t), loss: loss(now, GRACE) },
        ["tab", t, "was", "lost", "at", at] => {
            AttendanceInput::Lose { client: client(t), loss: loss(at.parse().unwrap(), GRACE) }
        }
        ["tab", t, "is", "lost", "grace", g] => {
            AttendanceInput::Lose { client: client(t), loss: loss(now, g.parse().unwrap()) }
        }
        ["node", n, "misses", t] => {
            AttendanceInput::LoseAt { client: client(t), node: node(n).node, loss: loss(now, GRACE) }
        }
        ["node", n, "dies"] => {
            let loss = ClientLoss { reason: OfflineReason::NodeDown, ..loss(now, GRACE) };
            AttendanceInput::LoseNode { node: node(n), loss, seen: loss.at }
        }
        ["node", n, "dies", "last", "seen", "at", seen] => {
            let loss = ClientLoss { reason: OfflineReason::NodeDown, ..loss(now, GRACE) };
            AttendanceInput::LoseNode { node: node(n), loss, seen: Time(seen.parse().unwrap()) }
        }
        ["node", n, "is", "unknown"] => AttendanceInput::Sweep { nodes: alloc::vec![node(n)] },
        ["a", "sweep"] => AttendanceInput::Sweep { nodes: Vec::new() },
        _ => panic!("{words:?} is no step"),
    }
}

fn show(change: &AttendanceChange) -> String {
    let named = |state: &Option<ClientState>| {
        state.as_ref().map_or(String::new(), |state| format!(" {}", state.text))
    };
    match change {
        AttendanceChange::UserOnline => "online".into(),
        AttendanceChange::ClientOnline { client, state } => format!("+{}{}", tab(*client), named(state)),
        AttendanceChange::ClientUpdated { client, state } => format!("~{} {}", tab(*client), state.text),
        AttendanceChange::ClientOffline { client, reason } => {
            format!("-{} {}", tab(*client), reason.as_str())
        }
        AttendanceChange::UserOffline { last_seen, reason } => {
            format!("offline {} seen {}", reason.as_str(), last_seen.ms())
        }
        AttendanceChange::VisibilityChanged { .. } => "face".into(),
        AttendanceChange::NotFound => "not found".into(),
    }
}

/// Runs a story. The changes of each step are listed after its time; steps without changes are omitted.
fn run_story(story: &str) -> (String, Attendance) {
    let mut attendance = Attendance::default();
    let mut results = Vec::new();
    for step in story.split(';').map(str::trim) {
        let (time, words) = step.split_once(": ").unwrap_or((step, ""));
        let now: u64 = time.parse().unwrap();
        let mut changes = Vec::new();
        match words {
            "" => attendance.wake(Time(now), &mut changes),
            words => attendance.handle(Time(now), read(words, now), &mut changes),
        }
        if !changes.is_empty() {
            let changes: Vec<String> = changes.iter().map(show).collect();
            results.push(format!("{now}: {}", changes.join(", ")));
        }
    }
    (results.join("; "), attendance)
}

fn check(story: &str, expected: &str) {
    assert_eq!(run_story(story).0, expected, "{story}");
}

#[test]
fn a_user_is_online_from_the_first_client_to_the_last() {
    check("0: tab 1 joins; 5: tab 1 leaves", "0: online, +1; 5: -1 left, offline left seen 5");
    check(
        "0: tab 1 joins; 1: tab 2 joins; 2: tab 1 leaves; 3: tab 2 logs out",
        "0: online, +1; 1: +2; 2: -1 left; 3: -2 bye, offline bye seen 3",
    );
}

#[test]
fn clients_of_an_unknown_node_go_without_a_grace_period() {
    check(
        "1: tab 1 joins; 2: tab 2 joins; 3: tab 5 joins; 9: node a is unknown; 10: node b is unknown; 99",
        "1: online, +1; 2: +2; 3: +5; 9: -1 node_down, -2 node_down; 10: -5 node_down, offline node_down seen 3",
    );
    check(
        "1: tab 1 joins; 2: tab 5 joins; 3: tab 1 is lost; 9: node b is unknown; 17: a sweep; 18: a sweep",
        "1: online, +1; 2: +5; 3: -1 lost; 9: -5 node_down; 18: offline node_down seen 3",
    );
}

#[test]
fn an_input_that_changes_nothing_gives_no_change() {
    check("0: tab 1 joins as X; 1: tab 1 joins as X; 2: tab 1 joins; 3: tab 1 becomes X", "0: online, +1 X");
    check("0: tab 1 leaves; 1: tab 1 is lost; 2: node a dies; 99", "");
    check(
        "0: tab 1 joins; 1: tab 1 leaves; 2: tab 1 leaves",
        "0: online, +1; 1: -1 left, offline left seen 1",
    );
}

#[test]
fn a_different_state_is_an_update() {
    check(
        "0: tab 1 joins as X; 1: tab 1 joins as Y; 2: tab 1 becomes Z",
        "0: online, +1 X; 1: ~1 Y; 2: ~1 Z",
    );
    check("0: tab 1 joins; 1: tab 1 becomes X", "0: online, +1; 1: ~1 X");
    check("0: tab 1 becomes X", "0: not found");
    check("0: tab 1 joins; 1: tab 1 is lost; 2: tab 1 becomes X", "0: online, +1; 1: -1 lost; 2: not found");
}

#[test]
fn a_lost_user_goes_offline_at_the_deadline() {
    check("0: tab 1 joins; 5: tab 1 is lost; 19; 20", "0: online, +1; 5: -1 lost; 20: offline lost seen 5");
    check(
        "0: tab 1 joins; 7: tab 1 was lost at 5; 19; 20",
        "0: online, +1; 7: -1 lost; 20: offline lost seen 5",
    );
    check(
        "0: tab 1 joins; 5: tab 1 is lost; 6: tab 1 is lost; 20; 40",
        "0: online, +1; 5: -1 lost; 20: offline lost seen 5",
    );
}

#[test]
fn a_grace_period_shorter_than_the_resume_window_ends_with_it() {
    check("0: tab 1 joins; 5: tab 1 is lost, grace 0", "0: online, +1; 5: -1 lost, offline lost seen 5");
    check("0: tab 1 joins; 0: tab 1 is lost, grace 0", "0: online, +1; 0: -1 lost, offline lost seen 0");
}

#[test]
fn any_arrival_cancels_the_deadline() {
    check("0: tab 1 joins; 5: tab 1 is lost; 10: tab 1 joins; 20; 99", "0: online, +1; 5: -1 lost; 10: +1");
    check("0: tab 1 joins; 5: tab 1 is lost; 10: tab 2 joins; 20; 99", "0: online, +1; 5: -1 lost; 10: +2");
    check(
        "0: tab 1 joins; 1: tab 2 joins; 5: tab 1 is lost; 6: tab 2 joins; 7: tab 2 leaves",
        "0: online, +1; 1: +2; 5: -1 lost; 7: -2 left, offline left seen 7",
    );
}

#[test]
fn an_arrival_at_the_deadline_begins_a_new_presence() {
    check(
        "0: tab 1 joins; 5: tab 1 is lost; 20: tab 1 joins",
        "0: online, +1; 5: -1 lost; 20: offline lost seen 5, online, +1",
    );
}

#[test]
fn an_explicit_departure_waits_for_lost_clients() {
    check(
        "0: tab 1 joins; 1: tab 2 joins; 5: tab 1 is lost; 6: tab 2 leaves; 19; 20",
        "0: online, +1; 1: +2; 5: -1 lost; 6: -2 left; 20: offline left seen 6",
    );
    check(
        "0: tab 1 joins; 1: tab 2 joins; 5: tab 1 is lost; 30: tab 2 leaves",
        "0: online, +1; 1: +2; 5: -1 lost; 30: -2 left, offline left seen 30",
    );
}

#[test]
fn a_node_loses_only_clients_that_are_still_connected_to_it() {
    check("0: tab 1 joins; 5: node b misses 1; 99", "0: online, +1");
    check("0: tab 1 joins; 5: node a misses 1; 20", "0: online, +1; 5: -1 lost; 20: offline lost seen 5");
}

#[test]
fn the_latest_deadline_of_several_losses_counts() {
    check(
        "0: tab 1 joins; 1: tab 2 joins; 5: tab 1 is lost; 9: tab 2 is lost; 20; 24",
        "0: online, +1; 1: +2; 5: -1 lost; 9: -2 lost; 24: offline lost seen 9",
    );
    check(
        "0: tab 1 joins; 1: tab 2 joins; 5: tab 1 is lost, grace 50; 9: tab 2 is lost; 24; 55",
        "0: online, +1; 1: +2; 5: -1 lost; 9: -2 lost; 55: offline lost seen 9",
    );
}

#[test]
fn a_dead_node_loses_its_own_clients_only() {
    check(
        "0: tab 1 joins; 0: tab 5 joins; 0: tab 6 joins; 5: node b dies; 6: node b dies; 99; 100: tab 1 leaves",
        "0: online, +1; 0: +5; 0: +6; 5: -5 node_down, -6 node_down; 100: -1 left, offline left seen 100",
    );
    check(
        "0: tab 5 joins; 0: tab 6 joins; 5: node b dies; 20",
        "0: online, +5; 0: +6; 5: -5 node_down, -6 node_down; 20: offline node_down seen 5",
    );
    // The grace period begins when the loss is noticed.
    check(
        "0: tab 5 joins; 5: node b dies, last seen at 3; 19; 20",
        "0: online, +5; 5: -5 node_down; 20: offline node_down seen 3",
    );
}

#[test]
fn a_client_that_moved_is_not_lost_with_its_old_node() {
    let (_, mut attendance) = run_story("0: tab 5 joins");
    let mut changes = Vec::new();
    let moved = AttendanceInput::Join { client: client("5"), node: node("c"), state: None };
    attendance.handle(Time(1), moved, &mut changes);
    attendance.handle(Time(2), read("node b dies", 2), &mut changes);
    assert_eq!((changes, attendance.connected().count()), (Vec::new(), 1));
}

#[test]
fn a_loss_in_the_future_does_not_extend_the_grace_period() {
    check(
        "0: tab 1 joins; 5: tab 1 was lost at 99; 20",
        "0: online, +1; 5: -1 lost; 20: offline lost seen 5",
    );
}

#[test]
fn present_clients_and_the_grace_period_are_visible() {
    let (_, attendance) = run_story("3: tab 1 joins; 4: tab 2 joins; 5: tab 1 is lost");
    assert!(attendance.is_present() && !attendance.is_leaving());
    assert_eq!(attendance.next_wake(), Some(Time(20)), "the lost client is forgotten then");
    assert_eq!((attendance.connected().count(), attendance.since()), (1, Time(3)));
    let (_, attendance) = run_story("3: tab 1 joins; 5: tab 1 is lost");
    assert!(attendance.is_present() && attendance.is_leaving() && attendance.connected().next().is_none());
    assert_eq!(attendance.next_wake(), Some(Time(20)));
    let (_, attendance) = run_story("3: tab 1 joins; 5: tab 1 leaves");
    assert_eq!(attendance, Attendance::default(), "nothing is stored for an absent user");
}

#[test]
fn offline_reasons_are_read_as_they_are_written() {
    for text in ["left", "bye", "lost", "node_down", "removed", "expired"] {
        assert_eq!(OfflineReason::parse(text).map(OfflineReason::as_str), Some(text));
    }
    assert_eq!(OfflineReason::parse("gone"), None);
}

#[test]
fn only_a_user_with_one_client_from_the_beginning_is_alone() {
    for (story, alone) in [
        ("3: tab 1 joins", Some(Time(3))),
        ("3: tab 1 joins; 4: tab 2 joins", None),
        ("3: tab 1 joins; 4: tab 2 joins; 5: tab 2 leaves", None),
        ("3: tab 1 joins; 4: tab 2 joins; 5: tab 1 leaves", None),
        ("3: tab 1 joins; 5: tab 1 is lost", None),
        ("3: tab 1 joins; 5: tab 1 leaves", None),
    ] {
        assert_eq!(run_story(story).1.alone(), alone, "{story}");
    }
}

/// Ten thousand random stories: online and offline alternate, and the changes add up to the current state.
#[test]
fn the_changes_add_up_to_the_current_state() {
    let mut seed = 1u64;
    let mut roll = |sides: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % sides
    };
    for _ in 0..10_000 {
        let mut attendance = Attendance::default();
        let (mut now, mut online, mut shown) = (0, false, Vec::<ClientId>::new());
        for _ in 0..roll(20) {
            now += roll(12);
            let tab = (1 + roll(6)).to_string();
            let words = match roll(8) {
                0..=2 => format!("tab {tab} joins"),
                3 => format!("tab {tab} joins as {}", roll(3)),
                4 => format!("tab {tab} leaves"),
                5 => format!("tab {tab} is lost, grace {}", roll(30)),
                6 => "node b dies".into(),
                _ => String::new(),
            };
            let mut changes = Vec::new();
            match words.as_str() {
                "" => attendance.wake(Time(now), &mut changes),
                words => attendance.handle(Time(now), read(words, now), &mut changes),
            }
            for change in &changes {
                match change {
                    AttendanceChange::UserOnline => assert!(!core::mem::replace(&mut online, true)),
                    AttendanceChange::UserOffline { .. } => {
                        assert!(core::mem::replace(&mut online, false) && shown.is_empty());
                    }
                    AttendanceChange::ClientOnline { client, .. } => {
                        assert!(online && !shown.contains(client));
                        shown.push(*client);
                    }
                    AttendanceChange::ClientOffline { client, .. } => {
                        assert!(shown.contains(client));
                        shown.retain(|other| other != client);
                    }
                    AttendanceChange::ClientUpdated { client, .. } => assert!(shown.contains(client)),
                    AttendanceChange::VisibilityChanged { .. } | AttendanceChange::NotFound => {
                        panic!("not an input of this story")
                    }
                }
            }
            shown.sort();
            let there: Vec<ClientId> = attendance.connected().map(|attendee| attendee.client).collect();
            assert_eq!((online, &shown), (attendance.is_present(), &there));
            assert!(attendance.next_wake().is_none_or(|wake| wake > Time(now)), "what is due is settled");
            let lost = attendance.clients().iter().any(|attendee| attendee.lost.is_some());
            assert_eq!(lost, attendance.next_wake().is_some(), "a grace always ends");
            let kept = attendance.clients().iter().rev().cloned().collect();
            let restored = Attendance::restore(kept, attendance.since(), attendance.departed());
            assert_eq!(restored, attendance, "the stored form is complete");
        }
    }
}
