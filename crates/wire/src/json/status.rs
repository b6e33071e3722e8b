//! Users as JSON: their status, and the events for followers.

use super::encode::{number, string};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Activity, Status, StatusUpdate};

/// A user and their status.
#[derive(Clone, Debug)]
pub struct UserStatusView<'a> {
    pub user: &'a str,
    pub name: Option<&'a str>,
    pub status: &'a Status,
}

pub fn status(out: &mut Vec<u8>, doing: &UserStatusView<'_>) {
    let Status { online, leaving, activities, channels, last_seen } = doing.status;
    out.extend_from_slice(b"{\"user\":");
    string(out, doing.user);
    out.extend_from_slice(b",\"name\":");
    optional(out, doing.name, string);
    out.extend_from_slice(format!(",\"online\":{online},\"leaving\":{leaving},\"activities\":").as_bytes());
    list(out, activities, activity);
    out.extend_from_slice(b",\"channels\":");
    list(out, channels, |out, channel: &Arc<str>| string(out, channel));
    out.extend_from_slice(b",\"last_seen\":");
    optional(out, *last_seen, |out, seen: Time| number(out, seen.ms()));
    out.push(b'}');
}

fn activity(out: &mut Vec<u8>, activity: &Activity) {
    out.extend_from_slice(b"{\"activity\":");
    string(out, &activity.activity);
    out.extend_from_slice(b",\"channel\":");
    string(out, &activity.channel);
    out.extend_from_slice(b",\"since\":");
    number(out, activity.since.ms());
    out.push(b'}');
}

/// The tail of a `status` event.
pub fn status_tail(out: &mut Vec<u8>, user: &str, name: Option<&str>, status_update: &StatusUpdate) {
    out.extend_from_slice(b",\"event\":\"status\",\"user\":");
    string(out, user);
    out.extend_from_slice(b",\"status\":");
    status(out, &UserStatusView { user, name, status: &status_update.status });
    out.extend_from_slice(b",\"change\":");
    string(out, status_update.cause.as_str());
    out.extend_from_slice(b",\"channel\":");
    optional(out, status_update.channel.as_deref(), string);
    out.push(b'}');
}

/// The tail of a `statuses` event.
pub fn statuses_tail(out: &mut Vec<u8>, people: &[UserStatusView<'_>]) {
    out.extend_from_slice(b",\"event\":\"statuses\",\"statuses\":");
    list(out, people, status);
    out.push(b'}');
}

/// The reply to `status`.
pub fn statuses(out: &mut Vec<u8>, people: &[UserStatusView<'_>]) {
    out.extend_from_slice(b"{\"statuses\":");
    list(out, people, status);
    out.push(b'}');
}

/// The reply to `following` and `followers`.
pub fn users<'a>(out: &mut Vec<u8>, users: &[&'a str], next: Option<&'a str>) {
    out.extend_from_slice(b"{\"users\":");
    list(out, users, |out, user: &&str| string(out, user));
    if let Some(next) = next {
        out.extend_from_slice(b",\"next\":");
        string(out, next);
    }
    out.push(b'}');
}

fn list<T>(out: &mut Vec<u8>, items: &[T], each: impl Fn(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}

fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::presence::StatusCause;

    #[test]
    fn a_status_event_has_the_whole_status() {
        let activity = Activity { activity: "playing".into(), channel: "game#A".into(), since: Time(5) };
        let status = Status {
            online: true,
            leaving: false,
            activities: vec![activity],
            channels: vec!["game#A".into()],
            last_seen: Some(Time(3)),
        };
        let status_update = StatusUpdate {
            status,
            cause: StatusCause::Word("started_game".into()),
            channel: Some("game#A".into()),
        };
        let mut out = Vec::new();
        status_tail(&mut out, "ann", Some("Ann"), &status_update);
        let expected = r#","event":"status","user":"ann","status":{"user":"ann","name":"Ann","online":true,"leaving":false,"activities":[{"activity":"playing","channel":"game#A","since":5}],"channels":["game#A"],"last_seen":3},"change":"started_game","channel":"game#A"}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_user_who_was_never_seen_has_an_empty_status() {
        let nothing = Status::default();
        let mut out = Vec::new();
        statuses(&mut out, &[UserStatusView { user: "bob", name: None, status: &nothing }]);
        let expected = r#"{"statuses":[{"user":"bob","name":null,"online":false,"leaving":false,"activities":[],"channels":[],"last_seen":null}]}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
