//! `tavern events dead`: the events that an endpoint refused; with `--retry` they are sent again.

use super::super::options::ServerOptions;
use super::super::stream::{ask_api, percent_encode};
use super::super::{moment, print_line, table};
use super::list::gather;
use serde_json::{Value, json};
use std::process::ExitCode;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// Send them again
    #[arg(long)]
    retry: bool,
    /// With --retry: only the events with these ids
    #[arg(long, value_name = "ID", value_delimiter = ',', requires = "retry")]
    id: Vec<String>,
    /// JSON instead of a table
    #[arg(long, conflicts_with = "retry")]
    json: bool,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "subscriptions")?;
    let path = format!("/v1/subscriptions/{}/dead-letters", percent_encode(&args.name));
    if args.retry {
        print_line(&retry(&args, &key, &path)?.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let letters = gather(&args.server, &key, &path, "dead_letters")?;
    print_line(if args.json { json!(letters).to_string() } else { shown(&letters) }.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// How many are under way again.
fn retry(args: &Args, key: &str, path: &str) -> anyhow::Result<u64> {
    let wish = if args.id.is_empty() { json!({}) } else { json!({"ids": args.id}) };
    let mut retried = 0;
    loop {
        let answer =
            ask_api(&args.server, "POST", &format!("{path}/retry"), key, wish.to_string().as_bytes())?;
        retried += answer["retried"].as_u64().unwrap_or(0);
        if answer["more"] != true || answer["retried"] == 0 {
            return Ok(retried);
        }
    }
}

fn shown(letters: &[Value]) -> String {
    if letters.is_empty() {
        return "no dead letters".to_owned();
    }
    let now = SystemClock.now().ms();
    let mut rows = vec![["SEQ", "ID", "TOPIC", "TYPE", "WHY", "AGO"].map(str::to_owned).to_vec()];
    for letter in letters {
        let text = |value: &Value| table::plain(value.as_str().unwrap_or_default());
        rows.push(vec![
            letter["seq"].to_string(),
            text(&letter["id"]),
            text(&letter["topic"]),
            text(&letter["event"]["type"]),
            text(&letter["reason"]),
            moment::span(now.saturating_sub(letter["parked_at"].as_u64().unwrap_or(now))),
        ]);
    }
    table::columns(&rows)
}
