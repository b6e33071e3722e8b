//! `tavern events subscribe`: makes a subscription, or changes what is given of it. The secret alone goes to stdout.

use super::super::options::ServerOptions;
use super::super::print_line;
use super::super::stream::{ask_api, percent_encode};
use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The name of the subscription
    name: String,
    /// Topics; they take the place of those it had
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topic: Vec<String>,
    /// Where to post events
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// No callback: events are asked for, as `tavern events tail` does
    #[arg(long, conflicts_with = "callback")]
    pull: bool,
    /// How long an event may wait for others of its batch
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Events in a batch at most
    #[arg(long, value_name = "N")]
    max_events: Option<u64>,
    /// Bytes of a batch at most
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// Bytes that may wait; beyond that the oldest events become a gap. 0: no budget of its own
    #[arg(long, value_name = "N")]
    max_backlog_bytes: Option<u64>,
    /// standard or routemaster
    #[arg(long)]
    format: Option<String>,
    /// Sign with this secret (whsec_…) instead of a new one
    #[arg(long)]
    secret: Option<String>,
    /// The user name of the routemaster format
    #[arg(long)]
    uuid: Option<String>,
    /// A header of every post, such as 'Authorization: Bearer x'; they take the place of those it had
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Batches under way at once; with more than 1 order does not hold
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "subscriptions")?;
    let path = format!("/v1/subscriptions/{}", percent_encode(&args.name));
    let answer = ask_api(&args.server, "PUT", &path, &key, wish(&args)?.to_string().as_bytes())?;
    let did = if answer["created"] == true { "made" } else { "changed" };
    match answer["secret"].as_str() {
        Some(secret) => {
            eprintln!("{did} {}; its secret, which is not shown again:", args.name);
            print_line(secret)?;
        }
        None => eprintln!("{did} {}", args.name),
    }
    Ok(ExitCode::SUCCESS)
}

/// What is given, and nothing else: the rest stays as it is.
fn wish(args: &Args) -> anyhow::Result<Value> {
    let mut wish = Map::new();
    let numbers = [
        ("timeout_ms", args.timeout_ms),
        ("max_events", args.max_events),
        ("max_bytes", args.max_bytes),
        ("max_backlog_bytes", args.max_backlog_bytes),
        ("concurrency", args.concurrency),
    ];
    for (name, number) in numbers {
        wish.extend(number.map(|number| (name.to_owned(), json!(number))));
    }
    let texts = [
        ("callback", &args.callback),
        ("format", &args.format),
        ("secret", &args.secret),
        ("uuid", &args.uuid),
    ];
    for (name, text) in texts {
        wish.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
    }
    if !args.topic.is_empty() {
        wish.insert("topics".to_owned(), json!(args.topic));
    }
    if args.pull || args.callback.is_some() {
        wish.insert("pull".to_owned(), json!(args.pull));
    }
    if !args.header.is_empty() {
        wish.insert("headers".to_owned(), headers(&args.header)?);
    }
    Ok(Value::Object(wish))
}

fn headers(lines: &[String]) -> anyhow::Result<Value> {
    let mut headers = Map::new();
    for line in lines {
        // The line may hold a password, so it is not repeated.
        let (name, value) = line.split_once(':').context("--header wants 'Name: value'")?;
        if headers.insert(name.trim().to_owned(), json!(value.trim())).is_some() {
            bail!("--header {} is given twice", name.trim());
        }
    }
    Ok(Value::Object(headers))
}
