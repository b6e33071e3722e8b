//! Where this node is and where it keeps things: addresses, folder, store, bus, name. They are derived from each
//! other: a folder means a SQLite store in it, a Redis store means its own bus.

use super::draft::Draft;
use super::layer::Value;
use super::{Mode, Origin, without_password};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tavern_domain::limits;

pub(super) struct Places {
    pub listen: SocketAddr,
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
const BUSES: &str = "local, redis://HOST:PORT or nats://HOST:PORT";
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Draft {
    pub fn places(&mut self) -> Places {
        let listen = self.address("listen").unwrap_or(NOWHERE);
        let resp = match self.text_of("resp") {
            Some(off) if off.is_empty() || off == "off" => {
                let origin = self.origin_of("resp");
                self.show("resp", json!("off"), origin);
                None
            }
            _ => self.address("resp"),
        };
        if let Some(resp) = resp
            && resp == listen
            && resp.port() != 0
        {
            self.fail("resp", format!("resp and listen are both {resp}: give them different ports"));
        }
        let (data, store) = self.folder_and_store();
        let bus = self.bus(&store);
        let node = self.node(listen);
        Places { listen, resp, data, store, bus, node }
    }

    fn text_of(&self, name: &str) -> Option<String> {
        match self.given(name) {
            Some((Value::Text(text), _)) => Some(text.clone()),
            _ => None,
        }
    }

    fn address(&mut self, name: &str) -> Option<SocketAddr> {
        let text = self.text(name);
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let Ok(address) = numeric.as_deref().unwrap_or(&text).parse::<SocketAddr>() else {
            self.fail(
                name,
                format!("{name} = {text:?} is no address: write HOST:PORT, such as 127.0.0.1:7400"),
            );
            return None;
        };
        if self.mode == Mode::Dev && !address.ip().is_loopback() {
            let message = format!(
                "{name} = {text}: dev mode lets everybody in and listens on loopback only; \
                 use 127.0.0.1:{}, or `tavern serve` with a secret",
                address.port()
            );
            self.fail(name, message);
        }
        Some(address)
    }

    /// `data` and `store` say the same thing in two ways; the stronger layer is believed.
    fn folder_and_store(&mut self) -> (PathBuf, String) {
        let (data, store) = (self.text_of("data"), self.text_of("store"));
        let (data_origin, store_origin) = (self.origin_of("data"), self.origin_of("store"));
        let folder_of = |store: &str| store.strip_prefix(SQLITE).map(str::to_owned);
        let store_rules = store.is_some() && store_origin.strength() >= data_origin.strength();
        let chosen = store.filter(|_| store_rules);
        if let Some(store) = &chosen
            && let (Some(folder), Some(data)) = (folder_of(store), &data)
            && data_origin.strength() == store_origin.strength()
            && folder != *data
        {
            self.fail(
                "store",
                format!("store = {store:?} and data = {data:?} name two folders: give one of them"),
            );
        }
        let folder = match (chosen.as_deref().and_then(folder_of), data) {
            (Some(folder), _) => {
                self.show("data", json!(folder), Origin::Derived("store".into()));
                folder
            }
            (None, _) => self.text("data"),
        };
        if folder.is_empty() {
            self.fail("data", "the data folder has no name: write a folder, such as ./tavern-data");
        }
        match chosen {
            Some(store) => {
                let known = ["sqlite:", "memory:", "postgres://", "postgresql://"];
                if !known.iter().chain(&REDIS).any(|scheme| store.starts_with(scheme)) {
                    self.fail("store", format!("store = {:?} is none of {STORES}", without_password(&store)));
                }
                self.show("store", json!(without_password(&store)), store_origin);
                let store = with_prefix(store, &self.text("prefix"));
                (folder.into(), store)
            }
            None => {
                let store = format!("{SQLITE}{folder}");
                let origin = if data_origin == Origin::Default {
                    Origin::Default
                } else {
                    Origin::Derived(format!("data, {data_origin}"))
                };
                self.show("store", json!(store), origin);
                (folder.into(), store)
            }
        }
    }

    fn bus(&mut self, store: &str) -> String {
        if let Some(bus) = self.text_of("bus") {
            let known = ["nats://", "tls://"];
            let known = known.iter().chain(&REDIS).any(|scheme| bus.starts_with(scheme));
            if !known && bus != "local" {
                self.fail("bus", format!("bus = {:?} is none of {BUSES}", without_password(&bus)));
            }
            let origin = self.origin_of("bus");
            self.show("bus", json!(without_password(&bus)), origin);
            return bus;
        }
        // A Redis that keeps the facts can carry the words too; a Postgres cannot.
        let (bus, origin) = if store.starts_with("redis") {
            (store.to_owned(), Origin::Derived("store".into()))
        } else {
            ("local".to_owned(), Origin::Default)
        };
        self.show("bus", json!(without_password(&bus)), origin);
        bus
    }

    /// Whoever only looks at the store needs no bus.
    pub fn check_bus(&mut self, store: &str) {
        if store.starts_with("postgres") && self.text_of("bus").is_none() {
            self.fail("store", format!("a Postgres store needs a bus beside it: set bus to one of {BUSES}"));
        }
    }

    fn node(&mut self, listen: SocketAddr) -> String {
        if let Some(node) = self.text_of("node") {
            if !is_node_name(&node) {
                let message = format!(
                    "node = {node:?} is no node name: letters, digits, `.`, `_` and `-`, a letter or digit first, \
                     at most {} bytes",
                    limits::NODE_BYTES
                );
                self.fail("node", message);
            }
            let origin = self.origin_of("node");
            self.show("node", json!(node), origin);
            return node;
        }
        // The port keeps several nodes of one machine apart and stays the same over a restart.
        let (tail, from) = match listen.port() {
            0 => (std::process::id(), "host name and process"),
            port => (u32::from(port), "host name and port"),
        };
        let node = format!("{}-{tail}", host_name());
        self.show("node", json!(node), Origin::Derived(from.into()));
        node
    }
}

fn is_node_name(name: &str) -> bool {
    let follows = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=limits::NODE_BYTES).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && name.bytes().all(follows)
}

/// The first label of the host name, reduced to what a node name may hold.
fn host_name() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let label = host.split('.').next().unwrap_or_default();
    let kept = label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').skip_while(|c| *c == '-');
    let kept: String = kept.take(limits::NODE_BYTES - 12).collect();
    if kept.is_empty() { "node".into() } else { kept }
}

/// Installations with different prefixes share a Redis server: their keys are apart like their words.
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
    fn a_redis_store_has_the_prefix_of_the_installation_unless_it_names_its_own() {
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
    fn node_names() {
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
