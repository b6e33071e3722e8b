//! `tavern events list`: subscriptions with their queues and their health, or topics, as a table or as JSON.

use super::super::options::ServerOptions;
use super::super::table::{columns, plain};
use super::super::{block_on, moment, print_line};
use std::process::ExitCode;
use tavern_client::{Subscription, Topic};
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// Topics instead of subscriptions
    #[arg(long)]
    topics: bool,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: ListArgs) -> anyhow::Result<ExitCode> {
    print_line(block_on(text(args))?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

async fn text(args: ListArgs) -> anyhow::Result<String> {
    let api = args.server.api_with_key("subscriptions")?;
    if args.topics {
        let topics = api.topics().list().await?;
        return Ok(if args.json { serde_json::to_string(&topics)? } else { topics_table(&topics) });
    }
    let subscriptions = api.subscriptions().list().await?;
    Ok(if args.json { serde_json::to_string(&subscriptions)? } else { subscriptions_table(&subscriptions) })
}

fn subscriptions_table(subscriptions: &[Subscription]) -> String {
    if subscriptions.is_empty() {
        return "no subscriptions yet: tavern events subscribe NAME --topic TOPIC --callback URL".to_owned();
    }
    let mut rows =
        vec![["NAME", "TOPICS", "TO", "QUEUED", "SEQ", "HEALTH", "LAST"].map(str::to_owned).to_vec()];
    rows.extend(subscriptions.iter().map(subscription_row));
    columns(&rows)
}

fn subscription_row(subscription: &Subscription) -> Vec<String> {
    let now = SystemClock.now().ms();
    let health = match &subscription.why {
        Some(why) => format!("{} ({why})", subscription.health),
        None => subscription.health.clone(),
    };
    let error = subscription.last_error.as_ref().and_then(|last| last["error"].as_str());
    let health = match error.filter(|_| subscription.health != "healthy") {
        Some(error) => format!("{health}: {error}"),
        None => health,
    };
    let last = subscription.last.as_ref().and_then(|last| {
        let ago = moment::span(now.saturating_sub(last["at"].as_u64()?));
        Some(format!("{} {ago} ago", plain(last["outcome"].as_str()?)))
    });
    let to =
        if subscription.pull { "(pulled)" } else { subscription.callback.as_deref().unwrap_or_default() };
    vec![
        plain(&subscription.name),
        plain(&subscription.topics.join(" ")),
        plain(to),
        subscription.queued.to_string(),
        subscription.seq.to_string(),
        plain(&health),
        last.unwrap_or_default(),
    ]
}

fn topics_table(topics: &[Topic]) -> String {
    if topics.is_empty() {
        return "no topics yet: tavern events publish TOPIC TYPE".to_owned();
    }
    let mut rows = vec![["TOPIC", "PUBLISHER", "EVENTS", "SUBSCRIPTIONS"].map(str::to_owned).to_vec()];
    rows.extend(topics.iter().map(|topic| {
        let publisher = topic.publisher.as_deref().map(plain).unwrap_or_default();
        vec![plain(&topic.topic), publisher, topic.events.to_string(), topic.subscriptions.to_string()]
    }));
    columns(&rows)
}
