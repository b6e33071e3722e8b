//! Users of the dashboard whom a proxy has authenticated: it names them in a header, and they have the configured scopes.
//! Must hold: the header counts only on a connection from a trusted proxy; a page of another site can neither change anything nor
//! read; a session of a client is never opened this way.

use super::api::HttpApi;
use super::server::FromProxy;
use http::header::{HOST, HeaderMap, ORIGIN};
use http::request::Parts;
use http::{Method, header::HeaderName};
use std::sync::Arc;
use tavern_domain::{Identity, Rights, Scope, Time};
use tavern_wire::error::{Code, Refusal};

/// The longest name: with its prefix it can own topics.
const NAME_BYTES: usize = 48;

/// None: no trusted proxy names a user.
pub fn identity(api: &HttpApi, parts: &Parts) -> Result<Option<Identity>, Refusal> {
    let settings = &api.config.dashboard;
    let Ok(header) = HeaderName::try_from(settings.proxy_header.as_str()) else { return Ok(None) };
    if parts.extensions.get::<FromProxy>().is_none() {
        return Ok(None);
    }
    let mut named = parts.headers.get_all(header).iter();
    let (Some(name), None) = (named.next(), named.next()) else { return Ok(None) };
    let name = name.to_str().unwrap_or_default();
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return refused("the proxy names a user with other than 1 to 48 visible ASCII characters");
    }
    if !is_same_origin(&parts.method, &parts.headers) {
        return refused(
            "requests of users whom a proxy has authenticated must come from a page of this server",
        );
    }
    // Checked with the configuration.
    let scopes = settings.proxy_scopes.iter().filter_map(|scope| Scope::parse(scope)).collect();
    let key: Arc<str> = format!("proxy:{name}").into();
    Ok(Some(Identity {
        user: None,
        name: None,
        rights: Arc::new(Rights { grants: Vec::new() }),
        expires: Time::NEVER,
        issued_s: 0,
        unlimited: true,
        scopes,
        key: Some(key),
    }))
}

fn refused(message: &'static str) -> Result<Option<Identity>, Refusal> {
    Err(Refusal::new(Code::NotAllowed, message))
}

/// What browsers say about the page behind a request. Not all say it when they read, or when the proxy is not on TLS.
fn is_same_origin(method: &Method, headers: &HeaderMap) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text(&HeaderName::from_static("sec-fetch-site")) {
        return site == "same-origin";
    }
    match text(&ORIGIN) {
        Some(origin) => origin.split_once("://").is_some_and(|(_, host)| text(&HOST) == Some(host)),
        None => matches!(*method, Method::GET | Method::HEAD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pages_of_this_server_change_anything() {
        let check = |method: Method, pairs: &[(&'static str, &'static str)], expected: bool| {
            let headers = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_static(value)));
            assert_eq!(is_same_origin(&method, &headers.collect()), expected, "{method} {pairs:?}");
        };
        let host = ("host", "tavern.example");
        check(Method::POST, &[host, ("sec-fetch-site", "same-origin")], true);
        check(Method::POST, &[host, ("origin", "https://tavern.example")], true);
        check(Method::POST, &[host], false);
        check(Method::GET, &[host], true);
        for other in ["cross-site", "same-site", "none"] {
            check(Method::POST, &[host, ("sec-fetch-site", other)], false);
            check(Method::GET, &[host, ("sec-fetch-site", other)], false);
        }
        for other in ["https://evil.example", "null", "https://tavern.example.evil.example"] {
            check(Method::DELETE, &[host, ("origin", other)], false);
            check(Method::GET, &[host, ("origin", other)], false);
        }
    }
}
