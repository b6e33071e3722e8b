//! Every path of the HTTP interface with its methods. A path that is not here does not exist (404); another method is
//! refused with the list of these (405). `HEAD` works where `GET` does.

use super::body::{HttpResponse, refusal};
use http::header::{ALLOW, HeaderValue};
use http::{Extensions, Method};
use tavern_wire::error::{Code, Refusal};

/// `{}` stands for one segment, a final `*` for any rest.
pub const ROUTES: &[(&str, &[&str])] = &[
    ("/", &["GET"]),
    ("/app/{}", &["GET"]),
    ("/apps/*", &["GET", "POST"]),
    ("/assets/*", &["GET"]),
    ("/client.js", &["GET"]),
    ("/demo", &["GET"]),
    ("/demo/*", &["GET"]),
    ("/docs", &["GET"]),
    ("/docs.md", &["GET"]),
    ("/docs/*", &["GET"]),
    ("/engine.io/", &["GET", "POST"]),
    ("/healthz", &["GET"]),
    ("/livez", &["GET"]),
    ("/llms.txt", &["GET"]),
    ("/metrics", &["GET"]),
    ("/openapi.json", &["GET"]),
    ("/party", &["POST"]),
    ("/party/ping", &["GET", "POST"]),
    ("/readyz", &["GET"]),
    ("/v1/bans", &["GET"]),
    ("/v1/broadcast", &["POST"]),
    ("/v1/channels", &["GET"]),
    ("/v1/channels/{}/history", &["GET", "DELETE"]),
    ("/v1/channels/{}/messages", &["POST"]),
    ("/v1/channels/{}/presence", &["GET"]),
    ("/v1/channels/{}/presence/{}", &["PUT", "DELETE"]),
    ("/v1/command", &["POST"]),
    ("/v1/connect", &["GET"]),
    ("/v1/dashboard/links", &["POST"]),
    ("/v1/dashboard/sign-in", &["POST"]),
    ("/v1/keys", &["GET", "POST"]),
    ("/v1/keys/{}", &["DELETE"]),
    ("/v1/load", &["GET"]),
    ("/v1/nodes", &["GET"]),
    ("/v1/overview", &["GET"]),
    ("/v1/parties", &["GET"]),
    ("/v1/parties/{}", &["GET"]),
    ("/v1/parties/{}/go/{}", &["POST"]),
    ("/v1/poll", &["POST"]),
    ("/v1/publish", &["POST"]),
    ("/v1/sessions/{}", &["GET"]),
    ("/v1/settings", &["GET"]),
    ("/v1/stats", &["GET"]),
    ("/v1/stream", &["GET"]),
    ("/v1/subscriptions", &["GET"]),
    ("/v1/subscriptions/{}", &["GET", "PUT", "DELETE"]),
    ("/v1/subscriptions/{}/attempts", &["GET"]),
    ("/v1/subscriptions/{}/attempts/{}", &["GET"]),
    ("/v1/subscriptions/{}/dead-letters", &["GET"]),
    ("/v1/subscriptions/{}/dead-letters/retry", &["POST"]),
    ("/v1/subscriptions/{}/disable", &["POST"]),
    ("/v1/subscriptions/{}/enable", &["POST"]),
    ("/v1/subscriptions/{}/events", &["GET"]),
    ("/v1/subscriptions/{}/replay", &["POST"]),
    ("/v1/subscriptions/{}/rotate", &["POST"]),
    ("/v1/subscriptions/{}/test", &["POST"]),
    ("/v1/topics", &["GET"]),
    ("/v1/topics/{}", &["GET", "PUT", "DELETE"]),
    ("/v1/topics/{}/events", &["GET", "POST"]),
    ("/v1/traffic", &["GET"]),
    ("/v1/users", &["GET"]),
    ("/v1/users/{}", &["GET", "DELETE"]),
    ("/v1/users/{}/ban", &["GET", "PUT", "DELETE"]),
    ("/v1/users/{}/disconnect", &["POST"]),
    ("/v1/users/{}/followers", &["GET"]),
    ("/v1/users/{}/following", &["GET"]),
    ("/v1/users/{}/following/{}", &["PUT", "DELETE"]),
    ("/v1/users/{}/inbox", &["GET"]),
    ("/v1/users/{}/messages", &["POST"]),
    ("/v1/users/{}/party", &["GET", "POST"]),
    ("/v1/users/{}/sessions", &["GET"]),
    ("/v1/users/{}/subscribe", &["POST"]),
    ("/v1/users/{}/unsubscribe", &["POST"]),
    ("/v1/users/{}/visibility", &["PUT"]),
    ("/v1/whoami", &["GET"]),
];

/// Which of these paths an address serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerSide {
    /// There is one address for everything.
    Both,
    /// Everything but what is for operators.
    Public,
    /// `admin_listen`: everything.
    Admin,
}

/// What is for operators: the dashboard, the metrics, and the API about the server itself. A prefix ends with `/`.
const OPERATORS: [&str; 11] = [
    "/",
    "/assets/",
    "/metrics",
    "/v1/dashboard/",
    "/v1/keys",
    "/v1/keys/",
    "/v1/load",
    "/v1/nodes",
    "/v1/overview",
    "/v1/settings",
    "/v1/traffic",
];

impl ListenerSide {
    pub fn serves(self, path: &str) -> bool {
        let is_for_operators = || {
            OPERATORS.iter().any(|known| match known.strip_suffix('/') {
                Some("") | None => path == *known,
                Some(_) => path.starts_with(known),
            })
        };
        self != ListenerSide::Public || !is_for_operators()
    }
}

/// Marks a `HEAD` request, which is routed as a `GET`. A handler that waits for events or acknowledges them answers it
/// without doing so.
#[derive(Clone, Copy)]
struct HeadOnly;

pub fn is_head(extensions: &Extensions) -> bool {
    extensions.get::<HeadOnly>().is_some()
}

/// The refusal of a request without a route; None if it has one. Makes a `GET` of a `HEAD`.
pub fn refuse<B>(request: &mut http::Request<B>) -> Option<HttpResponse> {
    let (method, path) = (request.method(), request.uri().path());
    let Some(methods) = methods_of(path) else {
        let message = format!("no route for {method} {path}{}", hint(path));
        return Some(refusal(&Refusal::new(Code::NotFound, message)));
    };
    if methods.contains(&method.as_str()) {
        return None;
    }
    if method == Method::HEAD && methods.contains(&"GET") {
        *request.method_mut() = Method::GET;
        request.extensions_mut().insert(HeadOnly);
        return None;
    }
    let allowed = allow(methods);
    let message = format!("{path} has no method {method}; it has {allowed}");
    let mut answer = refusal(&Refusal::new(Code::MethodNotAllowed, message));
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        answer.headers_mut().insert(ALLOW, allowed);
    }
    Some(answer)
}

/// What a client probably meant. One that does not encode the `#` of a channel sends only the part before it.
fn hint(path: &str) -> &'static str {
    if matches!(path, "/ws" | "/websocket" | "/socket" | "/connect") {
        return "; the WebSocket is at /v1/connect";
    }
    if path == "/socket.io" || path.starts_with("/socket.io/") {
        return "; Socket.IO is not spoken here: use a WebSocket at /v1/connect, or a client library";
    }
    let cut = path.strip_prefix("/v1/channels/").is_some_and(|rest| !rest.is_empty() && !rest.contains('/'));
    match cut {
        true => "; if a # was lost: encode it as %23, or write game:1 for game#1",
        false => "",
    }
}

/// The methods of a path, as the `Allow` header lists them.
fn allow(methods: &[&str]) -> String {
    let head = methods.contains(&"GET").then_some("HEAD");
    let all: Vec<&str> = methods.iter().copied().chain(head).chain(["OPTIONS"]).collect();
    all.join(", ")
}

fn methods_of(path: &str) -> Option<&'static [&'static str]> {
    ROUTES.iter().find(|(route, _)| matches(route, path)).map(|(_, methods)| *methods)
}

/// The route of a path, with `{}` for each name in it.
pub fn route_of(path: &str) -> Option<&'static str> {
    ROUTES.iter().find(|(route, _)| matches(route, path)).map(|(route, _)| *route)
}

fn matches(route: &str, path: &str) -> bool {
    let mut segments = path.split('/');
    for part in route.split('/') {
        match (part, segments.next()) {
            ("*", rest) => return rest.is_some(),
            ("{}", Some(_)) => {}
            (part, Some(segment)) if part == segment => {}
            _ => return false,
        }
    }
    segments.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, status: u16, allowed: Option<&str>) {
        let mut request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        let answer = refuse(&mut request);
        assert_eq!(answer.as_ref().map_or(200, |answer| answer.status().as_u16()), status, "{method} {path}");
        let shown = answer.as_ref().and_then(|answer| answer.headers().get(ALLOW)?.to_str().ok());
        assert_eq!(shown, allowed, "{method} {path}");
    }

    #[test]
    fn a_method_without_a_route_is_refused_with_those_that_have_one() {
        check("GET", "/livez", 200, None);
        check("HEAD", "/livez", 200, None);
        check("POST", "/livez", 405, Some("GET, HEAD, OPTIONS"));
        check("HEAD", "/v1/poll", 405, Some("POST, OPTIONS"));
        check("PATCH", "/v1/topics/a%2Fb", 405, Some("GET, PUT, DELETE, HEAD, OPTIONS"));
        check("GET", "/docs/a/b", 200, None);
        check("GET", "/v1/users//party", 200, None);
    }

    #[test]
    fn a_path_without_a_route_is_not_found() {
        for path in
            ["/livez/", "/v1", "/v1/", "/v1/users/ann/nothing", "/v1/topics/a/b/c", "/v2/users", "/docsx"]
        {
            check("GET", path, 404, None);
        }
    }

    #[test]
    fn a_path_of_other_servers_gets_a_hint() {
        for path in ["/ws", "/websocket", "/socket.io/"] {
            assert!(hint(path).contains("/v1/connect"), "{path}");
        }
        assert_eq!(hint("/v1/nothing"), "");
    }

    #[test]
    fn what_is_for_operators_is_on_the_admin_address_alone() {
        for path in ["/", "/assets/app.js", "/metrics", "/v1/overview", "/v1/load", "/v1/keys/k1"] {
            assert!(!ListenerSide::Public.serves(path), "{path}");
            assert!(ListenerSide::Admin.serves(path) && ListenerSide::Both.serves(path), "{path}");
        }
        for path in ["/readyz", "/v1/connect", "/v1/users", "/docs", "/client.js", "/v1/nodesx", "/metricsx"]
        {
            assert!(ListenerSide::Public.serves(path), "{path}");
        }
    }

    #[test]
    fn head_is_routed_as_get() {
        let mut request = http::Request::builder().method("HEAD").uri("/v1/nodes").body(()).unwrap();
        assert!(refuse(&mut request).is_none());
        assert!(request.method() == Method::GET && is_head(request.extensions()));
    }
}
