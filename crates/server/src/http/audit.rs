//! The audit trail: every administrative action over HTTP, with the key that did it, where it came from and its outcome, as a
//! line of the log and an event of the topic `tavern.audit`.
//! Must hold: an action is recorded after it is done, whether it was refused or not; requests without a valid key are not.
//! Reading private data is recorded once in a while for each key and user.

use super::api::HttpApi;
use super::body::HttpResponse;
use super::request::{Query, decode};
use super::server::ClientAddress;
use crate::audit;
use http::Method;
use http::request::Parts;
use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The method, the path and the name of each administrative action. `{}` stands for one segment, and is the target.
const ACTIONS: [(&str, &str, &str); 23] = [
    ("DELETE", "channels/{}/history", "history.clear"),
    ("POST", "dashboard/links", "dashboard.link"),
    ("POST", "keys", "key.create"),
    ("DELETE", "keys/{}", "key.revoke"),
    ("PUT", "topics/{}", "topic.assign"),
    ("DELETE", "topics/{}", "topic.delete"),
    ("PUT", "subscriptions/{}", "subscription.put"),
    ("DELETE", "subscriptions/{}", "subscription.delete"),
    ("POST", "subscriptions/{}/enable", "subscription.enable"),
    ("POST", "subscriptions/{}/disable", "subscription.disable"),
    ("POST", "subscriptions/{}/replay", "subscription.replay"),
    ("POST", "subscriptions/{}/rotate", "subscription.rotate"),
    ("POST", "subscriptions/{}/test", "subscription.test"),
    ("POST", "subscriptions/{}/dead-letters/retry", "subscription.retry"),
    ("DELETE", "users/{}", "user.erase"),
    ("POST", "users/{}/disconnect", "user.disconnect"),
    ("POST", "users/{}/subscribe", "user.subscribe"),
    ("POST", "users/{}/unsubscribe", "user.unsubscribe"),
    ("PUT", "users/{}/ban", "user.ban"),
    ("DELETE", "users/{}/ban", "user.unban"),
    ("PUT", "users/{}/visibility", "user.visibility"),
    ("GET", "users/{}/inbox", "user.read_inbox"),
    ("GET", WATCHING, "traffic.watch"),
];

/// Each opening is recorded, with the channels that were asked for.
const WATCHING: &str = "traffic";

/// How long reading the private data of one user with one key is not recorded again: an open page polls it.
const READ_AGAIN: Duration = Duration::from_secs(600);
/// Reads that are remembered. Beyond it the oldest are forgotten, and recorded again.
const READS_MAX: usize = 10_000;

/// Reads of private data that are in the audit trail already.
#[derive(Default)]
pub struct RecordedReads(Mutex<ReadTable>);

#[derive(Default)]
struct ReadTable {
    known: HashSet<Arc<str>>,
    by_age: VecDeque<(Instant, Arc<str>)>,
}

impl RecordedReads {
    /// Whether this read must be recorded.
    fn is_new(&self, read: &str, now: Instant) -> bool {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((at, _)) = reads.by_age.front()
            && (now.saturating_duration_since(*at) >= READ_AGAIN || reads.by_age.len() >= READS_MAX)
        {
            if let Some((_, oldest)) = reads.by_age.pop_front() {
                reads.known.remove(&oldest);
            }
        }
        let read: Arc<str> = read.into();
        let is_new = reads.known.insert(read.clone());
        if is_new {
            reads.by_age.push_back((now, read));
        }
        is_new
    }
}

/// Records an administrative action that was answered.
pub async fn record(api: &HttpApi, parts: &Parts, key: &Arc<str>, answer: &HttpResponse) {
    let path = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
    let Some((action, target)) = action_of(parts.method.as_str(), path) else { return };
    if parts.method == Method::GET && path != WATCHING {
        let read = format!("{key}\n{}\n{path}", answer.status().as_u16());
        if !api.recorded_reads.is_new(&read, Instant::now()) {
            return;
        }
    }
    let from = parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string());
    let target = match path {
        WATCHING => Query::of(parts).ok().and_then(|query| query.one("channel").ok()?.map(str::to_owned)),
        _ => decode(target, false).ok(),
    };
    let target = target.unwrap_or_default();
    let line = audit::line(action, &target, key, from, answer.status().as_u16(), &api.node.settings.node);
    tracing::info!(action, target, key = &**key, from = line.from, status = line.status, "audit");
    let commit = audit::commit(&line, api.now());
    match api.store.commit(commit).await {
        Ok(_) => api.topics.wakeups.published(audit::TOPIC.into()),
        Err(error) => tracing::warn!(%error, "cannot store an audit event"),
    }
}

fn action_of<'a>(method: &str, path: &'a str) -> Option<(&'static str, &'a str)> {
    ACTIONS.iter().find_map(|(of, route, action)| {
        let target = matches(route, path).filter(|_| *of == method)?;
        Some((*action, target))
    })
}

/// The segment at `{}`; empty if the route has none.
fn matches<'a>(route: &str, path: &'a str) -> Option<&'a str> {
    let mut target = "";
    let mut segments = path.split('/');
    for part in route.split('/') {
        match (part, segments.next()?) {
            ("{}", segment) => target = segment,
            (part, segment) if part == segment => {}
            _ => return None,
        }
    }
    segments.next().is_none().then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn administrative_actions_are_found_by_method_and_path() {
        for (method, path, expected) in [
            ("POST", "users/ann/disconnect", Some(("user.disconnect", "ann"))),
            ("GET", "users/ann/disconnect", None),
            ("DELETE", "users/ann", Some(("user.erase", "ann"))),
            ("GET", "users/ann", None),
            ("POST", "keys", Some(("key.create", ""))),
            ("DELETE", "keys/k1", Some(("key.revoke", "k1"))),
            ("DELETE", "keys/k1/x", None),
            ("POST", "channels/game%231/messages", None),
        ] {
            assert_eq!(action_of(method, path), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_read_is_recorded_once_in_ten_minutes_for_each_key_and_user() {
        let (reads, now) = (RecordedReads::default(), Instant::now());
        assert!(reads.is_new("k1 ann", now) && !reads.is_new("k1 ann", now + READ_AGAIN / 2));
        assert!(reads.is_new("k2 ann", now) && reads.is_new("k1 bob", now));
        assert!(reads.is_new("k1 ann", now + READ_AGAIN));
        for number in 0..=READS_MAX {
            reads.is_new(&number.to_string(), now + READ_AGAIN);
        }
        let table = reads.0.lock().unwrap();
        assert!(table.by_age.len() <= READS_MAX && table.known.len() == table.by_age.len());
    }

    #[test]
    fn every_action_is_a_route() {
        for (method, path, _) in ACTIONS {
            let route = format!("/v1/{path}");
            let found = super::super::routes::ROUTES.iter().find(|(known, _)| *known == route);
            assert!(found.is_some_and(|(_, methods)| methods.contains(&method)), "{method} {route}");
        }
    }
}
