//! The configuration: what the operator says, checked once and plain from then on. Layers, from weak to strong:
//! defaults, `tavern.toml`, `TAVERN_…` variables, flags. Reads no clock and opens nothing but its own file.
//! Must hold: a `Config` that was handed out is valid as a whole; no secret can be printed through it.

mod cidr;
pub mod dev;
mod draft;
mod environment;
mod layer;
mod metrics;
mod origin;
mod place;
pub mod schema;
mod secret;
mod whole;

pub use cidr::Cidr;
pub use environment::Flag;
pub use metrics::Metrics;
pub use origin::{ConfigError, ConfigErrors, Origin};
pub use secret::{Secret, without_password};

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use tavern_domain::Verbs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Everything is allowed, on loopback only.
    Dev,
    /// For real: denies by default.
    Serve,
}

#[derive(Clone)]
pub struct Config {
    pub mode: Mode,
    pub listen: SocketAddr,
    /// The Redis protocol; absent when switched off with `resp = ""`.
    pub resp: Option<SocketAddr>,
    /// The folder for what this machine keeps: the SQLite store, the local bus, the secrets of dev mode.
    pub data: PathBuf,
    pub store: String,
    pub bus: String,
    pub node: String,
    pub secret: Option<Secret>,
    pub admin_key: Option<Secret>,
    /// Shards; the zero of the file is already resolved.
    pub threads: usize,
    /// Web origins that may connect, as browsers write them; `*` means any.
    pub origins: Vec<String>,
    pub trusted_proxies: Vec<Cidr>,
    pub tls: Option<Tls>,
    pub prefix: String,
    pub log: LogFormat,
    pub log_level: String,
    pub sessions: Sessions,
    pub nodes: Nodes,
    pub local: LocalLog,
    pub limits: Limits,
    /// Always holds `default`; ask through `kind`.
    pub kinds: BTreeMap<String, Kind>,
    pub presence: Presence,
    pub authorize: Authorize,
    pub events: Events,
    pub metrics: Metrics,
    pub parties: Parties,
    pub inbox: Inbox,
    /// Public keys whose tokens are accepted beside those signed with the secret.
    pub token_keys: Vec<TokenKey>,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub cert: PathBuf,
    pub key: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug)]
pub struct Sessions {
    pub resume_ms: u64,
    pub heartbeat_ms: u64,
    pub poll_idle_ms: u64,
    pub drain_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Nodes {
    pub heartbeat_ms: u64,
    pub lease_ms: u64,
}

/// How much the folder keeps for processes that have not read it: the local bus.
#[derive(Clone, Copy, Debug)]
pub struct LocalLog {
    pub messages: u64,
    pub bytes: u64,
    pub age_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub message_bytes: usize,
    pub mailbox_events: usize,
    pub mailbox_bytes: usize,
    pub mailbox_sent_ms: u64,
    pub mailbox_total_bytes: usize,
    pub channels_per_session: usize,
    /// Zero: no limit. The burst is twice this.
    pub commands_per_second: u32,
    pub connections_per_address: usize,
    pub state_bytes: usize,
    pub connections: usize,
    /// Unfinished input of all connections together.
    pub partial_total_bytes: usize,
    pub http_header_ms: u64,
    /// One JSON frame: a message and what stands around it.
    pub json_frame_bytes: usize,
    pub inbox_parcels: usize,
    /// Unread bytes of a Redis connection before it is closed.
    pub redis_pending_bytes: usize,
    pub idempotency_keys: usize,
    /// How many one user may follow.
    pub following: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowReader {
    Gap,
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceMode {
    Auto,
    Full,
    Coalesced,
    Counts,
}

#[derive(Clone, Debug)]
pub struct Kind {
    pub grace_ms: u64,
    pub slow_reader: SlowReader,
    pub presence_mode: PresenceMode,
    pub activity: String,
    /// What everybody may do there.
    pub allow: Verbs,
}

#[derive(Clone, Debug)]
pub struct Presence {
    pub tick_ms: u64,
    pub coalesce_at: u64,
    pub counts_at: u64,
    pub disconnect_coalesce_ms: u64,
    pub last_seen_ms: u64,
    pub sweep_ms: u64,
    pub sweep_age_ms: u64,
    pub priority: Vec<String>,
}

#[derive(Clone)]
pub struct Authorize {
    /// The hook; absent when there is none.
    pub url: Option<String>,
    pub cache_ms: u64,
}

#[derive(Clone, Debug)]
pub struct Events {
    pub allow_http: bool,
    pub allow_private: bool,
    pub backoff_min_ms: u64,
    pub backoff_max_ms: u64,
    pub lease_ms: u64,
    pub connect_timeout_ms: u64,
    pub request_timeout_ms: u64,
    pub max_bytes: u64,
    pub low_bytes: u64,
    pub retention_ms: u64,
    pub dedupe_max: u64,
    pub rotation_ms: u64,
    pub disable_after_ms: u64,
}

#[derive(Clone)]
pub struct Parties {
    pub max_members: usize,
    pub invite_ms: u64,
    pub gather_ms: u64,
    pub grace_ms: u64,
    pub reinvite_ms: u64,
    pub invites_per_minute: u32,
    pub max_pending: usize,
    pub block_ms: u64,
    pub require_ready: bool,
    pub matchmaker_url: Option<String>,
    /// What signs its callbacks: `whsec_…`.
    pub matchmaker_secret: Option<Secret>,
}

#[derive(Clone, Debug)]
pub struct Inbox {
    pub letters: usize,
    pub bytes: usize,
    pub keep_ms: u64,
}

/// One `[[tokens.keys]]`.
#[derive(Clone, Debug)]
pub struct TokenKey {
    pub algorithm: String,
    pub file: PathBuf,
    pub kid: Option<String>,
}

/// One line of `tavern check`: a key, its value as it may be shown, and where it came from.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: String,
    pub value: serde_json::Value,
    pub origin: Origin,
}

/// What a configuration is made of.
pub struct Sources {
    pub mode: Mode,
    /// The file to read. Absent: `tavern.toml` in this folder, if there is one.
    pub file: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
    pub flags: Vec<Flag>,
    /// Commands that only look at a store or sign a token do without what a server needs.
    pub for_server: bool,
}

/// The outcome of reading: what holds, and everything that is wrong with it.
pub struct Loaded {
    pub config: Config,
    pub errors: Vec<ConfigError>,
}

pub const FILE: &str = "tavern.toml";

impl Config {
    pub fn load(sources: Sources) -> Loaded {
        let (mut given, mut errors) = (Vec::new(), Vec::new());
        let from_environment =
            |(name, value): &(String, String)| (name == "TAVERN_CONFIG").then(|| value.into());
        let named = sources.file.or_else(|| sources.environment.iter().find_map(from_environment));
        let file = named.clone().unwrap_or_else(|| FILE.into());
        match read_bounded(&file) {
            Ok(text) => {
                let (mut keys, mut wrong) = layer::read_file(&file.display().to_string(), &text);
                given.append(&mut keys);
                errors.append(&mut wrong);
            }
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                errors.push(ConfigError::general(format!("cannot read {}: {error}", file.display())));
            }
        }
        for (mut keys, mut wrong) in
            [environment::read_environment(sources.environment), environment::read_flags(sources.flags)]
        {
            given.append(&mut keys);
            errors.append(&mut wrong);
        }
        draft::build(sources.mode, sources.for_server, given, errors)
    }

    /// What holds for channels of this kind.
    pub fn kind(&self, kind: &str) -> &Kind {
        self.kinds.get(kind).unwrap_or_else(|| &self.kinds["default"])
    }

    /// What being present in this channel means.
    pub fn activity(&self, channel: &str) -> &str {
        let kind = channel.split('#').next().unwrap_or(channel);
        // The one built-in activity that belongs to a channel and not to a whole kind.
        if channel == "lobby#puzzles" && !self.kinds.contains_key("lobby") {
            return "solving_puzzles";
        }
        &self.kind(kind).activity
    }

    /// Where the value of a key came from.
    pub fn origin(&self, key: &str) -> Origin {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map_or(Origin::Default, |entry| entry.origin.clone())
    }

    /// Every effective value, fit to be shown.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Sets what is only known after reading, such as the secrets of dev mode.
    fn note(&mut self, key: &str, value: serde_json::Value, origin: Origin) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            (entry.value, entry.origin) = (value, origin);
        }
    }
}

// Addresses may hold passwords, so a configuration is shown through `entries` only.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("mode", &self.mode).field("node", &self.node).finish_non_exhaustive()
    }
}

impl Loaded {
    pub fn valid(self) -> Result<Config, ConfigErrors> {
        if self.errors.is_empty() { Ok(self.config) } else { Err(ConfigErrors(self.errors)) }
    }
}

fn read_bounded(path: &std::path::Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(layer::FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > layer::FILE_BYTES {
        return Err(std::io::Error::other("larger than 1 MiB, which is no configuration"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(flags: &[(&str, &str)]) -> Vec<Flag> {
        let flag = |(key, text): &(&str, &str)| Flag {
            flag: format!("--{key}"),
            key: (*key).to_owned(),
            text: (*text).to_owned(),
        };
        flags.iter().map(flag).collect()
    }

    fn load(mode: Mode, text: &str, environment: &[(&str, &str)], given: &[(&str, &str)]) -> Loaded {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::fs::write(&file, text).unwrap();
        let environment =
            environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Config::load(Sources { mode, file: Some(file), environment, flags: flags(given), for_server: true })
    }

    fn dev(text: &str) -> Config {
        load(Mode::Dev, text, &[], &[]).valid().unwrap()
    }

    const LONG: &str = "0123456789abcdef0123456789abcdef";

    fn serve_errors(given: &[(&str, &str)]) -> Vec<String> {
        let loaded = load(Mode::Serve, "", &[], given);
        loaded.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_stronger_layer_wins_and_is_named() {
        let text = "listen = \"127.0.0.1:1\"\n[sessions]\nresume_ms = 1\nheartbeat_ms = 200\n";
        let environment = [("TAVERN_LISTEN", "127.0.0.1:2"), ("TAVERN_SESSIONS_RESUME_MS", "2")];
        let loaded = load(Mode::Dev, text, &environment, &[("listen", "127.0.0.1:3")]);
        let config = loaded.valid().unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.origin("listen"), Origin::Flag("--listen".into()));
        assert_eq!(config.sessions.resume_ms, 2);
        assert_eq!(config.origin("sessions.resume_ms").to_string(), "TAVERN_SESSIONS_RESUME_MS");
        assert_eq!(config.sessions.heartbeat_ms, 200);
        assert!(config.origin("sessions.heartbeat_ms").to_string().ends_with("tavern.toml:4"));
        assert_eq!(config.origin("sessions.drain_ms"), Origin::Default);
    }

    #[test]
    fn every_key_is_shown_once() {
        let config = dev("");
        for key in schema::KEYS {
            let count = config.entries().iter().filter(|entry| entry.key == key.name).count();
            assert_eq!(count, 1, "{}", key.name);
        }
    }

    #[test]
    fn the_empty_dev_configuration_allows_everything_on_loopback() {
        let config = dev("");
        assert_eq!(config.kind("anything").allow, Verbs::ALL);
        assert_eq!(config.origin("kinds.default.allow"), Origin::DevMode);
        assert_eq!(config.limits.commands_per_second, 0);
        assert!(config.events.allow_http && config.events.allow_private);
        assert_eq!(config.resp.unwrap().port(), 7401);
        assert_eq!(config.store, "sqlite:./tavern-data");
        assert_eq!(config.bus, "local");
        assert_eq!(config.limits.json_frame_bytes, 65_536 + 4_096);
        let outside = load(Mode::Dev, "", &[], &[("listen", "0.0.0.0:7400"), ("resp", "10.0.0.1:7401")]);
        assert_eq!(outside.errors.len(), 2);
    }

    #[test]
    fn serve_denies_by_default_and_needs_a_secret() {
        assert!(serve_errors(&[])[0].contains("openssl rand -hex 32"));
        assert_eq!(serve_errors(&[("secret", LONG)]), [""; 0]);
        assert!(serve_errors(&[("secret", "short")])[0].contains("has 5 bytes"));
        let config = load(Mode::Serve, "", &[], &[("secret", LONG)]).valid().unwrap();
        assert_eq!(config.kind("game").allow, Verbs::NONE);
        assert_eq!(config.limits.commands_per_second, 100);
        assert!(!format!("{config:?} {:?}", config.entries()).contains(LONG));
    }

    #[test]
    fn a_kind_takes_from_default_what_it_does_not_say() {
        let config = dev("[kinds.default]\nallow = [\"join\"]\ngrace_ms = 7\n[kinds.game]\ngrace_ms = 0\n");
        assert_eq!(config.kind("game").grace_ms, 0);
        assert_eq!(config.kind("game").allow, Verbs::NONE.with(tavern_domain::Verb::Join));
        assert_eq!(config.kind("lobby").grace_ms, 7);
        assert_eq!(config.origin("kinds.game.allow").to_string(), "derived: kinds.default");
    }

    #[test]
    fn channels_mean_activities() {
        let config = dev("[kinds.quiz]\nactivity = \"guessing\"\n");
        for (channel, activity) in [
            ("activegame#1", "playing"),
            ("game#1", "in_game_channel"),
            ("gametv#1", "watching"),
            ("lobby#puzzles", "solving_puzzles"),
            ("lobby#other", "online"),
            ("anno", "annotating"),
            ("quiz#1", "guessing"),
        ] {
            assert_eq!(config.activity(channel), activity, "{channel}");
        }
    }

    #[test]
    fn data_and_store_say_the_same_thing() {
        let store = |text: &str, given: &[(&str, &str)]| {
            let loaded = load(Mode::Dev, text, &[], given);
            (loaded.config.store.clone(), loaded.config.data.clone(), loaded.errors.len())
        };
        assert_eq!(store("", &[("data", "/d")]), ("sqlite:/d".into(), "/d".into(), 0));
        assert_eq!(store("", &[("store", "sqlite:/s")]), ("sqlite:/s".into(), "/s".into(), 0));
        assert_eq!(store("store = \"sqlite:/s\"", &[("data", "/d")]), ("sqlite:/d".into(), "/d".into(), 0));
        assert_eq!(store("data = \"/d\"", &[("store", "sqlite:/s")]), ("sqlite:/s".into(), "/s".into(), 0));
        assert_eq!(store("", &[("store", "sqlite:/s"), ("data", "/d")]).2, 1);
        assert_eq!(store("", &[("store", "mysql://x")]).2, 1);
        assert_eq!(store("", &[("store", "postgres://x/y")]).2, 1, "needs a bus");
        assert_eq!(store("", &[("store", "postgres://x/y"), ("bus", "nats://z"), ("data", "/d")]).2, 0);
    }

    #[test]
    fn what_does_not_fit_together_is_told_together() {
        let errors = serve_errors(&[
            ("events.low_bytes", "2000000000"),
            ("tls_cert", "a.pem"),
            ("kinds.user.allow", "publish"),
            ("kinds.game.allow", "fly"),
            ("node", "a b"),
            ("origins", "example.com"),
            ("trusted_proxies", "10.0.0.1/8"),
            ("authorize.url", "ftp://x"),
            ("log_level", "tavern=loud"),
            ("metrics.statsd", "8125"),
            ("listen", "here"),
            ("resume", "1"),
        ]);
        // Eleven wrong values, one unknown key, and the missing secret.
        assert_eq!(errors.len(), 13, "{errors:#?}");
        assert!(errors.iter().any(|error| error
            == "--events.low_bytes: events.low_bytes (2000000000) must be below events.max_bytes (1073741824)"));
    }

    #[test]
    fn a_named_file_must_exist() {
        let sources = |file: &str| Sources {
            mode: Mode::Dev,
            file: Some(file.into()),
            environment: Vec::new(),
            flags: Vec::new(),
            for_server: true,
        };
        let error = Config::load(sources("/nowhere/tavern.toml")).valid().unwrap_err().to_string();
        assert!(error.contains("/nowhere"));
    }
}
