//! The cases of clients/vectors, which every client runs.

use crate::bounds;
use crate::decisions::{
    AfterClose, AfterHello, AfterLoss, AfterReply, after_close, after_hello, after_loss, after_reply,
    backoff, is_repeatable, renew_after,
};
use crate::history::{ChannelPosition, HistoryCursor, MessageTurn};
use crate::party_snapshot::{PartyEvent, PartySnapshot, after_event};
use crate::presence::{Status, StatusUpdate};
use crate::presence_map::{Applied, PresenceMap};
use crate::{Error, glob};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const FILES: [&str; 13] = [
    "backoff",
    "bounds",
    "close",
    "gaps",
    "glob",
    "hello",
    "lost",
    "party",
    "presence",
    "repeatable",
    "replies",
    "status",
    "token",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../clients/vectors")
}

/// Checks each case of a file.
fn each(file: &str, check: impl Fn(&Value)) {
    assert!(FILES.contains(&file));
    let text = std::fs::read_to_string(folder().join(format!("{file}.json"))).expect(file);
    let vectors: Value = serde_json::from_str(&text).expect(file);
    let cases = vectors["cases"].as_array().expect("cases");
    assert!(cases.len() > 3, "{file}");
    for case in cases {
        println!("{case}");
        check(case);
    }
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or_else(|| panic!("{name} of {case}"))
}

fn flag(case: &Value, name: &str) -> bool {
    case[name].as_bool().unwrap_or_else(|| panic!("{name} of {case}"))
}

fn ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).expect("a short wait")
}

#[test]
fn all_files_are_run() {
    let mut found: Vec<String> = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|file| file.expect("a file").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    found.sort();
    assert_eq!(found, FILES);
}

#[test]
fn limits() {
    each("bounds", |case| {
        let own = match text(case, "name") {
            "waiting_commands" => bounds::WAITING as u64,
            "unread_events" => bounds::KEPT as u64,
            "kept_changes" => bounds::EARLY as u64,
            "answer_bytes" => bounds::MESSAGE_BYTES as u64,
            "command_ms" => ms(bounds::COMMAND_TIMEOUT),
            "connect_ms" => ms(bounds::OPEN_TIMEOUT),
            "bye_ms" => ms(bounds::BYE_TIMEOUT),
            "token_ms" => ms(bounds::TOKEN_TIMEOUT),
            "steady_ms" => ms(bounds::STEADY),
            "stand_in_ms" => ms(bounds::STAND_IN),
            "second_half_ms" => ms(bounds::SECOND_HALF),
            "failures" => u64::from(bounds::REFUSALS.0),
            "failures_worked" => u64::from(bounds::REFUSALS.1),
            name => panic!("{name} is not known"),
        };
        assert_eq!(own, case["value"]);
    });
}

#[test]
fn globs() {
    each("glob", |case| {
        let matched = glob::matches(text(case, "pattern").as_bytes(), text(case, "name").as_bytes());
        assert_eq!(matched, flag(case, "matches"));
    });
}

#[test]
fn waits() {
    each("backoff", |case| {
        let attempt = u32::try_from(case["attempt"].as_u64().expect("a number")).expect("attempts");
        let wait =
            backoff(attempt, case["chance"].as_f64().expect("a chance"), case["retry_after_ms"].as_u64());
        assert_eq!(ms(wait), case["wait_ms"]);
    });
    each("token", |case| {
        let left = case["left_ms"].as_i64().expect("a number").max(0).unsigned_abs();
        assert_eq!(ms(renew_after(Duration::from_millis(left))), case["renew_after_ms"]);
    });
}

#[test]
fn retries() {
    each("repeatable", |case| {
        assert_eq!(is_repeatable(text(case, "op"), &case["members"]), flag(case, "repeatable"));
    });
    each("replies", |case| {
        let retries = u32::try_from(case["retries"].as_u64().expect("a number")).expect("few retries");
        let error = Error::from_wire(Some(&case["error"]));
        let (repeatable, renews) = (flag(case, "repeatable"), flag(case, "renews"));
        let (then, wait) = match after_reply(text(case, "op"), repeatable, renews, retries, &error) {
            AfterReply::Retry(wait) => ("retry", json!(ms(wait))),
            AfterReply::Reconnect => ("reconnect", Value::Null),
            AfterReply::Report => ("report", Value::Null),
        };
        assert_eq!(then, case["then"]);
        assert!(case["wait_ms"].is_null() || wait == case["wait_ms"], "{wait}");
    });
    each("lost", |case| {
        let then = match after_loss(text(case, "op"), flag(case, "repeatable"), flag(case, "sent")) {
            AfterLoss::Resend => "resend",
            AfterLoss::Keep => "keep",
            AfterLoss::Drop => "drop",
            AfterLoss::UnknownOutcome => "unknown_outcome",
        };
        assert_eq!(then, case["then"]);
    });
}

#[test]
fn connections() {
    each("hello", |case| {
        let error = Error::from_wire(Some(&case["error"]));
        let then = match after_hello(&error, flag(case, "renews"), flag(case, "fresh")) {
            AfterHello::Retry(at_least) => {
                let wait = backoff(1, 0.0, at_least);
                assert!(case["wait_ms"].is_null() || ms(wait) == case["wait_ms"]);
                "retry"
            }
            AfterHello::NewToken => "new_token",
            AfterHello::Close => "close",
        };
        assert_eq!(then, case["then"]);
    });
    each("close", |case| {
        let code = case["code"].as_u64().map(|code| u16::try_from(code).expect("a code"));
        let then = match after_close(code, flag(case, "renews"), "…") {
            AfterClose::Reconnect => "reconnect",
            AfterClose::NewToken => "new_token",
            AfterClose::Close(error) => {
                assert_eq!(error.code(), case["error"]);
                "close"
            }
        };
        assert_eq!(then, case["then"]);
    });
}

#[test]
fn parties() {
    each("party", |case| {
        let party: Option<PartySnapshot> = serde_json::from_value(case["party"].clone()).expect("a party");
        let event: PartyEvent = serde_json::from_value(case["event"].clone()).expect("an event");
        let (new, certain) = after_event(party.as_ref(), &event, case["me"].as_str());
        assert_eq!((json!(new), !certain), (case["gives"].clone(), flag(case, "asks")));
        if certain {
            let again = after_event(new.as_ref(), &event, case["me"].as_str());
            assert!(again.0 == new, "a duplicate changes nothing");
        }
    });
}

#[test]
fn statuses() {
    each("status", |case| {
        let mut known = BTreeMap::new();
        for step in case["steps"].as_array().expect("steps") {
            if let Some(all) = step.get("statuses") {
                let all: Vec<Status> = serde_json::from_value(all.clone()).expect("statuses");
                known = all.into_iter().map(|one| (one.user.clone(), one)).collect();
            } else if let Some(update) = step.get("status") {
                let update: StatusUpdate = serde_json::from_value(update.clone()).expect("a status");
                known.insert(update.user.clone(), update.status);
            } else {
                known.remove(text(step, "unfollowed"));
            }
        }
        let gives = case["gives"].as_object().expect("users");
        assert_eq!(known.keys().collect::<Vec<_>>(), gives.keys().collect::<Vec<_>>());
        for (user, members) in gives {
            let shown = json!(known[user]);
            for (name, value) in members.as_object().expect("members") {
                assert_eq!(&shown[name], value, "{name} of {user}");
            }
        }
    });
}

#[test]
fn presence() {
    each("presence", |case| {
        let (mut map, mut asks) = (PresenceMap::default(), 0);
        for step in case["steps"].as_array().expect("steps") {
            let applied = match (step.get("snapshot"), step.get("event")) {
                (Some(snapshot), _) => map.restore(snapshot),
                (_, Some(event)) => map.apply(event),
                // A gap.
                _ if map.mark_stale() => Applied::Missing,
                _ => Applied::Nothing,
            };
            asks += u64::from(applied == Applied::Missing);
        }
        let clients = |clients: &BTreeMap<String, crate::PresentClient>| -> Value {
            clients.iter().map(|(id, client)| (id.clone(), client.state.clone())).collect()
        };
        let gives = &case["gives"];
        if let Some(users) = gives["users"].as_object() {
            assert_eq!(map.users.keys().collect::<Vec<_>>(), users.keys().collect::<Vec<_>>());
            for (id, wanted) in users {
                let user = &map.users[id];
                let shown =
                    json!({"clients": clients(&user.clients), "name": user.name, "leaving": user.leaving});
                for (name, value) in wanted.as_object().expect("members") {
                    assert_eq!(&shown[name], value, "{name} of {id}");
                }
            }
        }
        let shown = json!({
            "anonymous": clients(&map.anonymous), "count": map.count, "version": map.version, "mode": map.mode.as_str(),
            "asks": asks,
        });
        for (name, value) in gives.as_object().expect("members").iter().filter(|(name, _)| *name != "users") {
            assert_eq!(&shown[name], value, "{name}");
        }
    });
}

#[test]
fn gaps() {
    each("gaps", |case| {
        let mut cursor = HistoryCursor::default();
        for step in case["steps"].as_array().expect("steps") {
            if let Some(reply) = step.get("reply") {
                cursor.answered(reply);
            } else if step["gap"] == true {
                cursor.jumps |= cursor.position.is_some();
            } else if step["restart"] == true {
                assert_eq!(json!(cursor.restart()), step["since"]);
            } else {
                let (then, since) = match cursor.take(ChannelPosition::of(&step["message"])) {
                    MessageTurn::Deliver => ("deliver", Value::Null),
                    MessageTurn::Drop => ("drop", Value::Null),
                    MessageTurn::Heal(known) => ("heal", json!(known)),
                };
                assert_eq!((json!(then), &since), (step["then"].clone(), &step["since"]));
            }
        }
        assert_eq!(json!(cursor.position), case["position"]);
    });
}
