//! `tavern key`: API keys, over HTTP with --url, or in the store, which works while servers run: they notice changes within
//! a second. A change in the store is an event of the topic `tavern.audit`, as it is over HTTP.

use super::options::{ServerOptions, StoreOptions};
use super::{block_on, moment, print_line, table, users};
use crate::audit;
use crate::auth::{mint, parse_scopes};
use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tavern_client::{Api, KeySummary};
use tavern_domain::{Scopes, Time};
use tavern_store::blocking::BlockingStore;
use tavern_store::{ApiKey, Append, Clock, Commit, Expect, Found, Read, Row, SystemClock, Versioned};

#[derive(clap::Args)]
pub struct KeyArgs {
    #[command(subcommand)]
    action: KeyAction,
}

#[derive(clap::Subcommand)]
enum KeyAction {
    /// Create a key and print it; it is not shown again
    Create {
        /// What the key is for
        #[arg(long)]
        name: String,
        /// publish, events, subscriptions, presence, parties, users, admin
        #[arg(long, value_name = "SCOPE,SCOPE")]
        scopes: String,
        /// When it stops working: milliseconds since 1970, or a time such as 2026-11-15T10:00:00Z [default: never]
        #[arg(long, value_name = "TIME")]
        expires: Option<String>,
        #[command(flatten)]
        server: KeyServerOptions,
        #[command(flatten)]
        options: StoreOptions,
    },
    /// List keys; the keys themselves are not stored
    List {
        /// One JSON line per key
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: KeyServerOptions,
        #[command(flatten)]
        options: StoreOptions,
    },
    /// Revoke a key; running servers refuse it within a second
    Revoke {
        /// The id, as in the list
        id: String,
        #[command(flatten)]
        server: KeyServerOptions,
        #[command(flatten)]
        options: StoreOptions,
    },
}

/// How long the store may take: another process may be writing a large batch to the folder.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;

/// A running server instead of the store.
#[derive(clap::Args)]
struct KeyServerOptions {
    /// Use the API of this server, not the store
    #[arg(long, conflicts_with_all = ["config", "data", "store", "set"])]
    url: Option<String>,
    /// An API key with the scope admin, with --url [env: TAVERN_KEY]
    #[arg(long, requires = "url")]
    key: Option<String>,
    /// Trust the certificates of this PEM file instead of the public ones, with --url
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
}

impl KeyServerOptions {
    /// None: use the store.
    fn api(self) -> anyhow::Result<Option<Api>> {
        let Some(url) = self.url else { return Ok(None) };
        let options = ServerOptions::with_key(url, self.key, self.ca);
        Ok(Some(options.api_with_key("admin")?))
    }
}

pub fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        KeyAction::Create { name, scopes, expires, server, options } => {
            let expires = expires.as_deref().map(users::time).transpose()?;
            let text = match server.api()? {
                Some(api) => {
                    let scopes: Vec<String> =
                        scopes.split(',').map(|scope| scope.trim().to_owned()).collect();
                    block_on(async move { Ok(api.keys().create(&name, &scopes, expires).await?.key) })?
                }
                None => create(&name, parse_scopes(&scopes)?, expires, options)?,
            };
            print_line(&text)?;
        }
        KeyAction::List { json, server, options } => {
            let keys = match server.api()? {
                Some(api) => block_on(async move { Ok(api.keys().list().await?) })?,
                None => {
                    all(&options.open_existing(TIMEOUT)?)?.into_iter().map(|key| summary(key.row)).collect()
                }
            };
            list(json, keys)?;
        }
        KeyAction::Revoke { id, server, options } => {
            // The complete key is accepted instead of its id.
            let id =
                id.strip_prefix("tvk_").and_then(|rest| rest.split('_').next()).unwrap_or(&id).to_owned();
            match server.api()? {
                Some(api) => {
                    block_on(async move {
                        api.keys().revoke(&id).await?;
                        eprintln!("revoked {id}");
                        Ok(())
                    })?;
                }
                None => revoke(&id, options)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn create(name: &str, scopes: Scopes, expires: Option<u64>, options: StoreOptions) -> anyhow::Result<String> {
    let now = SystemClock.now();
    let mut key = mint(name, scopes, now)?;
    key.row.expires_at = expires.map(Time);
    let appends = vec![audited("key.create", &key.row.id, now)];
    let row = Row::Key(key.row);
    let expects = vec![Expect { key: row.key(), version: 0 }];
    let commit = Commit { expects, puts: vec![row], appends, ..Commit::default() };
    options.open_existing(TIMEOUT)?.commit(commit)?;
    Ok(key.text.expose().to_owned())
}

fn audited(action: &str, id: &str, now: Time) -> Append {
    audit::append(&audit::line(action, id, audit::COMMAND_LINE, None, 200, ""), now)
}

fn summary(key: ApiKey) -> KeySummary {
    KeySummary {
        id: key.id.to_string(),
        name: key.name.to_string(),
        scopes: key.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
        created_at: key.created_at.ms(),
        expires_at: key.expires_at.map(Time::ms),
        last_used_at: key.last_used_at.map(Time::ms),
        revoked_at: key.revoked_at.map(Time::ms),
    }
}

fn list(json: bool, keys: Vec<KeySummary>) -> anyhow::Result<()> {
    if json {
        return keys.iter().try_for_each(|key| print_line(&serde_json::to_string(key)?));
    }
    let head = ["ID", "NAME", "SCOPES", "CREATED", "LAST USED", "EXPIRES", "REVOKED"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let time = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), |at| moment::show(Time(at)));
    rows.extend(keys.into_iter().map(|key| {
        vec![
            key.id,
            key.name,
            key.scopes.join(","),
            time(Some(key.created_at)),
            time(key.last_used_at),
            time(key.expires_at),
            time(key.revoked_at),
        ]
    }));
    print_line(table::columns(&rows).trim_end())
}

fn revoke(id: &str, options: StoreOptions) -> anyhow::Result<()> {
    let store = options.open_existing(TIMEOUT)?;
    let Some(Versioned { version, row }) = all(&store)?.into_iter().find(|key| &*key.row.id == id) else {
        bail!("there is no key with the id {id:?}; `tavern key list` shows the ids");
    };
    if let Some(at) = row.revoked_at {
        eprintln!("key {id} was already revoked at {}", moment::show(at));
        return Ok(());
    }
    let (name, now) = (row.name.clone(), SystemClock.now());
    let row = Row::Key(ApiKey { revoked_at: Some(now), ..row });
    let expects = vec![Expect { key: row.key(), version }];
    let appends = vec![audited("key.revoke", id, now)];
    store.commit(Commit { expects, puts: vec![row], appends, ..Commit::default() })?;
    eprintln!("revoked {id} ({name})");
    Ok(())
}

fn all(store: &BlockingStore) -> anyhow::Result<Vec<Versioned<ApiKey>>> {
    let mut keys: Vec<Versioned<ApiKey>> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.row.id.clone());
        let Found::Keys(page) = store.read(Read::Keys { after, limit: PAGE })? else {
            bail!("the store did not answer with keys");
        };
        keys.extend(page.rows);
        if !page.more {
            return Ok(keys);
        }
    }
}
