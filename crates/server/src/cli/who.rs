//! `tavern who`: who is in a channel, as a table or as JSON.

use super::client::Client;
use super::options::ServerOptions;
use super::stream::{ask_api, percent_encode};
use super::{moment, print_line, table};
use crate::auth::Credential;
use serde_json::{Value, json};
use std::process::ExitCode;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The channel, such as game#1
    channel: String,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Users asked for at once: few enough that their states fit into one answer.
const PART: u64 = 100;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let members = match args.server.credential() {
        Credential::Key(key) => as_service(&args.server, &key, &args.channel)?,
        Credential::Token(_) | Credential::User(_) => as_client(&args.server, &args.channel)?,
    };
    print_line(&if args.json { members.to_string() } else { text(&members) })?;
    Ok(ExitCode::SUCCESS)
}

fn as_client(server: &ServerOptions, channel: &str) -> anyhow::Result<Value> {
    let mut client = Client::connect(server)?;
    client.hello(None)?;
    let members = gather(|after| {
        let mut command = json!({"op": "who", "channel": channel, "limit": PART});
        if let Some(after) = after {
            command["after"] = json!(after);
        }
        Ok(client.ask(command)?)
    })?;
    client.bye();
    Ok(members)
}

fn as_service(server: &ServerOptions, key: &str, channel: &str) -> anyhow::Result<Value> {
    gather(|after| {
        let mut path = format!("/v1/channels/{}/presence?limit={PART}", percent_encode(channel));
        if let Some(after) = after {
            path.push_str(&format!("&after={}", percent_encode(&after)));
        }
        ask_api(server, "GET", &path, key, b"")
    })
}

/// All parts of the answer as one.
fn gather(mut ask: impl FnMut(Option<String>) -> anyhow::Result<Value>) -> anyhow::Result<Value> {
    let mut whole = ask(None)?;
    let mut next = whole["next"].as_str().map(str::to_owned);
    while let Some(after) = next {
        let mut part = ask(Some(after))?;
        if let (Some(users), Some(more)) = (whole["users"].as_array_mut(), part["users"].as_array_mut()) {
            users.append(more);
        }
        next = part["next"].as_str().map(str::to_owned);
    }
    if let Some(object) = whole.as_object_mut() {
        object.remove("next");
    }
    Ok(whole)
}

fn text(members: &Value) -> String {
    let none = Vec::new();
    let users = members["users"].as_array().unwrap_or(&none);
    if users.is_empty() {
        return "nobody is there".to_owned();
    }
    let mut rows = vec![["USER", "NAME", "FOR", "CLIENTS", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(users.iter().map(row));
    table::columns(&rows)
}

fn row(user: &Value) -> Vec<String> {
    let none = Vec::new();
    let clients = user["clients"].as_array().unwrap_or(&none);
    let states: Vec<String> =
        clients.iter().filter(|c| !c["state"].is_null()).map(|c| c["state"].to_string()).collect();
    let leaving = user["leaving"].as_bool().unwrap_or(false);
    vec![
        user["user"].as_str().map_or("(anonymous)".to_owned(), table::plain),
        user["name"].as_str().map_or(String::new(), table::plain),
        moment::span(SystemClock.now().ms().saturating_sub(user["since"].as_u64().unwrap_or(0))),
        if leaving { "leaving".to_owned() } else { clients.len().to_string() },
        table::plain(&states.join(" ")),
    ]
}
