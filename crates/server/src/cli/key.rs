//! `tavern key`: API keys in the store. Works while servers run; they notice changes within a second.

use super::options::StoreOptions;
use super::{moment, print_line, table};
use crate::auth::{mint, parse_scopes};
use anyhow::bail;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use tavern_domain::{Scope, Scopes};
use tavern_store::blocking::BlockingStore;
use tavern_store::{ApiKey, Clock, Commit, Expect, Found, Read, Row, SystemClock, Versioned};

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
        /// publish, events, subscriptions, presence, parties, admin
        #[arg(long, value_name = "SCOPE,SCOPE")]
        scopes: String,
        #[command(flatten)]
        options: StoreOptions,
    },
    /// List keys; the keys themselves are not stored
    List {
        /// One JSON line per key
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        options: StoreOptions,
    },
    /// Revoke a key; running servers refuse it within a second
    Revoke {
        /// The id, as in the list
        id: String,
        #[command(flatten)]
        options: StoreOptions,
    },
}

/// How long the store may take: another process may be writing a large batch to the folder.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAGE: u32 = 500;

pub fn run(args: KeyArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        KeyAction::Create { name, scopes, options } => create(&name, parse_scopes(&scopes)?, options)?,
        KeyAction::List { json, options } => list(json, options)?,
        KeyAction::Revoke { id, options } => revoke(&id, options)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn create(name: &str, scopes: Scopes, options: StoreOptions) -> anyhow::Result<()> {
    let key = mint(name, scopes, SystemClock.now())?;
    let row = Row::Key(key.row);
    let expects = vec![Expect { key: row.key(), version: 0 }];
    options.open_existing(TIMEOUT)?.commit(Commit { expects, puts: vec![row], ..Commit::default() })?;
    print_line(key.text.expose())
}

fn list(json: bool, options: StoreOptions) -> anyhow::Result<()> {
    let keys = all(&options.open_existing(TIMEOUT)?)?;
    if json {
        for Versioned { row: key, .. } in keys {
            let scopes: Vec<&str> = key.scopes.iter().map(Scope::as_str).collect();
            let line = json!({
                "id": &*key.id, "name": &*key.name, "scopes": scopes,
                "created_at": key.created_at.ms(), "revoked_at": key.revoked_at.map(|time| time.ms()),
            });
            print_line(&line.to_string())?;
        }
        return Ok(());
    }
    let mut rows = vec![["ID", "NAME", "SCOPES", "CREATED", "REVOKED"].map(str::to_owned).to_vec()];
    rows.extend(keys.into_iter().map(|Versioned { row: key, .. }| {
        let scopes: Vec<&str> = key.scopes.iter().map(Scope::as_str).collect();
        let revoked = key.revoked_at.map_or_else(|| "-".to_owned(), moment::show);
        vec![
            key.id.to_string(),
            key.name.to_string(),
            scopes.join(","),
            moment::show(key.created_at),
            revoked,
        ]
    }));
    print_line(table::columns(&rows).trim_end())
}

fn revoke(asked: &str, options: StoreOptions) -> anyhow::Result<()> {
    // The complete key is accepted instead of its id.
    let id = asked.strip_prefix("tvk_").and_then(|rest| rest.split('_').next()).unwrap_or(asked);
    let store = options.open_existing(TIMEOUT)?;
    let Some(Versioned { version, row }) = all(&store)?.into_iter().find(|key| &*key.row.id == id) else {
        bail!("there is no key with the id {id:?}; `tavern key list` shows the ids");
    };
    if let Some(at) = row.revoked_at {
        eprintln!("key {id} was already revoked at {}", moment::show(at));
        return Ok(());
    }
    let name = row.name.clone();
    let row = Row::Key(ApiKey { revoked_at: Some(SystemClock.now()), ..row });
    let expects = vec![Expect { key: row.key(), version }];
    store.commit(Commit { expects, puts: vec![row], ..Commit::default() })?;
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
