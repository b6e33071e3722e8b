//! `tavern events tail`: prints events as they come, one flushed JSON line each, until it is ended. What was printed is
//! acknowledged with the next question: whoever ends it sees the last lines again. A subscription with a callback is only
//! looked at.

use super::super::line::one_line;
use super::super::options::ServerOptions;
use super::super::print_line;
use super::super::stream::{ask_api, percent_encode, request};
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription; with --topic it is made, or its topics are changed
    name: String,
    /// Topics to print
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topic: Vec<String>,
    /// End after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// How long one question waits: less than connections that say nothing live on the way.
const WAIT_MS: u64 = 20_000;
const LIMIT: u64 = 100;

#[derive(Deserialize)]
struct Pulled<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next_after: u64,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "subscriptions")?;
    let path = format!("/v1/subscriptions/{}", percent_encode(&args.name));
    if !args.topic.is_empty() {
        let wish = json!({"topics": args.topic, "pull": true}).to_string();
        ask_api(&args.server, "PUT", &path, &key, wish.as_bytes())?;
    }
    let known = ask_api(&args.server, "GET", &path, &key, b"")
        .with_context(|| format!("cannot tail {}; --topic makes a new subscription", args.name))?;
    // What goes to a callback is printed from now on.
    let mut after = if known["pull"] == true { None } else { known["seq"].as_u64() };
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let body = pull(&args.server, &path, &key, after, WAIT_MS, left.min(LIMIT))?;
        let pulled: Pulled<'_> =
            serde_json::from_slice(&body).context("the server sent something else than events")?;
        for event in &pulled.events {
            print_line(&one_line(event.get()))?;
        }
        left -= (pulled.events.len() as u64).min(left);
        after = Some(pulled.next_after);
    }
    pull(&args.server, &path, &key, after, 0, 1)?;
    Ok(ExitCode::SUCCESS)
}

fn pull(
    server: &ServerOptions,
    path: &str,
    key: &str,
    after: Option<u64>,
    wait_ms: u64,
    limit: u64,
) -> anyhow::Result<Vec<u8>> {
    let after = after.map_or(String::new(), |after| format!("&after={after}"));
    let path = format!("{path}/events?wait_ms={wait_ms}&limit={limit}{after}");
    let (status, body) = request(server, "GET", &path, Some(key), b"")?;
    if status != 200 {
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
        bail!("{}: {}", text("code"), text("message"));
    }
    Ok(body)
}
