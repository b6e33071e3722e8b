//! `tavern events subscribe`: creates a subscription, or changes the given settings. Only the secret goes to stdout.

use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::process::ExitCode;
use tavern_client::SubscriptionSettings;

#[derive(clap::Args)]
pub struct SubscriptionArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The name of the subscription
    name: String,
    /// Topics; they replace the earlier ones
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topic: Vec<String>,
    /// The URL to post batches to
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// No callback: events are pulled, as `tavern events tail` does
    #[arg(long, conflicts_with = "callback")]
    pull: bool,
    /// How long an event may wait for others of its batch
    #[arg(long, value_name = "MS")]
    timeout_ms: Option<u64>,
    /// Maximum number of events in a batch
    #[arg(long, value_name = "N")]
    max_events: Option<u64>,
    /// Maximum size of a batch in bytes
    #[arg(long, value_name = "N")]
    max_bytes: Option<u64>,
    /// Bytes that may be queued; above that the oldest events become a gap. 0: no limit
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
    /// A header of every request, such as 'Authorization: Bearer x'; replaces the earlier ones
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Batches in flight at once; with more than 1 the order is not kept
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
}

pub fn run(args: SubscriptionArgs) -> anyhow::Result<ExitCode> {
    let headers = headers(&args.header)?;
    let SubscriptionArgs { server, name, callback, .. } = args;
    let settings = SubscriptionSettings {
        topics: Some(args.topic).filter(|topics| !topics.is_empty()),
        pull: (args.pull || callback.is_some()).then_some(args.pull),
        callback,
        timeout_ms: args.timeout_ms,
        max_events: args.max_events,
        max_bytes: args.max_bytes,
        max_backlog_bytes: args.max_backlog_bytes,
        format: args.format,
        secret: args.secret,
        uuid: args.uuid,
        headers: Some(headers).filter(|headers| !headers.is_empty()),
        concurrency: args.concurrency,
    };
    let asked = name.clone();
    let put = block_on(async move {
        Ok(server.api_with_key("subscriptions")?.subscriptions().put(&asked, &settings).await?)
    })?;
    let did = if put.created { "made" } else { "changed" };
    match put.secret {
        Some(secret) => {
            eprintln!("{did} {name}; its secret (not shown again):");
            print_line(&secret)?;
        }
        None => eprintln!("{did} {name}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn headers(lines: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for line in lines {
        // The line may contain a password, so the error does not repeat it.
        let (name, value) = line.split_once(':').context("--header must be 'Name: value'")?;
        if headers.insert(name.trim().to_owned(), value.trim().to_owned()).is_some() {
            bail!("--header {} is given twice", name.trim());
        }
    }
    Ok(headers)
}
