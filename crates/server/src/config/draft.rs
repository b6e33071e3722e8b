//! From keys to a `Config`: merges the layers, takes defaults for the rest, and checks what one key alone cannot
//! show. Must hold: it always ends with a whole `Config` and all errors, so that they can be told together.

use super::layer::{Given, Value};
use super::schema::{self, Key, Preset, Type};
use super::{
    Authorize, Config, ConfigError, Entry, Events, Inbox, Kind, Limits, Loaded, LocalLog, LogFormat, Mode,
    Nodes, Origin, Parties, Presence, PresenceMode, Sessions, SlowReader, TokenKey, without_password,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use tavern_domain::{Verb, Verbs};

pub(super) struct Draft {
    pub mode: Mode,
    values: BTreeMap<String, (Value, Origin)>,
    pub errors: Vec<ConfigError>,
    entries: Vec<Entry>,
}

/// More kinds than this are a mistake; each is looked up by name on the hot path's cold side.
const KINDS_MAX: usize = 1_024;

pub fn build(mode: Mode, for_server: bool, given: Vec<Given>, errors: Vec<ConfigError>) -> Loaded {
    let mut draft = Draft { mode, values: BTreeMap::new(), errors, entries: Vec::new() };
    for Given { name, value, origin } in given {
        draft.values.insert(name, (value, origin));
    }
    let places = draft.places();
    let kinds = draft.kinds();
    let token_keys = draft.token_keys();
    let limits = draft.limits();
    let config = Config {
        mode,
        listen: places.listen,
        resp: places.resp,
        data: places.data,
        store: places.store,
        bus: places.bus,
        node: places.node,
        secret: draft.secret("secret"),
        admin_key: draft.secret("admin_key"),
        threads: draft.threads(),
        origins: draft.origins(),
        trusted_proxies: draft.trusted_proxies(),
        tls: draft.tls(),
        prefix: draft.prefix(),
        log: if draft.text("log") == "json" { LogFormat::Json } else { LogFormat::Text },
        log_level: draft.log_level(),
        sessions: Sessions {
            resume_ms: draft.integer("sessions.resume_ms"),
            heartbeat_ms: draft.integer("sessions.heartbeat_ms"),
            poll_idle_ms: draft.integer("sessions.poll_idle_ms"),
            drain_ms: draft.integer("sessions.drain_ms"),
        },
        nodes: Nodes {
            heartbeat_ms: draft.integer("nodes.heartbeat_ms"),
            lease_ms: draft.integer("nodes.lease_ms"),
        },
        local: LocalLog {
            messages: draft.integer("local.log_messages"),
            bytes: draft.integer("local.log_bytes"),
            age_ms: draft.integer("local.log_age_ms"),
        },
        limits,
        kinds,
        presence: draft.presence(),
        authorize: Authorize {
            url: draft.url("authorize.url"),
            cache_ms: draft.integer("authorize.cache_ms"),
        },
        events: draft.events(),
        metrics: draft.metrics(),
        parties: draft.parties(),
        inbox: Inbox {
            letters: draft.size("inbox.letters"),
            bytes: draft.size("inbox.bytes"),
            keep_ms: draft.integer("inbox.keep_ms"),
        },
        token_keys,
        entries: Vec::new(),
    };
    draft.check_whole(&config, for_server);
    let entries = draft.in_order();
    Loaded { config: Config { entries, ..config }, errors: draft.errors }
}

impl Draft {
    /// The value that somebody gave.
    pub fn given(&self, name: &str) -> Option<&(Value, Origin)> {
        self.values.get(name)
    }

    pub fn origin_of(&self, name: &str) -> Origin {
        self.given(name).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    pub fn fail(&mut self, name: &str, message: impl Into<String>) {
        let error = ConfigError::at(&self.origin_of(name), message);
        self.errors.push(error);
    }

    /// Writes a line for `tavern check`.
    pub fn show(&mut self, name: &str, value: serde_json::Value, origin: Origin) {
        self.entries.push(Entry { key: name.to_owned(), value, origin });
    }

    /// The effective value: given, or the default of this mode. Absent keys stay absent.
    fn take(&mut self, name: &str) -> Option<Value> {
        let Some(key) = schema::find(name) else { unreachable!("{name} is no key") };
        let (value, origin) = match self.given(name) {
            Some((value, origin)) => (Some(value.clone()), origin.clone()),
            None => match key.dev.filter(|_| self.mode == Mode::Dev) {
                Some(preset) => (from_preset(preset), Origin::DevMode),
                None => (from_preset(key.preset), Origin::Default),
            },
        };
        self.show(name, shown(key, value.as_ref()), origin);
        value
    }

    pub fn integer(&mut self, name: &str) -> u64 {
        match self.take(name) {
            Some(Value::Integer(number)) => number,
            _ => unreachable!("{name} is an integer with a default"),
        }
    }

    pub fn size(&mut self, name: &str) -> usize {
        usize::try_from(self.integer(name)).unwrap_or(usize::MAX)
    }

    fn small(&mut self, name: &str) -> u32 {
        u32::try_from(self.integer(name)).unwrap_or(u32::MAX)
    }

    pub fn flag(&mut self, name: &str) -> bool {
        matches!(self.take(name), Some(Value::Flag(true)))
    }

    /// The text, empty when absent.
    pub fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            Some(Value::Text(text)) => text,
            _ => String::new(),
        }
    }

    pub fn list(&mut self, name: &str) -> Vec<String> {
        match self.take(name) {
            Some(Value::List(list)) => list,
            _ => Vec::new(),
        }
    }

    fn limits(&mut self) -> Limits {
        let message_bytes = self.size("limits.message_bytes");
        let json_frame_bytes = match self.given("limits.json_frame_bytes").cloned() {
            Some((Value::Integer(bytes), origin)) => {
                self.show("limits.json_frame_bytes", json!(bytes), origin);
                usize::try_from(bytes).unwrap_or(usize::MAX)
            }
            _ => {
                let derived = message_bytes + 4_096;
                let origin = Origin::Derived("limits.message_bytes + 4096".into());
                self.show("limits.json_frame_bytes", json!(derived), origin);
                derived
            }
        };
        Limits {
            message_bytes,
            json_frame_bytes,
            mailbox_events: self.size("limits.mailbox_events"),
            mailbox_bytes: self.size("limits.mailbox_bytes"),
            mailbox_sent_ms: self.integer("limits.mailbox_sent_ms"),
            mailbox_total_bytes: self.size("limits.mailbox_total_bytes"),
            channels_per_session: self.size("limits.channels_per_session"),
            commands_per_second: self.small("limits.commands_per_second"),
            connections_per_address: self.size("limits.connections_per_address"),
            state_bytes: self.size("limits.state_bytes"),
            connections: self.size("limits.connections"),
            partial_total_bytes: self.size("limits.partial_total_bytes"),
            http_header_ms: self.integer("limits.http_header_ms"),
            inbox_parcels: self.size("limits.inbox_parcels"),
            redis_pending_bytes: self.size("limits.redis_pending_bytes"),
            idempotency_keys: self.size("limits.idempotency_keys"),
            following: self.size("limits.following"),
        }
    }

    fn presence(&mut self) -> Presence {
        let priority = self.list("presence.priority");
        if priority.iter().collect::<BTreeSet<_>>().len() != priority.len() || priority.len() > 64 {
            self.fail("presence.priority", "presence.priority names an activity twice, or more than 64");
        }
        Presence {
            tick_ms: self.integer("presence.tick_ms"),
            coalesce_at: self.integer("presence.coalesce_at"),
            counts_at: self.integer("presence.counts_at"),
            disconnect_coalesce_ms: self.integer("presence.disconnect_coalesce_ms"),
            last_seen_ms: self.integer("presence.last_seen_ms"),
            sweep_ms: self.integer("presence.sweep_ms"),
            sweep_age_ms: self.integer("presence.sweep_age_ms"),
            priority,
        }
    }

    fn events(&mut self) -> Events {
        Events {
            allow_http: self.flag("events.allow_http"),
            allow_private: self.flag("events.allow_private"),
            backoff_min_ms: self.integer("events.backoff_min_ms"),
            backoff_max_ms: self.integer("events.backoff_max_ms"),
            lease_ms: self.integer("events.lease_ms"),
            connect_timeout_ms: self.integer("events.connect_timeout_ms"),
            request_timeout_ms: self.integer("events.request_timeout_ms"),
            max_bytes: self.integer("events.max_bytes"),
            low_bytes: self.integer("events.low_bytes"),
            retention_ms: self.integer("events.retention_ms"),
            dedupe_max: self.integer("events.dedupe_max"),
            rotation_ms: self.integer("events.rotation_ms"),
            disable_after_ms: self.integer("events.disable_after_ms"),
        }
    }

    fn parties(&mut self) -> Parties {
        Parties {
            max_members: self.size("parties.max_members"),
            invite_ms: self.integer("parties.invite_ms"),
            gather_ms: self.integer("parties.gather_ms"),
            grace_ms: self.integer("parties.grace_ms"),
            reinvite_ms: self.integer("parties.reinvite_ms"),
            invites_per_minute: self.small("parties.invites_per_minute"),
            max_pending: self.size("parties.max_pending"),
            block_ms: self.integer("parties.block_ms"),
            require_ready: self.flag("parties.require_ready"),
            matchmaker_url: self.url("parties.matchmaker_url"),
            matchmaker_secret: self.secret("parties.matchmaker_secret"),
        }
    }

    /// The built-in kinds, `default`, and those that somebody named.
    fn kinds(&mut self) -> BTreeMap<String, Kind> {
        let named = |name: &String| Some(name.strip_prefix("kinds.")?.rsplit_once('.')?.0.to_owned());
        let written: BTreeSet<String> = self.values.keys().filter_map(named).collect();
        if written.len() > KINDS_MAX {
            self.errors.push(ConfigError::general(format!("more than {KINDS_MAX} [kinds.…] sections")));
        }
        let built_in = schema::ACTIVITIES.iter().map(|(kind, _)| (*kind).to_owned());
        let all: BTreeSet<String> = written.iter().cloned().chain(built_in).collect();
        let mut kinds = BTreeMap::from([("default".to_owned(), self.kind("default", true))]);
        for kind in all.into_iter().filter(|kind| kind != "default") {
            let rules = self.kind(&kind, written.contains(&kind));
            kinds.insert(kind, rules);
        }
        kinds
    }

    fn kind(&mut self, kind: &str, written: bool) -> Kind {
        let allow = self.kind_value(kind, "allow", written);
        let Value::List(verbs) = allow else { unreachable!("allow is a list") };
        let allow = self.verbs(kind, &verbs);
        let grace = self.kind_value(kind, "grace_ms", written);
        let Value::Integer(grace_ms) = grace else { unreachable!("grace_ms is an integer") };
        Kind {
            grace_ms,
            slow_reader: match self.kind_text(kind, "slow_reader", written).as_str() {
                "close" => SlowReader::Close,
                _ => SlowReader::Gap,
            },
            presence_mode: match self.kind_text(kind, "presence_mode", written).as_str() {
                "full" => PresenceMode::Full,
                "coalesced" => PresenceMode::Coalesced,
                "counts" => PresenceMode::Counts,
                _ => PresenceMode::Auto,
            },
            activity: self.kind_text(kind, "activity", written),
            allow,
        }
    }

    fn kind_text(&mut self, kind: &str, field: &str, written: bool) -> String {
        match self.kind_value(kind, field, written) {
            Value::Text(text) => text,
            _ => unreachable!("{field} is a text"),
        }
    }

    /// One field of a kind: its own, or that of `[kinds.default]`. Only what somebody wrote or what differs is shown.
    fn kind_value(&mut self, kind: &str, field: &str, written: bool) -> Value {
        let full = format!("kinds.{kind}.{field}");
        let Some(key) = schema::find(&full) else { unreachable!("{full} is no key") };
        let activity =
            schema::ACTIVITIES.iter().find(|(name, _)| *name == kind).filter(|_| field == "activity");
        let (value, origin, shows) = if let Some((value, origin)) = self.given(&full).cloned() {
            (value, origin, true)
        } else if let Some((_, activity)) = activity {
            (Value::Text((*activity).to_owned()), Origin::Default, true)
        } else if let Some((value, _)) = self.given(&format!("kinds.default.{field}")).cloned() {
            (value, Origin::Derived("kinds.default".into()), written)
        } else {
            let dev = key.dev.filter(|_| self.mode == Mode::Dev);
            let origin = if dev.is_some() { Origin::DevMode } else { Origin::Default };
            match from_preset(dev.unwrap_or(key.preset)) {
                Some(value) => (value, origin, written),
                None => unreachable!("{full} has a default"),
            }
        };
        if shows {
            self.show(&full, shown(key, Some(&value)), origin);
        }
        value
    }

    fn verbs(&mut self, kind: &str, written: &[String]) -> Verbs {
        let name = format!("kinds.{kind}.allow");
        let mut verbs = Verbs::NONE;
        for text in written {
            match Verb::parse(text) {
                Some(verb) => verbs = verbs.with(verb),
                // What came from [kinds.default] was told there.
                None if self.given(&name).is_none() => {}
                None => {
                    let all = Verb::ALL.map(Verb::as_str).join(", ");
                    self.fail(&name, format!("{name}: {text:?} is no verb; the verbs are {all}"));
                }
            }
        }
        verbs
    }

    fn token_keys(&mut self) -> Vec<TokenKey> {
        let index = |name: &String| name.strip_prefix("tokens.keys.")?.split_once('.')?.0.parse::<u32>().ok();
        let indices: BTreeSet<u32> = self.values.keys().filter_map(index).collect();
        let mut keys = Vec::new();
        for index in indices {
            let full = |field: &str| format!("tokens.keys.{index}.{field}");
            let (algorithm, file) = (self.text(&full("algorithm")), self.text(&full("file")));
            let kid = Some(self.text(&full("kid"))).filter(|kid| !kid.is_empty());
            let present = if algorithm.is_empty() { full("file") } else { full("algorithm") };
            if algorithm.is_empty() || file.is_empty() {
                self.fail(&present, format!("tokens.keys.{index} needs both an algorithm and a file"));
                continue;
            }
            keys.push(TokenKey { algorithm, file: file.into(), kid });
        }
        keys
    }

    /// The lines of `tavern check` in the order of the schema, then the kinds and token keys.
    fn in_order(&mut self) -> Vec<Entry> {
        let place = |entry: &Entry| schema::KEYS.iter().position(|key| key.name == entry.key);
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by_key(|entry| place(entry).unwrap_or(schema::KEYS.len()));
        entries
    }
}

fn from_preset(preset: Preset) -> Option<Value> {
    match preset {
        Preset::Absent => None,
        Preset::Text(text) => Some(Value::Text(text.to_owned())),
        Preset::Flag(flag) => Some(Value::Flag(flag)),
        Preset::List(list) => Some(Value::List(list.iter().map(|&item| item.to_owned()).collect())),
        Preset::Integer(number) => Some(Value::Integer(number)),
    }
}

/// The value as it may be seen.
pub(super) fn shown(key: &Key, value: Option<&Value>) -> serde_json::Value {
    match (key.shape, value) {
        (_, None) => serde_json::Value::Null,
        (Type::Secret, Some(_)) => json!("(hidden)"),
        (Type::Link, Some(Value::Text(link))) => json!(without_password(link)),
        (_, Some(Value::Text(text))) => json!(text),
        (_, Some(Value::Flag(flag))) => json!(flag),
        (_, Some(Value::List(list))) => json!(list),
        (_, Some(Value::Integer(number))) => json!(number),
    }
}
