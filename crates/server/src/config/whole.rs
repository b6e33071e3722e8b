//! The checks that one key alone cannot show, and the values whose grammar is more than a type: secrets, origins,
//! proxies, TLS, URLs. Every message says what to write instead.

use super::draft::Draft;
use super::layer::Value;
use super::{Cidr, Config, ConfigError, Mode, Origin, Secret, Tls};
use serde_json::json;
use std::path::PathBuf;

/// HS256 wants a key as long as its hash.
const SECRET_BYTES: usize = 32;
const PREFIX_BYTES: usize = 32;
const LIST_ITEMS: usize = 1_024;
const NO_SECRET: &str = "serve needs a secret to check tokens with, at least 32 bytes: make one with \
    `openssl rand -hex 32` and set TAVERN_SECRET, --secret or `secret` in tavern.toml; \
    to try things out without one: `tavern dev`";

impl Draft {
    pub fn secret(&mut self, name: &str) -> Option<Secret> {
        let text = self.text(name);
        if text.is_empty() && self.given(name).is_some() {
            self.fail(name, format!("{name} is empty"));
        }
        (!text.is_empty()).then(|| Secret::new(text))
    }

    pub fn threads(&mut self) -> usize {
        match self.given("threads").cloned() {
            Some((Value::Integer(threads), _)) if threads > 0 => self.size("threads"),
            _ => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                let threads = (cores * 3 / 4).max(1);
                let origin = Origin::Derived(format!("three quarters of {cores} cores"));
                self.show("threads", json!(threads), origin);
                threads
            }
        }
    }

    pub fn origins(&mut self) -> Vec<String> {
        let mut origins = Vec::new();
        for written in self.list("origins").into_iter().take(LIST_ITEMS) {
            match web_origin(&written) {
                Some(origin) => origins.push(origin),
                None => {
                    let message = format!(
                        "origins: {written:?} is no web origin: write scheme://host or scheme://host:port, \
                         without a path, or \"*\""
                    );
                    self.fail("origins", message);
                }
            }
        }
        origins
    }

    pub fn trusted_proxies(&mut self) -> Vec<Cidr> {
        let mut proxies = Vec::new();
        for written in self.list("trusted_proxies").into_iter().take(LIST_ITEMS) {
            match Cidr::parse(&written) {
                Some(range) => proxies.push(range),
                None => {
                    let message = format!(
                        "trusted_proxies: {written:?} is no address range: write 10.0.0.0/8 or 127.0.0.1, \
                         with no bits after the mask"
                    );
                    self.fail("trusted_proxies", message);
                }
            }
        }
        proxies
    }

    pub fn tls(&mut self) -> Option<Tls> {
        let (cert, key) = (self.text("tls_cert"), self.text("tls_key"));
        match (cert.is_empty(), key.is_empty()) {
            (true, true) => None,
            (false, false) => Some(Tls { cert: PathBuf::from(cert), key: PathBuf::from(key) }),
            (false, true) => {
                self.fail("tls_cert", "tls_cert is given without tls_key: give both or none");
                None
            }
            (true, false) => {
                self.fail("tls_key", "tls_key is given without tls_cert: give both or none");
                None
            }
        }
    }

    pub fn prefix(&mut self) -> String {
        let prefix = self.text("prefix");
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
        if !(1..=PREFIX_BYTES).contains(&prefix.len()) || !prefix.bytes().all(good) {
            self.fail("prefix", format!("prefix = {prefix:?}: 1 to {PREFIX_BYTES} of a-z, 0-9, `_` and `-`"));
        }
        prefix
    }

    pub fn log_level(&mut self) -> String {
        let level = self.text("log_level");
        if tracing_subscriber::EnvFilter::builder().parse(&level).is_err() {
            let message =
                format!("log_level = {level:?}: write error, warn, info, debug, trace, or info,tavern=debug");
            self.fail("log_level", message);
        }
        level
    }

    /// An http or https address; none when empty.
    pub fn url(&mut self, name: &str) -> Option<String> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let uri = text.parse::<http::Uri>().ok();
        let good = uri.is_some_and(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
        });
        if !good {
            self.fail(name, format!("{name} must be an http:// or https:// address"));
        }
        Some(text)
    }

    pub fn check_whole(&mut self, config: &Config, for_server: bool) {
        if for_server {
            self.check_bus(&config.store);
            self.check_server(config);
        }
        self.check_order(config);
        self.check_reserved();
    }

    fn check_server(&mut self, config: &Config) {
        match &config.secret {
            // With public keys alone tokens can be checked too.
            None if config.mode == Mode::Serve && config.token_keys.is_empty() => {
                self.errors.push(ConfigError::general(NO_SECRET));
            }
            Some(secret) if config.mode == Mode::Serve && secret.expose().len() < SECRET_BYTES => {
                let found = secret.expose().len();
                let message = format!(
                    "secret has {found} bytes and needs at least {SECRET_BYTES}: make one with `openssl rand -hex 32`"
                );
                self.fail("secret", message);
            }
            _ => {}
        }
        if let Some(key) = &config.admin_key
            && key.expose().chars().any(|c| c.is_whitespace() || c == ':')
        {
            self.fail("admin_key", "admin_key holds a space or a colon, which a header cannot carry");
        }
    }

    /// Pairs of values of which one must be the smaller.
    fn check_order(&mut self, config: &Config) {
        let Config { events, presence, nodes, limits, .. } = config;
        let pairs = [
            ("events.low_bytes", events.low_bytes, "events.max_bytes", events.max_bytes, true),
            (
                "events.backoff_min_ms",
                events.backoff_min_ms,
                "events.backoff_max_ms",
                events.backoff_max_ms,
                false,
            ),
            ("presence.coalesce_at", presence.coalesce_at, "presence.counts_at", presence.counts_at, false),
            ("nodes.heartbeat_ms", nodes.heartbeat_ms * 2, "nodes.lease_ms", nodes.lease_ms, false),
            (
                "limits.message_bytes",
                limits.message_bytes as u64,
                "limits.json_frame_bytes",
                limits.json_frame_bytes as u64,
                true,
            ),
            (
                "limits.message_bytes",
                limits.message_bytes as u64,
                "limits.mailbox_bytes",
                limits.mailbox_bytes as u64,
                false,
            ),
            (
                "limits.mailbox_bytes",
                limits.mailbox_bytes as u64,
                "limits.mailbox_total_bytes",
                limits.mailbox_total_bytes as u64,
                false,
            ),
        ];
        for (small, low, large, high, strictly) in pairs {
            if low < high || (low == high && !strictly) {
                continue;
            }
            let (what, word) = match (small, strictly) {
                ("nodes.heartbeat_ms", _) => ("twice nodes.heartbeat_ms", "at most"),
                (_, true) => (small, "below"),
                (_, false) => (small, "at most"),
            };
            let message = format!("{what} ({low}) must be {word} {large} ({high})");
            // Told at the one that somebody wrote.
            self.fail(if self.given(small).is_some() { small } else { large }, message);
        }
    }

    fn check_reserved(&mut self) {
        for kind in ["user", "party", "tavern"] {
            let name = format!("kinds.{kind}.allow");
            let Some((Value::List(verbs), _)) = self.given(&name) else { continue };
            if verbs.iter().any(|verb| verb == "publish" || verb == "join") {
                let message =
                    format!("{name}: nobody publishes to {kind}#… or joins it by name; the server does");
                self.fail(&name, message);
            }
        }
    }
}

/// An origin as browsers write it: lower case, without the port that its scheme implies.
fn web_origin(written: &str) -> Option<String> {
    if written == "*" {
        return Some(written.to_owned());
    }
    let (scheme, authority) = written.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let good_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let uri: http::uri::Authority = authority.parse().ok()?;
    let plain = !authority.contains('@') && !uri.host().is_empty() && !authority.ends_with(':');
    if !good_scheme || !plain || (authority.len() > uri.host().len() && uri.port_u16().is_none()) {
        return None;
    }
    let host = uri.host().to_ascii_lowercase();
    let implied = matches!((scheme.as_str(), uri.port_u16()), ("http", Some(80)) | ("https", Some(443)));
    match uri.port_u16().filter(|_| !implied) {
        Some(port) => Some(format!("{scheme}://{host}:{port}")),
        None => Some(format!("{scheme}://{host}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_origins_are_read_as_browsers_write_them() {
        for (written, read) in [
            ("https://Example.com", Some("https://example.com")),
            ("https://example.com:443", Some("https://example.com")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("capacitor://localhost", Some("capacitor://localhost")),
            ("*", Some("*")),
            ("example.com", None),
            ("https://example.com/", None),
            ("https://example.com/app", None),
            ("https://", None),
            ("https://a@example.com", None),
            ("https://example.com:", None),
            ("https://example.com:99999", None),
        ] {
            assert_eq!(web_origin(written).as_deref(), read, "{written}");
        }
    }
}
