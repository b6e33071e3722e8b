//! `tavern events tail`: prints events as they arrive, one flushed JSON line each. Printed events are acknowledged with
//! the next request, so the last lines are printed again after a restart. A subscription with a callback is only read,
//! not acknowledged.

use super::super::line::one_line;
use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use anyhow::Context;
use std::process::ExitCode;
use std::time::Duration;
use tavern_client::SubscriptionSettings;

#[derive(clap::Args)]
pub struct TailArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription; with --topic it is created, or its topics are changed
    name: String,
    /// Topics to print
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topic: Vec<String>,
    /// Exit after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// How long one request waits: less than proxies allow a silent connection.
const WAIT: Duration = Duration::from_secs(20);
const LIMIT: u64 = 100;

pub fn run(args: TailArgs) -> anyhow::Result<ExitCode> {
    block_on(tail(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn tail(args: TailArgs) -> anyhow::Result<()> {
    let TailArgs { server, name, topic, count } = args;
    let api = server.api_with_key("subscriptions")?;
    if !topic.is_empty() {
        let settings =
            SubscriptionSettings { topics: Some(topic), pull: Some(true), ..SubscriptionSettings::default() };
        api.subscriptions().put(&name, &settings).await?;
    }
    let known = api.subscriptions().get(&name).await;
    let known = known.with_context(|| format!("cannot tail {name}; --topic creates a new subscription"))?;
    // Events that go to a callback are printed from now on.
    let mut after = if known.pull { None } else { Some(known.seq) };
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let pulled = api.subscriptions().pull(&name, after, WAIT, left.min(LIMIT)).await?;
        for event in &pulled.events {
            print_line(&one_line(event.get()))?;
        }
        left -= (pulled.events.len() as u64).min(left);
        after = Some(pulled.next_after);
    }
    // Acknowledges the last ones.
    api.subscriptions().pull(&name, after, Duration::ZERO, 1).await?;
    Ok(())
}
