//! Addresses, data folder, store, bus and node name. Some are derived from others: a folder implies a SQLite store in it, a
//! store on a server is also the bus.

use super::sections::TopLevel;
use super::values::Values;
use super::{ServerMode, ValueSource, without_password};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tavern_domain::limits;

pub(super) struct Addresses {
    pub listen: SocketAddr,
    pub admin_listen: Option<SocketAddr>,
    pub resp: Option<SocketAddr>,
    pub data: PathBuf,
    pub store: String,
    pub bus: String,
    pub node: String,
}

const SQLITE: &str = "sqlite:";
const REDIS: [&str; 6] = [
    "redis://",
    "rediss://",
    "redis-sentinel://",
    "rediss-sentinel://",
    "redis-cluster://",
    "rediss-cluster://",
];
const STORES: &str = "sqlite:FOLDER, redis://HOST:PORT or postgres://HOST/DATABASE";
const BUSES: &str = "local, postgres://HOST/DATABASE, redis://HOST:PORT or nats://HOST:PORT";
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) fn places(values: &mut Values, top: &TopLevel) -> Addresses {
    let listen = address(values, "listen", &top.listen).unwrap_or(NOWHERE);
    let resp = match top.resp.as_str() {
        "" | "off" => {
            let origin = values.origin("resp");
            values.show("resp", json!("off"), origin);
            None
        }
        text => address(values, "resp", text),
    };
    if let Some(resp) = resp
        && resp == listen
        && resp.port() != 0
    {
        values.fail("resp", format!("resp and listen are both {resp}: use different ports"));
    }
    let admin_listen = top.admin_listen.as_deref().filter(|text| !text.is_empty());
    let admin_listen = admin_listen.and_then(|text| address(values, "admin_listen", text));
    if let Some(admin) = admin_listen
        && admin.port() != 0
        && (admin == listen || Some(admin) == resp)
    {
        let message = format!("admin_listen = {admin} is the address of listen or resp: use another port");
        values.fail("admin_listen", message);
    }
    let (data, store) = folder_and_store(values, top);
    let bus = bus(values, top, &store);
    let node = node(values, top, listen);
    Addresses { listen, admin_listen, resp, data, store, bus, node }
}

fn address(values: &mut Values, name: &str, text: &str) -> Option<SocketAddr> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let Ok(address) = numeric.as_deref().unwrap_or(text).parse::<SocketAddr>() else {
        let message = format!("{name} = {text:?} is not an address: write HOST:PORT, such as 127.0.0.1:7400");
        values.fail(name, message);
        return None;
    };
    if values.mode == ServerMode::Dev && !address.ip().is_loopback() {
        let message = format!(
            "{name} = {text}: dev mode has no access control and listens on loopback only; \
             use 127.0.0.1:{}, or `tavern serve` with a secret",
            address.port()
        );
        values.fail(name, message);
    }
    Some(address)
}

/// `data` and `store` set the same thing; the stronger layer wins.
fn folder_and_store(values: &mut Values, top: &TopLevel) -> (PathBuf, String) {
    let (data_origin, store_origin) = (values.origin("data"), values.origin("store"));
    let folder_of = |store: &str| store.strip_prefix(SQLITE).map(str::to_owned);
    let store_rules = store_origin.precedence() >= data_origin.precedence();
    let Some(store) = top.store.clone().filter(|_| store_rules) else {
        let folder = top.data.clone();
        check_folder(values, &folder);
        let store = format!("{SQLITE}{folder}");
        let origin = match &data_origin {
            ValueSource::Default => ValueSource::Default,
            given => ValueSource::Derived(format!("data, {given}")),
        };
        values.show("store", json!(store), origin);
        return (folder.into(), store);
    };
    let both_given = data_origin.precedence() == store_origin.precedence();
    if let Some(folder) = folder_of(&store)
        && both_given
        && folder != top.data
    {
        let message =
            format!("store = {store:?} and data = {:?} name two folders: set only one of them", top.data);
        values.fail("store", message);
    }
    let folder = match folder_of(&store) {
        Some(folder) => {
            values.show("data", json!(folder), ValueSource::Derived("store".into()));
            folder
        }
        None => top.data.clone(),
    };
    check_folder(values, &folder);
    let known = ["sqlite:", "memory:", "postgres://", "postgresql://"];
    if !known.iter().chain(&REDIS).any(|scheme| store.starts_with(scheme)) {
        values.fail("store", format!("store = {:?} must be one of {STORES}", without_password(&store)));
    }
    (folder.into(), with_prefix(store, &top.prefix))
}

fn check_folder(values: &mut Values, folder: &str) {
    if folder.is_empty() {
        values.fail("data", "the data folder has no name: write a folder, such as ./tavern-data");
    }
}

fn bus(values: &mut Values, top: &TopLevel, store: &str) -> String {
    if let Some(bus) = &top.bus {
        let known = ["nats://", "tls://", "postgres://", "postgresql://"];
        let known = known.iter().chain(&REDIS).any(|scheme| bus.starts_with(scheme));
        if !known && bus != "local" {
            values.fail("bus", format!("bus = {:?} must be one of {BUSES}", without_password(bus)));
        }
        return bus.clone();
    }
    let (bus, origin) = if ["redis", "postgres"].iter().any(|kind| store.starts_with(kind)) {
        (store.to_owned(), ValueSource::Derived("store".into()))
    } else {
        ("local".to_owned(), ValueSource::Default)
    };
    values.show("bus", json!(without_password(&bus)), origin);
    bus
}

fn node(values: &mut Values, top: &TopLevel, listen: SocketAddr) -> String {
    if let Some(node) = &top.node {
        if !is_node_name(node) {
            let message = format!(
                "node = {node:?} is not a node name: use letters, digits, `.`, `_` and `-`, a letter or digit first, \
                 at most {} bytes",
                limits::NODE_BYTES
            );
            values.fail("node", message);
        }
        return node.clone();
    }
    // The port distinguishes the nodes of one machine and stays the same across restarts.
    let (tail, from) = match listen.port() {
        0 => (std::process::id(), "host name and process"),
        port => (u32::from(port), "host name and port"),
    };
    let node = format!("{}-{tail}", host_name());
    values.show("node", json!(node), ValueSource::Derived(from.into()));
    node
}

fn is_node_name(name: &str) -> bool {
    let follows = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=limits::NODE_BYTES).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(follows)
}

/// The first label of the host name, reduced to the characters of a node name.
fn host_name() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let label = host.split('.').next().unwrap_or_default();
    let kept = label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').skip_while(|c| *c == '-');
    let kept: String = kept.take(limits::NODE_BYTES - 12).collect();
    if kept.is_empty() { "node".into() } else { kept }
}

/// Installations that share a Redis server have different prefixes for keys and messages.
fn with_prefix(store: String, prefix: &str) -> String {
    let named = store.split_once('?').map_or("", |(_, options)| options);
    if !REDIS.iter().any(|scheme| store.starts_with(scheme))
        || named.split('&').any(|option| option.starts_with("prefix="))
    {
        return store;
    }
    let mark = if store.contains('?') { '&' } else { '?' };
    format!("{store}{mark}prefix={prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_store_uses_the_prefix_unless_its_url_has_one() {
        for (store, whole) in [
            ("redis://h", "redis://h?prefix=blue"),
            ("rediss-cluster://h,i?ca=/f", "rediss-cluster://h,i?ca=/f&prefix=blue"),
            ("redis://h/1?prefix=own", "redis://h/1?prefix=own"),
            ("postgres://h/d", "postgres://h/d"),
            ("sqlite:redis://", "sqlite:redis://"),
        ] {
            assert_eq!(with_prefix(store.into(), "blue"), whole);
        }
    }

    #[test]
    fn node_names_are_validated() {
        for (name, good) in [
            ("a", true),
            ("host-7400", true),
            ("a.b_c", true),
            ("", false),
            ("-a", false),
            ("..", false),
            ("a b", false),
            ("a/b", false),
            (&"x".repeat(64), true),
            (&"x".repeat(65), false),
        ] {
            assert_eq!(is_node_name(name), good, "{name}");
        }
        assert!(is_node_name(&host_name()));
    }
}
