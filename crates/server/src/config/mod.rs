//! The configuration, validated once. Layers, each overriding the one before: defaults, `tavern.toml`, `TAVERN_…`
//! variables, flags. Opens only its own file. Must hold: a `Config` returned by `valid` is valid as a whole; no secret can
//! be printed through it.

mod built_in;
mod checks;
mod cidr;
pub mod dev;
mod environment;
pub mod example;
mod kinds;
mod layer;
mod lists;
mod origin;
mod place;
pub mod schema;
mod secret;
mod sections;
mod values;

pub use checks::SECRET_BYTES;
pub use cidr::Cidr;
pub use environment::Flag;
pub use lists::{PusherAppConfig, PusherAppTable, PusherWebhookConfig, TokenKeyConfig};
pub use origin::{ConfigError, ConfigErrors, ValueSource};
pub use secret::{SecretText, without_password};
pub use sections::{
    AuthorizeConfig, ChannelConfig, ClockConfig, DashboardConfig, EventsConfig, HistoryConfig, HistoryRight,
    InboxConfig, KindConfig, LimitsConfig, LocalBusConfig, LogFormat, MetricsConfig, NodesConfig,
    PartiesConfig, PresenceConfig, PresenceMode, RadarConfig, SessionsConfig, SlowReader, TokensConfig,
};

use layer::{ConfigValue, SetKey};
use sections::{ConfigSection, TopLevel};
use values::Values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerMode {
    /// Everything is allowed, on loopback only.
    Dev,
    /// Production: denies by default.
    Serve,
}

#[derive(Clone)]
pub struct Config {
    pub mode: ServerMode,
    pub listen: SocketAddr,
    /// A second address, for operators.
    pub admin_listen: Option<SocketAddr>,
    /// The Redis protocol; absent when switched off with `resp = ""`.
    pub resp: Option<SocketAddr>,
    /// The data folder: the SQLite store, the local bus, the secrets of dev mode.
    pub data: PathBuf,
    pub store: String,
    pub bus: String,
    pub node: String,
    pub secret: Option<SecretText>,
    /// Checks tokens too, while the secret is being replaced.
    pub former_secret: Option<SecretText>,
    pub admin_key: Option<SecretText>,
    /// The number of shards; a zero in the file is already resolved.
    pub threads: usize,
    /// Web origins that may connect, as browsers write them; `*` means any.
    pub origins: Vec<String>,
    pub trusted_proxies: Vec<Cidr>,
    pub tls: Option<TlsFiles>,
    pub prefix: String,
    /// The OTLP/HTTP collector for traces.
    pub otlp_url: Option<String>,
    pub otlp_sample_percent: u64,
    pub log: LogFormat,
    pub log_level: String,
    pub sessions: SessionsConfig,
    pub nodes: NodesConfig,
    pub clock: ClockConfig,
    pub tokens: TokensConfig,
    pub local: LocalBusConfig,
    pub limits: LimitsConfig,
    /// Always contains `default`; use `kind` to look one up.
    pub kinds: BTreeMap<String, KindConfig>,
    /// Channels whose settings differ from their kind.
    pub channels: BTreeMap<String, ChannelConfig>,
    pub presence: PresenceConfig,
    pub authorize: AuthorizeConfig,
    pub events: EventsConfig,
    pub metrics: MetricsConfig,
    pub parties: PartiesConfig,
    pub inbox: InboxConfig,
    pub history: HistoryConfig,
    pub radar: RadarConfig,
    pub dashboard: DashboardConfig,
    /// Keys whose tokens are accepted, in addition to those signed with the secrets.
    pub token_keys: Vec<TokenKeyConfig>,
    /// Apps whose clients speak the Pusher protocol; empty: it is not served.
    pub pusher_apps: Vec<PusherAppTable>,
    entries: Vec<EffectiveValue>,
    warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// One line of `tavern check`: a key, its value without secrets, and its origin.
#[derive(Clone, Debug)]
pub struct EffectiveValue {
    pub key: String,
    pub value: serde_json::Value,
    pub origin: ValueSource,
}

/// The sources of a configuration.
pub struct Sources {
    pub mode: ServerMode,
    /// The file to read. Absent: `tavern.toml` in this folder, if there is one.
    pub file: Option<PathBuf>,
    pub environment: Vec<(String, String)>,
    pub flags: Vec<Flag>,
    /// False for commands that only open a store or sign a token.
    pub for_server: bool,
}

/// The configuration and all its errors.
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
        let environment = environment::read_environment(sources.environment);
        let (flags, wrong_flags) = environment::read_flags(sources.flags);
        given.extend(environment.given.into_iter().chain(flags));
        errors.extend(environment.errors.into_iter().chain(wrong_flags));
        let mut loaded = Config::build(Values::new(sources.mode, given, errors), sources.for_server);
        loaded.config.warnings = environment.warnings;
        loaded
    }

    /// Returns a complete `Config` even with errors, so that all errors can be reported together.
    fn build(mut values: Values, for_server: bool) -> Loaded {
        let top = TopLevel::read(&mut values);
        let places = place::places(&mut values, &top);
        let mut limits = LimitsConfig::read(&mut values);
        limits.json_frame_bytes =
            checks::json_frame_bytes(&mut values, limits.json_frame_bytes, limits.message_bytes);
        let pusher_apps = kinds::pusher_apps(&mut values);
        let config = Config {
            mode: values.mode,
            listen: places.listen,
            admin_listen: places.admin_listen,
            resp: places.resp,
            data: places.data,
            store: places.store,
            bus: places.bus,
            node: places.node,
            threads: checks::threads(&mut values, top.threads),
            origins: checks::origins(&mut values, &top.origins),
            trusted_proxies: checks::trusted_proxies(&mut values, &top.trusted_proxies),
            tls: checks::tls(&mut values, &top),
            secret: top.secret,
            former_secret: top.former_secret,
            admin_key: top.admin_key,
            prefix: top.prefix,
            otlp_url: top.otlp_url,
            otlp_sample_percent: top.otlp_sample_percent,
            log: top.log,
            log_level: top.log_level,
            sessions: SessionsConfig::read(&mut values),
            nodes: NodesConfig::read(&mut values),
            clock: ClockConfig::read(&mut values),
            tokens: TokensConfig::read(&mut values),
            local: LocalBusConfig::read(&mut values),
            limits,
            kinds: kinds::kinds(&mut values, &pusher_apps),
            channels: kinds::channels(&mut values),
            presence: PresenceConfig::read(&mut values),
            authorize: AuthorizeConfig::read(&mut values),
            events: EventsConfig::read(&mut values),
            metrics: MetricsConfig::read(&mut values),
            parties: PartiesConfig::read(&mut values),
            inbox: InboxConfig::read(&mut values),
            history: HistoryConfig::read(&mut values),
            radar: RadarConfig::read(&mut values),
            dashboard: DashboardConfig::read(&mut values),
            token_keys: kinds::token_keys(&mut values),
            pusher_apps,
            entries: Vec::new(),
            warnings: Vec::new(),
        };
        checks::check(&mut values, &config, for_server);
        let (entries, errors) = values.finish();
        Loaded { config: Config { entries, ..config }, errors }
    }

    /// The settings of channels of this kind.
    pub fn kind(&self, kind: &str) -> &KindConfig {
        self.kinds.get(kind).unwrap_or_else(|| &self.kinds["default"])
    }

    /// Where the value of a key came from.
    pub fn origin(&self, key: &str) -> ValueSource {
        let found = self.entries.iter().find(|entry| entry.key == key);
        found.map_or(ValueSource::Default, |entry| entry.origin.clone())
    }

    /// The permissions of the data folder, if others than its owner have any.
    pub fn shared_data_mode(&self) -> Option<u32> {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&self.data).ok()?.permissions().mode() & 0o777;
        (mode & 0o077 != 0).then_some(mode)
    }

    /// Ignored settings, one line each. They do not prevent a start.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Every effective value, without secrets.
    pub fn entries(&self) -> &[EffectiveValue] {
        &self.entries
    }

    /// Sets the shown value of a key that is known only later, such as the secrets of dev mode.
    fn note(&mut self, key: &str, value: serde_json::Value, origin: ValueSource) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.key == key) {
            (entry.value, entry.origin) = (value, origin);
        }
    }
}

// Addresses may contain passwords, so a configuration is shown through `entries` only.
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
        return Err(std::io::Error::other("larger than 1 MiB: this is not a configuration file"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
