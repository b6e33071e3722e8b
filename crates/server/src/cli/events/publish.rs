//! `tavern events publish`: one event to one topic.

use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use anyhow::Context;
use serde_json::value::RawValue;
use std::process::ExitCode;
use tavern_client::NewEvent;

#[derive(clap::Args)]
pub struct PublishEventArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The topic, such as orders
    topic: String,
    /// The type of the event, such as create
    kind: String,
    /// Any JSON
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// The URL of the object that the event is about
    #[arg(long, value_name = "URL")]
    about: Option<String>,
    /// An id for dedupe: events with the same id are accepted once
    #[arg(long)]
    id: Option<String>,
}

pub fn run(args: PublishEventArgs) -> anyhow::Result<ExitCode> {
    let event = event(&args)?;
    let published = block_on(async move {
        Ok(args.server.api_with_key("events")?.topics().publish(&args.topic, &event).await?)
    })?;
    print_line(&serde_json::to_string(&published)?)?;
    Ok(ExitCode::SUCCESS)
}

fn event(args: &PublishEventArgs) -> anyhow::Result<NewEvent> {
    let mut event = NewEvent::new(&args.kind);
    if let Some(url) = &args.about {
        event = event.about(url);
    }
    if let Some(id) = &args.id {
        event = event.id(id);
    }
    if let Some(data) = &args.data {
        // Not parsed further: the data must arrive byte for byte.
        let data: &RawValue = serde_json::from_str(data).context("--data is not JSON")?;
        event = event.data(data)?;
    }
    Ok(event)
}
