//! The options that several commands share: where the configuration comes from, how to reach a running server, and
//! which folder to use instead of one.

use crate::config::example::help;
use crate::config::{Config, Flag, Loaded, ServerMode, Sources, without_password};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tavern_client::{Api, Auth, Builder, Client, Transport, trust_pem};
use tavern_store::StillClock;
use tavern_store::blocking::BlockingStore;

/// The options of a server. They override `TAVERN_…` variables, which override the file.
// No Debug: it holds secrets.
#[derive(clap::Args, Default)]
pub struct ConfigOptions {
    /// The configuration file [default: tavern.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[arg(long, value_name = "HOST:PORT", help = help("listen"))]
    pub listen: Option<String>,
    #[arg(long, value_name = "HOST:PORT", help = help("resp"))]
    pub resp: Option<String>,
    #[arg(long, value_name = "DIR", help = help("data"))]
    pub data: Option<String>,
    #[arg(long, value_name = "ADDRESS", help = help("store"))]
    pub store: Option<String>,
    #[arg(long, value_name = "ADDRESS", help = help("bus"))]
    pub bus: Option<String>,
    #[arg(long, value_name = "TEXT", help = help("secret"))]
    pub secret: Option<String>,
    #[arg(long, value_name = "TEXT", help = help("admin_key"))]
    pub admin_key: Option<String>,
    #[arg(long, value_name = "NAME", help = help("node"))]
    pub node: Option<String>,
    #[arg(long, value_name = "FILE", help = help("tls_cert"))]
    pub tls_cert: Option<String>,
    #[arg(long, value_name = "FILE", help = help("tls_key"))]
    pub tls_key: Option<String>,
    #[arg(long, value_name = "N", help = help("threads"))]
    pub threads: Option<String>,
    #[arg(long, value_name = "FORMAT", help = help("log"))]
    pub log: Option<String>,
    #[arg(long, value_name = "LEVEL", help = help("log_level"))]
    pub log_level: Option<String>,
    /// Any other key: --set sessions.resume_ms=5000
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// For commands that only open the store or sign a token.
#[derive(clap::Args)]
pub struct StoreOptions {
    /// The configuration file [default: tavern.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[arg(long, value_name = "DIR", help = help("data"))]
    data: Option<String>,
    #[arg(long, value_name = "ADDRESS", help = help("store"))]
    store: Option<String>,
    /// Any other key: --set prefix=blue
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl StoreOptions {
    /// The configuration of a command that opens the store or signs a token, and needs no server.
    pub fn config(self, secret: Option<String>) -> anyhow::Result<Config> {
        let config = self.with_secret(secret).load(ServerMode::Serve, false)?.valid()?;
        print_warnings(&config);
        Ok(config)
    }

    /// Opens the store. One that does not exist is an error, so that a typing error does not create an empty store.
    pub fn open_existing(self, timeout: Duration) -> anyhow::Result<BlockingStore> {
        let config = self.config(None)?;
        if config.store.starts_with("sqlite:") && !config.data.join("tavern.db").exists() {
            bail!(
                "no Tavern store exists in {}; check --data, or start the server once to create the store",
                config.data.display()
            );
        }
        if config.store.starts_with("postgres") && !tavern_engines::store_facts(&config.store)?.is_made {
            bail!(
                "no Tavern store of this version exists in {}; check --store, or start the server once to create it",
                without_password(&config.store)
            );
        }
        Ok(tavern_engines::open_client(&config.store, Arc::new(StillClock), timeout)?)
    }

    fn with_secret(self, secret: Option<String>) -> ConfigOptions {
        let StoreOptions { config, data, store, set } = self;
        ConfigOptions { config, data, store, set, secret, ..ConfigOptions::default() }
    }
}

impl ConfigOptions {
    /// Reads all layers. `for_server` requires what only a server needs, such as the secret.
    pub fn load(self, mode: ServerMode, for_server: bool) -> anyhow::Result<Loaded> {
        let file = self.config.clone();
        let flags = self.flags()?;
        // Every variable of Tavern is UTF-8.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        let environment = std::env::vars_os().filter_map(text).collect();
        Ok(Config::load(Sources { mode, file, environment, flags, for_server }))
    }

    fn flags(self) -> anyhow::Result<Vec<Flag>> {
        let named = [
            ("--listen", "listen", self.listen),
            ("--resp", "resp", self.resp),
            ("--data", "data", self.data),
            ("--store", "store", self.store),
            ("--bus", "bus", self.bus),
            ("--secret", "secret", self.secret),
            ("--admin-key", "admin_key", self.admin_key),
            ("--node", "node", self.node),
            ("--tls-cert", "tls_cert", self.tls_cert),
            ("--tls-key", "tls_key", self.tls_key),
            ("--threads", "threads", self.threads),
            ("--log", "log", self.log),
            ("--log-level", "log_level", self.log_level),
        ];
        let mut flags = Vec::new();
        for (flag, key, text) in named {
            flags.extend(text.map(|text| Flag { flag: flag.to_owned(), key: key.to_owned(), text }));
        }
        for pair in self.set {
            let Some((key, text)) = pair.split_once('=') else {
                // The text may be a secret without its key, so the error does not repeat it.
                anyhow::bail!("--set must be KEY=VALUE, such as --set sessions.resume_ms=5000");
            };
            let key = key.trim().to_owned();
            flags.push(Flag { flag: format!("--set {key}"), key, text: text.to_owned() });
        }
        Ok(flags)
    }
}

/// Prints what was ignored in the configuration to stderr.
pub fn print_warnings(config: &Config) {
    for warning in config.warnings() {
        eprintln!("warning: {warning}");
    }
}

/// The address of a running server, and the credential.
#[derive(clap::Args)]
pub struct ServerOptions {
    /// The server [env: TAVERN_URL] [default: http://127.0.0.1:7400]
    #[arg(long)]
    url: Option<String>,
    /// A token, as printed by `tavern token` [env: TAVERN_TOKEN]
    #[arg(long, conflicts_with_all = ["key", "user"])]
    token: Option<String>,
    /// An API key [env: TAVERN_KEY]
    #[arg(long, conflicts_with = "user")]
    key: Option<String>,
    /// The user name; dev mode only [default: cli]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Trust the certificates of this PEM file instead of the public ones
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl ServerOptions {
    /// A server and an API key; without one, that of the variable or of `tavern dev`.
    pub fn with_key(url: String, key: Option<String>, ca: Option<PathBuf>) -> ServerOptions {
        ServerOptions { url: Some(url), token: None, key, user: None, ca }
    }

    /// A client that is not connected yet. Connecting fails if the server cannot be reached; later the client reconnects by
    /// itself.
    pub fn client(&self) -> anyhow::Result<Builder> {
        let mut builder = Client::builder(self.url())
            .auth(self.auth())
            .transports([Transport::WebSocket])
            .attempts(1)
            .backpressure();
        if let Some(pem) = self.certificates()? {
            builder = builder.tls(trust_pem(&pem)?);
        }
        Ok(builder)
    }

    /// The server API with the credential of the options.
    pub fn api(&self) -> anyhow::Result<Api> {
        self.api_as(self.auth())
    }

    /// The server API with an API key that has this scope: from the flag, the variable, or the data folder of
    /// `tavern dev`.
    pub fn api_with_key(&self, scope: &str) -> anyhow::Result<Api> {
        let given = self.key.clone().or_else(|| variable("TAVERN_KEY"));
        let Some(key) = given.or_else(|| self.dev_key()) else {
            bail!(
                "this needs an API key with the scope {scope}: use --key or TAVERN_KEY (`tavern dev` prints a key when it starts)"
            );
        };
        self.api_as(Auth::Key(key))
    }

    /// The credential: a flag beats a variable; with neither, a name that dev mode accepts.
    pub fn auth(&self) -> Auth {
        if let Some(user) = &self.user {
            Auth::User(user.clone())
        } else if let Some(token) = &self.token {
            Auth::Token(token.clone())
        } else if let Some(key) = &self.key {
            Auth::Key(key.clone())
        } else if let Some(token) = variable("TAVERN_TOKEN") {
            Auth::Token(token)
        } else if let Some(key) = variable("TAVERN_KEY") {
            Auth::Key(key)
        } else {
            Auth::User("cli".to_owned())
        }
    }

    fn api_as(&self, auth: Auth) -> anyhow::Result<Api> {
        Ok(match self.certificates()? {
            Some(pem) => Api::with_tls(&self.url(), auth, trust_pem(&pem)?)?,
            None => Api::new(&self.url(), auth)?,
        })
    }

    /// Read here and not by clap, which would treat the variable as a flag that conflicts with --data.
    pub fn url(&self) -> String {
        let default = || "http://127.0.0.1:7400".to_owned();
        self.url.clone().or_else(|| variable("TAVERN_URL")).unwrap_or_else(default)
    }

    fn certificates(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let read =
            |file: &PathBuf| std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        self.ca.as_ref().map(read).transpose()
    }

    /// The key that `tavern dev` keeps in this folder; only for a server on this machine.
    fn dev_key(&self) -> Option<String> {
        let url = self.url();
        let here = ["http://127.0.0.1:", "http://localhost:"].iter().any(|start| url.starts_with(start));
        let key = here.then(|| std::fs::read_to_string("tavern-data/dev-key").ok())??;
        Some(key.trim().to_owned())
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A folder instead of a server.
#[derive(clap::Args)]
pub struct FolderOptions {
    /// Use this folder, with or without a server on it, instead of connecting to one
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "token", "key", "user", "ca"])]
    pub data: Option<PathBuf>,
}
