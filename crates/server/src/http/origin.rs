//! Web origins: which pages may talk to this server. Requests without an `Origin` are not from a page.

use crate::config::{Config, ServerMode};
use http::HeaderMap;
use http::header::{HOST, HeaderName, HeaderValue, ORIGIN, VARY};

/// Whether the web origin is allowed. None: the request does not come from a page.
pub fn allowed<'a>(config: &Config, headers: &'a HeaderMap) -> Option<Result<&'a HeaderValue, ()>> {
    let origin = headers.get(ORIGIN)?;
    let text = origin.to_str().unwrap_or_default();
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let dev = config.mode == ServerMode::Dev;
    // In dev mode a user name is enough to log in, so DNS rebinding must not work.
    let same = !dev && text.split_once("://").is_some_and(|(_, rest)| !host.is_empty() && rest == host);
    let listed = config.origins.iter().any(|allowed| allowed == "*" || allowed == text);
    // A page that was opened from disk has the origin `null`.
    let in_dev = dev && (is_loopback(text) || text == "null");
    Some(if same || listed || in_dev { Ok(origin) } else { Err(()) })
}

/// Whether a page of another site caused this request without an `Origin`: by an image, a script or a link. In dev mode
/// there may be nothing else that stops it. What everybody may read is left to them.
pub fn is_cross_site(config: &Config, headers: &HeaderMap, path: &str) -> bool {
    let site = headers.get("sec-fetch-site");
    config.mode == ServerMode::Dev
        && site.is_some_and(|site| site.as_bytes().eq_ignore_ascii_case(b"cross-site"))
        && !headers.contains_key(ORIGIN)
        && !is_public(path)
}

fn is_public(path: &str) -> bool {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
    ["/", "/client.js", "/openapi.json", "/docs", "/demo"].contains(&path)
        || ["/assets", "/docs", "/demo"].into_iter().any(below)
}

/// Whether the Host is this server. In dev mode a user name is enough to log in, so a foreign host name that points here
/// is refused: it is DNS rebinding by a web page.
pub fn host_allowed(config: &Config, headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    config.mode != ServerMode::Dev || host.to_str().is_ok_and(is_loopback_host)
}

fn is_loopback(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, rest)| is_loopback_host(rest))
}

fn is_loopback_host(rest: &str) -> bool {
    let host = match rest.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => rest.split(':').next().unwrap_or_default(),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The headers that let an allowed page read the answer.
pub fn add_cors(headers: &mut HeaderMap, origin: &HeaderValue) {
    let set = |headers: &mut HeaderMap, name: &'static str, value: HeaderValue| {
        headers.insert(HeaderName::from_static(name), value);
    };
    set(headers, "access-control-allow-origin", origin.clone());
    headers.append(VARY, HeaderValue::from_static("origin"));
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS");
    set(headers, "access-control-allow-methods", methods);
    let allowed = HeaderValue::from_static(
        "authorization, content-type, idempotency-key, last-event-id, tavern-session",
    );
    set(headers, "access-control-allow-headers", allowed);
    set(headers, "access-control-max-age", HeaderValue::from_static("600"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_allowed_in_every_spelling() {
        for origin in
            ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:8080", "http://127.1.2.3:1"]
        {
            assert!(is_loopback(origin), "{origin}");
        }
        for origin in
            ["http://localhost.evil.example", "http://10.0.0.1", "null", "http://127.0.0.1.evil", ""]
        {
            assert!(!is_loopback(origin), "{origin}");
        }
    }

    #[test]
    fn only_pages_are_public() {
        for path in ["/", "/docs", "/docs/a/b", "/demo/x", "/assets/a.js", "/client.js"] {
            assert!(is_public(path), "{path}");
        }
        for path in ["/v1/users", "/party", "/metrics", "/docsx", "/v1/command", "/demo.js", ""] {
            assert!(!is_public(path), "{path}");
        }
    }
}
