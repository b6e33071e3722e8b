//! The audit trail: every administrative action over HTTP, with the key that did it, where it came from and its outcome, as a
//! line of the log and an event of the topic `tavern.audit`.
//! Must hold: an action is recorded after it is done, whether it was refused or not; requests without a valid key are not.

use super::api::HttpApi;
use super::body::HttpResponse;
use super::request::{self, Query, decode};
use super::server::ClientAddress;
use crate::audit;
use http::request::Parts;

/// The method, the path and the name of each administrative action. `{}` stands for one segment, and is the target.
const ACTIONS: [(&str, &str, &str); 21] = [
    ("DELETE", "channels/{}/history", "history.clear"),
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
];

/// Records an administrative action that was answered.
pub async fn record(api: &HttpApi, parts: &Parts, answer: &HttpResponse) {
    let path = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
    let Some((action, target)) = action_of(parts.method.as_str(), path) else { return };
    let Ok(query) = Query::of(parts) else { return };
    let Ok(Some(identity)) = request::identity(api, parts, &query).await else { return };
    let Some(key) = identity.key else { return };
    let from = parts.extensions.get::<ClientAddress>().map(|address| address.0.to_string());
    let target = decode(target, false).unwrap_or_default();
    let line = audit::line(action, &target, &key, from, answer.status().as_u16(), &api.node.settings.node);
    tracing::info!(action, target, key = &*key, from = line.from, status = line.status, "audit");
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
    fn every_action_is_a_route() {
        for (method, path, _) in ACTIONS {
            let route = format!("/v1/{path}");
            let found = super::super::routes::ROUTES.iter().find(|(known, _)| *known == route);
            assert!(found.is_some_and(|(_, methods)| methods.contains(&method)), "{method} {route}");
        }
    }
}
