//! `tavern user`: where a user is, and why he counts as online or not. For people who operate the server: needs a key.

use super::options::ServerOptions;
use super::stream::{ask_api, percent_encode};
use super::{moment, print_line, table};
use crate::auth::Credential;
use anyhow::bail;
use serde_json::Value;
use std::process::ExitCode;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The user id
    name: String,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Credential::Key(key) = args.server.credential() else {
        bail!(
            "this needs an API key with the scope presence: give --key or TAVERN_KEY (dev mode prints one at its start)"
        )
    };
    let path = format!("/v1/users/{}", percent_encode(&args.name));
    let answer = ask_api(&args.server, "GET", &path, &key, b"")?;
    print_line(&if args.json { answer.to_string() } else { text(&answer) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(user: &Value) -> String {
    let now = SystemClock.now().ms();
    let ago = |at: &Value| at.as_u64().map(|at| moment::span(now.saturating_sub(at)));
    let state = match (user["online"].as_bool(), user["leaving"].as_bool()) {
        (Some(true), Some(true)) => "leaving",
        (Some(true), _) => "online",
        _ => "offline",
    };
    let mut shown = format!("{} is {state}: {}", plain(&user["user"]), plain(&user["why"]));
    if let Some(seen) = ago(&user["last_seen"]) {
        shown.push_str(&format!("\nlast seen {seen} ago"));
    }
    let none = Vec::new();
    let mut rows = vec![["CHANNEL", "CLIENT", "NODE", "FOR", "STATE"].map(str::to_owned).to_vec()];
    for channel in user["channels"].as_array().unwrap_or(&none) {
        for client in channel["clients"].as_array().unwrap_or(&none) {
            let since = ago(&client["since"]).unwrap_or_default();
            let lost = ago(&client["lost_at"]).map(|lost| format!("lost {lost} ago"));
            let state = lost.unwrap_or_else(|| plain(&client["state"]));
            rows.push(vec![
                plain(&channel["channel"]),
                plain(&client["client"]),
                plain(&client["node"]),
                since,
                state,
            ]);
        }
    }
    if rows.len() > 1 {
        shown.push_str("\n\n");
        shown.push_str(&table::columns(&rows));
    }
    shown
}

/// A value as text that does not move the cursor.
fn plain(value: &Value) -> String {
    table::plain(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}
