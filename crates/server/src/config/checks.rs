//! Values with their own grammar (origins, proxies, TLS, URLs), and checks across several keys. Every message says what
//! to write instead.

use super::kinds::KINDS;
use super::sections::TopLevel;
use super::values::Values;
use super::{Cidr, Config, ConfigValue, DashboardConfig, ServerMode, TlsFiles, ValueSource};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tavern_domain::{Scope, Verb};

/// HS256 needs a key at least as long as its hash.
pub const SECRET_BYTES: usize = 32;
const PREFIX_BYTES: usize = 32;
const STATSD_PREFIX_BYTES: usize = 64;
/// The shortest interval: more often would flood the log.
const METRICS_LOG_MS: u64 = 100;
const LIST_ITEMS: usize = 1_024;
const ACTIVITIES_MAX: usize = 64;
const NO_SECRET: &str = "serve needs a secret to verify tokens, at least 32 bytes: generate one with \
    `openssl rand -hex 32` and set TAVERN_SECRET, --secret or `secret` in tavern.toml; \
    to try things out without one: `tavern dev`";

/// Zero means three quarters of the cores.
pub(super) fn threads(values: &mut Values, given: usize) -> usize {
    if given > 0 {
        return given;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores * 3 / 4).max(1);
    values.show("threads", json!(threads), ValueSource::Derived(format!("three quarters of {cores} cores")));
    threads
}

/// By default the message limit plus room for the envelope.
pub(super) fn json_frame_bytes(values: &mut Values, given: usize, message_bytes: usize) -> usize {
    if values.given("limits.json_frame_bytes").is_some() {
        return given;
    }
    let derived = message_bytes + 4_096;
    let origin = ValueSource::Derived("limits.message_bytes + 4096".into());
    values.show("limits.json_frame_bytes", json!(derived), origin);
    derived
}

pub(super) fn origins(values: &mut Values, written: &[String]) -> Vec<String> {
    parsed(values, "origins", written, web_origin, |text| {
        format!(
            "origins: {text:?} is not a web origin: write scheme://host or scheme://host:port, without a path, or \"*\""
        )
    })
}

pub(super) fn trusted_proxies(values: &mut Values, written: &[String]) -> Vec<Cidr> {
    parsed(values, "trusted_proxies", written, Cidr::parse, |text| {
        format!(
            "trusted_proxies: {text:?} is not an address range: write 10.0.0.0/8 or 127.0.0.1, with no bits after the mask"
        )
    })
}

/// The items of a list that can be read; the others are errors.
fn parsed<T>(
    values: &mut Values,
    name: &str,
    written: &[String],
    parse: impl Fn(&str) -> Option<T>,
    wrong: impl Fn(&str) -> String,
) -> Vec<T> {
    let mut items = Vec::new();
    for text in written.iter().take(LIST_ITEMS) {
        match parse(text) {
            Some(item) => items.push(item),
            None => values.fail(name, wrong(text)),
        }
    }
    items
}

pub(super) fn tls(values: &mut Values, top: &TopLevel) -> Option<TlsFiles> {
    match (&top.tls_cert, &top.tls_key) {
        (None, None) => None,
        (Some(cert), Some(key)) => Some(TlsFiles { cert: PathBuf::from(cert), key: PathBuf::from(key) }),
        (Some(_), None) => {
            values.fail("tls_cert", "tls_cert is set without tls_key: set both or none");
            None
        }
        (None, Some(_)) => {
            values.fail("tls_key", "tls_key is set without tls_cert: set both or none");
            None
        }
    }
}

/// Checks the configuration as a whole. `for_server` requires what only a server needs.
pub(super) fn check(values: &mut Values, config: &Config, for_server: bool) {
    if for_server {
        check_secrets(values, config);
    }
    check_texts(values, config);
    check_url(values, "authorize.url", config.authorize.url.as_deref());
    check_url(values, "parties.matchmaker_url", config.parties.matchmaker_url.as_deref());
    check_url(values, "otlp_url", config.otlp_url.as_deref());
    check_metrics(values, config);
    check_dashboard(values, config);
    check_order(values, config);
    check_verbs(values);
    check_history(values);
    let priority = &config.presence.priority;
    if priority.iter().collect::<BTreeSet<_>>().len() != priority.len() || priority.len() > ACTIVITIES_MAX {
        let message = format!("presence.priority names an activity twice, or more than {ACTIVITIES_MAX}");
        values.fail("presence.priority", message);
    }
}

fn check_dashboard(values: &mut Values, config: &Config) {
    let DashboardConfig { proxy_header, proxy_scopes, .. } = &config.dashboard;
    if let Some(unknown) = proxy_scopes.iter().find(|scope| Scope::parse(scope).is_none()) {
        let message = format!(
            "dashboard.proxy_scopes: {unknown:?} is not a scope; the scopes are publish, events, subscriptions, presence, parties, users, admin"
        );
        values.fail("dashboard.proxy_scopes", message);
    }
    if proxy_header.is_empty() {
        return;
    }
    if http::HeaderName::try_from(proxy_header.as_str()).is_err() {
        values.fail("dashboard.proxy_header", "dashboard.proxy_header is not the name of a header");
    } else if config.trusted_proxies.is_empty() {
        let message =
            "dashboard.proxy_header is set without trusted_proxies: name the addresses of the proxy";
        values.fail("dashboard.proxy_header", message);
    }
}

fn check_secrets(values: &mut Values, config: &Config) {
    let serve = config.mode == ServerMode::Serve;
    // With public keys alone tokens can be checked too.
    if serve && config.secret.is_none() && config.token_keys.is_empty() {
        values.fail_general(NO_SECRET);
    }
    for (name, secret) in [("secret", &config.secret), ("former_secret", &config.former_secret)] {
        let found = secret.as_ref().map_or(SECRET_BYTES, |secret| secret.expose().len());
        if serve && found < SECRET_BYTES {
            let message = format!(
                "{name} has {found} bytes but needs at least {SECRET_BYTES}: generate one with `openssl rand -hex 32`"
            );
            values.fail(name, message);
        }
    }
    if let Some(key) = &config.admin_key
        && key.expose().chars().any(|c| c.is_whitespace() || c == ':')
    {
        values.fail(
            "admin_key",
            "admin_key contains a space or a colon: remove it, it cannot be sent in a header",
        );
    }
}

fn check_texts(values: &mut Values, config: &Config) {
    for name in ["secret", "former_secret", "admin_key", "parties.matchmaker_secret"] {
        if matches!(values.given(name), Some((ConfigValue::Text(text), _)) if text.is_empty()) {
            values.fail(name, format!("{name} is empty: set a value or remove the key"));
        }
    }
    let prefix = &config.prefix;
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-');
    if !(1..=PREFIX_BYTES).contains(&prefix.len()) || !prefix.bytes().all(good) {
        values.fail("prefix", format!("prefix = {prefix:?}: 1 to {PREFIX_BYTES} of a-z, 0-9, `_` and `-`"));
    }
    let level = &config.log_level;
    if level.parse::<tracing_subscriber::filter::Targets>().is_err() {
        let message =
            format!("log_level = {level:?}: write error, warn, info, debug, trace, or info,tavern=debug");
        values.fail("log_level", message);
    }
}

fn check_url(values: &mut Values, name: &str, url: Option<&str>) {
    let Some(url) = url else { return };
    if !is_http(url) {
        values.fail(name, format!("{name} must be an http:// or https:// address"));
    }
}

pub(super) fn is_http(url: &str) -> bool {
    url.parse::<http::Uri>().is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty())
    })
}

fn check_metrics(values: &mut Values, config: &Config) {
    let statsd = &config.metrics.statsd;
    let good = statsd.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !good && !statsd.is_empty() {
        let message = format!("metrics.statsd = {statsd:?}: write HOST:PORT, such as 127.0.0.1:8125");
        values.fail("metrics.statsd", message);
    }
    let prefix = &config.metrics.statsd_prefix;
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    if prefix.len() > STATSD_PREFIX_BYTES || !prefix.bytes().all(good) {
        let message = format!(
            "metrics.statsd_prefix = {prefix:?}: at most {STATSD_PREFIX_BYTES} of a-z, A-Z, 0-9, `_`, `.` and `-`"
        );
        values.fail("metrics.statsd_prefix", message);
    }
    if (1..METRICS_LOG_MS).contains(&config.metrics.log_ms) {
        let message = format!("metrics.log_ms must be 0 (never) or at least {METRICS_LOG_MS}");
        values.fail("metrics.log_ms", message);
    }
}

/// Pairs of values whose first must be the smaller one.
fn check_order(values: &mut Values, config: &Config) {
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
        let (what, relation) = match (small, strictly) {
            ("nodes.heartbeat_ms", _) => ("twice nodes.heartbeat_ms", "at most"),
            (_, true) => (small, "below"),
            (_, false) => (small, "at most"),
        };
        let message = format!("{what} ({low}) must be {relation} {large} ({high})");
        // Reported at the value that was set.
        let written = if values.given(small).is_some() { small } else { large };
        values.fail(written, message);
    }
}

/// Verbs that do not exist, and rights in channels that belong to the server.
fn check_verbs(values: &mut Values) {
    let is_allow = |name: &&str| name.starts_with(KINDS) && name.ends_with(".allow");
    let names: Vec<String> = values.given_names().filter(is_allow).map(str::to_owned).collect();
    for name in names {
        let Some((ConfigValue::List(verbs), _)) = values.given(&name).cloned() else { continue };
        for text in verbs.iter().filter(|text| Verb::parse(text).is_none()) {
            let all = Verb::ALL.map(Verb::as_str).join(", ");
            values.fail(&name, format!("{name}: {text:?} is not a verb; the verbs are {all}"));
        }
        let kind = name.trim_start_matches(KINDS).trim_end_matches(".allow");
        let reserved = ["user", "party", "tavern"].contains(&kind);
        if reserved && verbs.iter().any(|verb| verb == "publish" || verb == "join") {
            let message = format!("{name}: only the server publishes to {kind}#… and joins users to it");
            values.fail(&name, message);
        }
    }
}

/// Channels that belong to the server keep no history.
fn check_history(values: &mut Values) {
    for kind in ["user", "party", "tavern"] {
        let name = format!("{KINDS}{kind}.history_messages");
        if matches!(values.given(&name), Some((ConfigValue::Integer(1..), _))) {
            values.fail(&name, format!("{name}: {kind}#… belongs to the server and keeps no history"));
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
