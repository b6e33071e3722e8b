//! `tavern events list`: subscriptions with their queues and their health, or topics, as a table or as JSON.

use super::super::options::ServerOptions;
use super::super::stream::{ask_api, percent_encode};
use super::super::{moment, print_line, table};
use serde_json::{Value, json};
use std::process::ExitCode;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// Topics instead of subscriptions
    #[arg(long)]
    topics: bool,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "subscriptions")?;
    let list = if args.topics { "topics" } else { "subscriptions" };
    let rows = gather(&args.server, &key, &format!("/v1/{list}"), list)?;
    let text = match (args.json, args.topics) {
        (true, _) => json!(rows).to_string(),
        (false, true) => topics(&rows),
        (false, false) => subscriptions(&rows),
    };
    print_line(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// All pages of a list.
pub fn gather(server: &ServerOptions, key: &str, path: &str, list: &str) -> anyhow::Result<Vec<Value>> {
    let (mut rows, mut next) = (Vec::new(), String::new());
    loop {
        let mut page = ask_api(server, "GET", &format!("{path}?limit=100{next}"), key, b"")?;
        rows.append(page[list].as_array_mut().unwrap_or(&mut Vec::new()));
        match page["next"].as_str() {
            Some(after) => next = format!("&after={}", percent_encode(after)),
            None => return Ok(rows),
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => table::plain(text),
        other => other.to_string(),
    }
}

fn names(value: &Value) -> String {
    let names: Vec<String> = value.as_array().into_iter().flatten().map(text).collect();
    names.join(" ")
}

fn subscriptions(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "no subscriptions yet: tavern events subscribe NAME --topic TOPIC --callback URL".to_owned();
    }
    let head = ["NAME", "TOPICS", "TO", "QUEUED", "SEQ", "HEALTH", "LAST"].map(str::to_owned).to_vec();
    let now = SystemClock.now().ms();
    let row = |row: &Value| {
        let health = match row["why"].as_str() {
            Some(why) => format!("{} ({why})", text(&row["health"])),
            None => text(&row["health"]),
        };
        let last = row["last"]["at"].as_u64().map(|at| {
            format!("{} {} ago", text(&row["last"]["verdict"]), moment::span(now.saturating_sub(at)))
        });
        vec![
            text(&row["name"]),
            names(&row["topics"]),
            if row["pull"] == true { "(pulled)".to_owned() } else { text(&row["callback"]) },
            text(&row["queued"]),
            text(&row["seq"]),
            health,
            last.unwrap_or_default(),
        ]
    };
    table::columns(&std::iter::once(head).chain(rows.iter().map(row)).collect::<Vec<_>>())
}

fn topics(rows: &[Value]) -> String {
    if rows.is_empty() {
        return "no topics yet: tavern events publish TOPIC TYPE".to_owned();
    }
    let head = ["TOPIC", "PUBLISHER", "EVENTS", "SUBSCRIPTIONS"].map(str::to_owned).to_vec();
    let row =
        |row: &Value| ["topic", "publisher", "events", "subscriptions"].map(|name| text(&row[name])).to_vec();
    table::columns(&std::iter::once(head).chain(rows.iter().map(row)).collect::<Vec<_>>())
}
