//! The query parameters of every route of `/v1`. Must hold: an unknown one is refused by its name, so that a misspelt filter
//! is not taken for none.

use super::request::decode_form;
use super::routes::route_of;
use http::Uri;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::nearest;

const PAGE: &[&str] = &["after", "limit"];
/// A credential may be in the URL of any request.
const CREDENTIALS: [&str; 2] = ["token", "user"];

fn of_route(route: &str) -> &'static [&'static str] {
    match route {
        "/v1/connect" => &["session", "seq", "hello"],
        "/v1/stream" => &["session", "seq", "channel", "last", "since"],
        "/v1/channels" => &["after", "limit", "prefix", "present"],
        "/v1/channels/{}/history" | "/v1/topics/{}/events" => &["after", "before", "limit"],
        "/v1/channels/{}/presence" => &["after", "limit", "counts_only"],
        "/v1/load" => &["range"],
        "/v1/traffic" => &["channel", "only", "sender"],
        "/v1/users" => &["after", "limit", "online", "prefix"],
        "/v1/subscriptions/{}/attempts" => &["after", "limit", "failed"],
        "/v1/subscriptions/{}/events" => &["after", "limit", "wait_ms"],
        "/v1/bans"
        | "/v1/keys"
        | "/v1/parties"
        | "/v1/subscriptions"
        | "/v1/subscriptions/{}/dead-letters"
        | "/v1/topics"
        | "/v1/users/{}/followers"
        | "/v1/users/{}/following"
        | "/v1/users/{}/inbox" => PAGE,
        _ => &[],
    }
}

/// Refuses a request with a parameter that its route does not have.
pub fn check(uri: &Uri) -> Result<(), Refusal> {
    let Some(query) = uri.query() else { return Ok(()) };
    let Some(route) = route_of(uri.path()).filter(|route| route.starts_with("/v1/")) else { return Ok(()) };
    let known = || of_route(route).iter().chain(&CREDENTIALS).copied();
    let given = decode_form(query)?;
    let Some((name, _)) = given.iter().find(|(name, _)| known().all(|known| known != name)) else {
        return Ok(());
    };
    let hint = match nearest(name, known()) {
        Some(meant) => format!("; did you mean `{meant}`?"),
        None if of_route(route).is_empty() => "; it has none".to_owned(),
        None => format!("; it has {}", of_route(route).join(", ")),
    };
    let shown: String = name.chars().take(64).collect();
    Err(Refusal::new(Code::BadRequest, format!("{} has no parameter `{shown}`{hint}", uri.path())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::asset::OPENAPI;
    use serde_json::Value;
    use std::collections::{BTreeMap, BTreeSet};

    fn refused(uri: &str) -> Option<String> {
        let uri: Uri = uri.parse().unwrap();
        check(&uri).err().map(|refusal| refusal.message.into_owned())
    }

    #[test]
    fn unknown_parameter_is_refused_with_the_one_that_was_meant() {
        assert_eq!(refused("/v1/users?prefix=a&limit=2&token=t"), None);
        assert_eq!(refused("/metrics?anything=1"), None);
        for (uri, message) in [
            ("/v1/users?prefx=a", "/v1/users has no parameter `prefx`; did you mean `prefix`?"),
            ("/v1/stream?chanel=a", "/v1/stream has no parameter `chanel`; did you mean `channel`?"),
            ("/v1/load?since=1", "/v1/load has no parameter `since`; it has range"),
            ("/v1/nodes?cluster=1", "/v1/nodes has no parameter `cluster`; it has none"),
        ] {
            assert_eq!(refused(uri).as_deref(), Some(message));
        }
    }

    /// For tests of the hello that follows a connection.
    const LEFT_OUT: (&str, &str) = ("/v1/connect", "hello");

    #[test]
    fn the_document_has_the_parameters_of_the_routes_and_no_others() {
        let document: Value = serde_json::from_slice(OPENAPI[0].bytes).unwrap();
        let mut described: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let Some(route) = route_of(path).filter(|route| route.starts_with("/v1/")) else { continue };
            let parameters = described.entry(route).or_default();
            for parameter in
                methods.as_object().unwrap().values().flat_map(|one| one["parameters"].as_array()).flatten()
            {
                let place = parameter["$ref"].as_str().map(|place| place.trim_start_matches('#'));
                let parameter = place.map_or(parameter, |place| document.pointer(place).unwrap());
                if parameter["in"] == "query" {
                    parameters.insert(parameter["name"].as_str().unwrap());
                }
            }
        }
        for (route, mut parameters) in described {
            parameters.retain(|name| !CREDENTIALS.contains(name));
            parameters.extend(Some(LEFT_OUT.1).filter(|_| route == LEFT_OUT.0));
            assert_eq!(parameters, of_route(route).iter().copied().collect(), "{route}");
        }
    }
}
