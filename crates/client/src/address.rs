//! The address of a server, for WebSocket and HTTP alike.
//! Must hold: any of http, https, ws and wss is accepted; an invalid address is refused before anything is sent.

use crate::Error;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    pub secure: bool,
    pub host: String,
    pub port: u16,
    /// The path before /v1/…, for a server behind a proxy; empty, or starting with a slash and not ending with one.
    pub path: String,
}

impl ServerUrl {
    pub fn parse(url: &str) -> Result<ServerUrl, Error> {
        let wrong = |why: &str| Error::Invalid(format!("{url:?}: {why}"));
        let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        if whole.contains('#') {
            return Err(wrong("a server URL has no fragment"));
        }
        let uri: http::Uri = whole.parse().map_err(|_| wrong("this is not a URL"))?;
        let secure = match uri.scheme_str() {
            Some("http" | "ws") => false,
            Some("https" | "wss") => true,
            _ => return Err(wrong("a server URL starts with http, https, ws or wss")),
        };
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        if uri.query().is_some() || authority.contains('@') {
            return Err(wrong(
                "a server URL has only scheme, host, port and path; pass the token with `Auth`",
            ));
        }
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("the URL has no host"));
        }
        let port =
            match (uri.port_u16(), authority.ends_with(|last: char| last != ']') && uri.port().is_none()) {
                (Some(port), _) => port,
                (None, _) if authority.rsplit(']').next().is_some_and(|rest| rest.contains(':')) => {
                    return Err(wrong("the port is not a number below 65536"));
                }
                (None, _) if secure => 443,
                (None, _) => 80,
            };
        let path = uri.path().trim_end_matches('/');
        let path = path.strip_suffix("/v1/connect").unwrap_or(path).to_owned();
        Ok(ServerUrl { secure, host: host.to_owned(), port, path })
    }

    /// The value of a `Host` header.
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == if self.secure { 443 } else { 80 } { host } else { format!("{host}:{}", self.port) }
    }

    /// Path and query of a request.
    pub fn target(&self, path: &str, query: &[(&str, String)]) -> String {
        let mut target = format!("{}{path}", self.path);
        for (at, (name, value)) in query.iter().enumerate() {
            target.push(if at == 0 { '?' } else { '&' });
            target.push_str(name);
            target.push('=');
            target.push_str(&encode(value));
        }
        target
    }
}

/// Percent-encoding, for a segment of a path or a value of a query.
pub(crate) fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(byte as char),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, authority: &str, poll: &str) {
        let address = ServerUrl::parse(url).expect(url);
        assert_eq!(
            (address.authority().as_str(), address.target("/v1/poll", &[]).as_str()),
            (authority, poll),
            "{url}"
        );
    }

    #[test]
    fn one_address_serves_every_transport() {
        check("http://127.0.0.1:7400", "127.0.0.1:7400", "/v1/poll");
        check("127.0.0.1:7400", "127.0.0.1:7400", "/v1/poll");
        check("ws://127.0.0.1:7400/v1/connect", "127.0.0.1:7400", "/v1/poll");
        check("https://example.org", "example.org", "/v1/poll");
        check("wss://example.org:443/", "example.org", "/v1/poll");
        check("https://example.org:8443/tavern/", "example.org:8443", "/tavern/v1/poll");
        check("http://[::1]:7400", "[::1]:7400", "/v1/poll");
        check("http://[::1]", "[::1]", "/v1/poll");
        assert!(ServerUrl::parse("wss://example.org").expect("an address").secure);
    }

    #[test]
    fn query_values_are_escaped() {
        let address = ServerUrl::parse("http://h").expect("an address");
        let query = [("user", "Zoë & co".to_owned()), ("session", "a~b".to_owned())];
        assert_eq!(address.target("/v1/connect", &query), "/v1/connect?user=Zo%C3%AB%20%26%20co&session=a~b");
        assert_eq!(encode("game#a/ü"), "game%23a%2F%C3%BC");
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for url in [
            "ftp://h",
            "http://",
            "http://h:99999",
            "http://h:x",
            "http://h?token=x",
            "http://ann:secret@h",
            "http://h#x",
            "",
        ] {
            let refused = ServerUrl::parse(url).expect_err(url);
            assert_eq!(refused.code(), "bad_request");
        }
    }
}
