//! Every key of the configuration with its type, bounds and default. The one list that the file, the environment, the
//! flags and `tavern check` are read against. Knows no values. Must hold: a name stands here once.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Text,
    /// Text that is never shown.
    Secret,
    /// An address that may hold a password, which is never shown.
    Link,
    Choice(&'static [&'static str]),
    Flag,
    List,
    Integer {
        min: u64,
        max: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// No value of its own: absent, or derived from other keys.
    Absent,
    Text(&'static str),
    Flag(bool),
    List(&'static [&'static str]),
    Integer(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub shape: Type,
    pub preset: Preset,
    /// What dev mode takes instead.
    pub dev: Option<Preset>,
}

const fn key(name: &'static str, shape: Type, preset: Preset) -> Key {
    Key { name, shape, preset, dev: None }
}

const fn text(name: &'static str, preset: &'static str) -> Key {
    key(name, Type::Text, Preset::Text(preset))
}

const fn integer(name: &'static str, preset: u64, min: u64, max: u64) -> Key {
    key(name, Type::Integer { min, max }, Preset::Integer(preset))
}

const fn flag(name: &'static str, preset: bool) -> Key {
    key(name, Type::Flag, Preset::Flag(preset))
}

impl Key {
    const fn in_dev(mut self, preset: Preset) -> Key {
        self.dev = Some(preset);
        self
    }
}

pub const SLOW_READERS: &[&str] = &["gap", "close"];
pub const PRESENCE_MODES: &[&str] = &["auto", "full", "coalesced", "counts"];
pub const LOG_FORMATS: &[&str] = &["text", "json"];
pub const ALGORITHMS: &[&str] =
    &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
const VERBS: &[&str] = &["subscribe", "publish", "join", "presence"];
const PRIORITY: &[&str] =
    &["playing", "in_game_channel", "watching", "solving_puzzles", "annotating", "online"];

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const YEAR_MS: u64 = 366 * DAY_MS;
const TIB: u64 = 1 << 40;

/// The keys with a fixed name, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    text("listen", "127.0.0.1:7400"),
    text("resp", "127.0.0.1:7401"),
    text("data", "./tavern-data"),
    key("store", Type::Link, Preset::Absent),
    key("bus", Type::Link, Preset::Absent),
    key("node", Type::Text, Preset::Absent),
    key("secret", Type::Secret, Preset::Absent),
    key("admin_key", Type::Secret, Preset::Absent),
    integer("threads", 0, 0, 1024),
    key("origins", Type::List, Preset::List(&[])),
    key("trusted_proxies", Type::List, Preset::List(&[])),
    key("tls_cert", Type::Text, Preset::Absent),
    key("tls_key", Type::Text, Preset::Absent),
    text("prefix", "tavern"),
    key("log", Type::Choice(LOG_FORMATS), Preset::Text("text")),
    text("log_level", "info"),
    integer("sessions.resume_ms", 2_000, 0, 60_000),
    integer("sessions.heartbeat_ms", 15_000, 100, HOUR_MS),
    integer("sessions.poll_idle_ms", 45_000, 1_000, HOUR_MS),
    integer("sessions.drain_ms", 15_000, 0, 10 * 60_000),
    integer("nodes.heartbeat_ms", 2_000, 50, 60_000),
    integer("nodes.lease_ms", 10_000, 200, 10 * 60_000),
    integer("local.log_messages", 100_000, 16, 1 << 32),
    integer("local.log_bytes", 67_108_864, 1 << 16, TIB),
    integer("local.log_age_ms", HOUR_MS, 1_000, YEAR_MS),
    integer("limits.message_bytes", 65_536, 1, 64 << 20),
    integer("limits.mailbox_events", 1_024, 1, 1 << 24),
    integer("limits.mailbox_bytes", 1_048_576, 1_024, 1 << 32),
    integer("limits.mailbox_sent_ms", 30_000, 0, HOUR_MS),
    integer("limits.mailbox_total_bytes", 1_073_741_824, 1 << 16, TIB),
    integer("limits.channels_per_session", 256, 1, 1 << 20),
    integer("limits.commands_per_second", 100, 0, 1_000_000).in_dev(Preset::Integer(0)),
    integer("limits.connections_per_address", 1_000, 1, 10_000_000),
    integer("limits.state_bytes", 4_096, 0, 1 << 20),
    integer("limits.connections", 100_000, 1, 10_000_000),
    integer("limits.partial_total_bytes", 268_435_456, 1 << 16, TIB),
    integer("limits.http_header_ms", 10_000, 100, 10 * 60_000),
    key("limits.json_frame_bytes", Type::Integer { min: 1, max: 65 << 20 }, Preset::Absent),
    integer("limits.inbox_parcels", 65_536, 16, 1 << 26),
    integer("limits.redis_pending_bytes", 33_554_432, 1_024, 1 << 32),
    integer("limits.idempotency_keys", 100_000, 0, 1 << 26),
    integer("limits.following", 5_000, 0, 100_000),
    integer("presence.tick_ms", 250, 10, 60_000),
    integer("presence.coalesce_at", 200, 1, 1 << 32),
    integer("presence.counts_at", 5_000, 1, 1 << 32),
    integer("presence.disconnect_coalesce_ms", 1_000, 0, 60_000),
    integer("presence.last_seen_ms", 60_000, 1_000, DAY_MS),
    integer("presence.sweep_ms", 60_000, 100, DAY_MS),
    integer("presence.sweep_age_ms", 120_000, 100, DAY_MS),
    key("presence.priority", Type::List, Preset::List(PRIORITY)),
    key("authorize.url", Type::Link, Preset::Text("")),
    integer("authorize.cache_ms", 5_000, 0, HOUR_MS),
    flag("events.allow_http", false).in_dev(Preset::Flag(true)),
    flag("events.allow_private", false).in_dev(Preset::Flag(true)),
    integer("events.backoff_min_ms", 1_000, 1, DAY_MS),
    integer("events.backoff_max_ms", 600_000, 1, 7 * DAY_MS),
    integer("events.lease_ms", 30_000, 1_000, tavern_store::limits::LEASE_MS),
    integer("events.connect_timeout_ms", 2_000, 10, 60_000),
    integer("events.request_timeout_ms", 20_000, 10, 10 * 60_000),
    integer("events.max_bytes", 1_073_741_824, 1 << 16, 1 << 50),
    integer("events.low_bytes", 858_993_459, 1, 1 << 50),
    integer("events.retention_ms", 604_800_000, 1_000, 10 * YEAR_MS),
    integer("events.dedupe_max", 1_000_000, 0, 1 << 32),
    integer("events.rotation_ms", 86_400_000, 0, YEAR_MS),
    integer("events.disable_after_ms", 432_000_000, 0, YEAR_MS),
    text("metrics.statsd", ""),
    text("metrics.statsd_prefix", "tavern."),
    integer("metrics.statsd_ms", 10_000, 100, HOUR_MS),
    integer("metrics.log_ms", 0, 0, DAY_MS),
    integer("parties.max_members", 5, 2, 64),
    integer("parties.invite_ms", 60_000, 1, DAY_MS),
    integer("parties.gather_ms", 10_000, 1, HOUR_MS),
    integer("parties.grace_ms", 30_000, 0, HOUR_MS),
    integer("parties.reinvite_ms", 30_000, 0, DAY_MS),
    integer("parties.invites_per_minute", 20, 1, 100_000),
    integer("parties.max_pending", 8, 1, 10_000),
    integer("parties.block_ms", 60_000, 0, YEAR_MS),
    flag("parties.require_ready", false),
    key("parties.matchmaker_url", Type::Link, Preset::Text("")),
    key("parties.matchmaker_secret", Type::Secret, Preset::Absent),
    integer("inbox.letters", 256, 1, 1 << 20),
    integer("inbox.bytes", 65_536, 256, 1 << 30),
    integer("inbox.keep_ms", 600_000, 0, YEAR_MS),
];

/// The keys of one `[kinds.NAME]`. What a kind does not say comes from `[kinds.default]`.
pub const KIND_KEYS: &[Key] = &[
    integer("grace_ms", 15_000, 0, 600_000),
    key("slow_reader", Type::Choice(SLOW_READERS), Preset::Text("gap")),
    key("presence_mode", Type::Choice(PRESENCE_MODES), Preset::Text("auto")),
    text("activity", "online"),
    key("allow", Type::List, Preset::List(&[])).in_dev(Preset::List(VERBS)),
];

/// The keys of one `[[tokens.keys]]`: a public key whose tokens are accepted.
pub const TOKEN_KEYS: &[Key] = &[
    key("algorithm", Type::Choice(ALGORITHMS), Preset::Absent),
    key("file", Type::Text, Preset::Absent),
    key("kid", Type::Text, Preset::Absent),
];

/// What being in a channel of these kinds means, unless the configuration says otherwise.
pub const ACTIVITIES: &[(&str, &str)] = &[
    ("activegame", "playing"),
    ("game", "in_game_channel"),
    ("gametv", "watching"),
    ("anno", "annotating"),
    ("party", "in_party"),
];

/// The key with this full name: `listen`, `sessions.resume_ms`, `kinds.game.allow`, `tokens.keys.0.file`.
pub fn find(name: &str) -> Option<&'static Key> {
    if let Some((kind, field)) = name.strip_prefix("kinds.").and_then(|rest| rest.rsplit_once('.')) {
        let known = tavern_domain::channel::is_kind(kind);
        return KIND_KEYS.iter().find(|key| known && key.name == field);
    }
    if let Some((index, field)) = name.strip_prefix("tokens.keys.").and_then(|rest| rest.rsplit_once('.')) {
        let known = index.len() <= 2 && index.bytes().all(|b| b.is_ascii_digit()) && !index.is_empty();
        return TOKEN_KEYS.iter().find(|key| known && key.name == field);
    }
    KEYS.iter().find(|key| key.name == name)
}

/// The names that may stand in a section; the empty section is the top of the file.
pub fn names_in(section: &str) -> Vec<&'static str> {
    if section.starts_with("kinds.") {
        return KIND_KEYS.iter().map(|key| key.name).collect();
    }
    if section.starts_with("tokens.keys") {
        return TOKEN_KEYS.iter().map(|key| key.name).collect();
    }
    let inside = |key: &'static Key| match key.name.rsplit_once('.') {
        Some((of, name)) => (of == section).then_some(name),
        None => section.is_empty().then_some(key.name),
    };
    KEYS.iter().filter_map(inside).collect()
}

/// The tables of the file.
pub fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = KEYS.iter().filter_map(|key| Some(key.name.split_once('.')?.0)).collect();
    sections.dedup();
    sections.extend(["kinds", "tokens"]);
    sections
}

/// The known name that was probably meant.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A name longer than any key was not meant to be one, and the distance costs the product of the lengths.
    if written.len() > 64 {
        return None;
    }
    let allowed = (written.len() / 3).clamp(1, 3);
    let scored = known.into_iter().map(|name| (distance(written, name), name));
    scored
        .filter(|&(distance, _)| distance <= allowed)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// How many letters must be added, removed, changed or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_once_and_its_default_is_inside_its_bounds() {
        for (index, key) in KEYS.iter().enumerate() {
            assert!(!KEYS[..index].iter().any(|other| other.name == key.name), "{}", key.name);
            if let (Type::Integer { min, max }, Preset::Integer(preset)) = (key.shape, key.preset) {
                assert!((min..=max).contains(&preset), "{}", key.name);
            }
        }
    }

    #[test]
    fn keys_are_found_by_their_full_name() {
        for (name, found) in [
            ("listen", true),
            ("sessions.resume_ms", true),
            ("kinds.game.grace_ms", true),
            ("kinds.my_game.allow", true),
            ("kinds.Game.allow", false),
            ("kinds.game.colour", false),
            ("tokens.keys.0.file", true),
            ("tokens.keys.x.file", false),
            ("resume_ms", false),
            ("sessions", false),
        ] {
            assert_eq!(find(name).is_some(), found, "{name}");
        }
    }

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let names = names_in("kinds.game");
        assert_eq!(nearest("graec_ms", names.iter().copied()), Some("grace_ms"));
        assert_eq!(nearest("slowreader", names.iter().copied()), Some("slow_reader"));
        assert_eq!(nearest("colour", names.iter().copied()), None);
        assert_eq!(nearest("sesions", sections()), Some("sessions"));
    }
}
