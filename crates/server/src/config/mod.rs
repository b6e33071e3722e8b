//! The configuration: what the operator says, checked once and plain from then on. Layers, from weak to strong:
//! defaults, `tavern.toml`, `TAVERN_…` variables, flags. Reads no clock and opens nothing but its own file.
//! Must hold: a `Config` that was handed out is valid as a whole; no secret can be printed through it.

mod checks;
mod cidr;
pub mod dev;
mod environment;
pub mod example;
mod kinds;
mod layer;
mod origin;
mod place;
pub mod schema;
mod secret;
mod sections;
mod values;

pub use cidr::Cidr;
pub use environment::Flag;
pub use origin::{ConfigError, ConfigErrors, Origin};
pub use secret::{Secret, without_password};
pub use sections::{
    Authorize, Channel, Events, Inbox, Kind, Limits, LocalLog, LogFormat, Metrics, Nodes, Parties, Presence,
    PresenceMode, Sessions, SlowReader, TokenKey,
};

use layer::{Given, Value};
use sections::{General, Section};
use values::Values;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// Channels that mean something else than the others of their kind.
    pub channels: BTreeMap<String, Channel>,
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
        Config::build(Values::new(sources.mode, given, errors), sources.for_server)
    }

    /// Ends with a whole `Config` whatever is wrong, so that all errors can be reported together.
    fn build(mut values: Values, for_server: bool) -> Loaded {
        let general = General::read(&mut values);
        let places = place::places(&mut values, &general);
        let mut limits = Limits::read(&mut values);
        limits.json_frame_bytes =
            checks::json_frame_bytes(&mut values, limits.json_frame_bytes, limits.message_bytes);
        let config = Config {
            mode: values.mode,
            listen: places.listen,
            resp: places.resp,
            data: places.data,
            store: places.store,
            bus: places.bus,
            node: places.node,
            threads: checks::threads(&mut values, general.threads),
            origins: checks::origins(&mut values, &general.origins),
            trusted_proxies: checks::trusted_proxies(&mut values, &general.trusted_proxies),
            tls: checks::tls(&mut values, &general),
            secret: general.secret,
            admin_key: general.admin_key,
            prefix: general.prefix,
            log: general.log,
            log_level: general.log_level,
            sessions: Sessions::read(&mut values),
            nodes: Nodes::read(&mut values),
            local: LocalLog::read(&mut values),
            limits,
            kinds: kinds::kinds(&mut values),
            channels: kinds::channels(&mut values),
            presence: Presence::read(&mut values),
            authorize: Authorize::read(&mut values),
            events: Events::read(&mut values),
            metrics: Metrics::read(&mut values),
            parties: Parties::read(&mut values),
            inbox: Inbox::read(&mut values),
            token_keys: kinds::token_keys(&mut values),
            entries: Vec::new(),
        };
        checks::check(&mut values, &config, for_server);
        let (entries, errors) = values.finish();
        Loaded { config: Config { entries, ..config }, errors }
    }

    /// What holds for channels of this kind.
    pub fn kind(&self, kind: &str) -> &Kind {
        self.kinds.get(kind).unwrap_or_else(|| &self.kinds["default"])
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
mod tests;
