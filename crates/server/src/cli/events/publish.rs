//! `tavern events publish`: one event to one topic.

use super::super::options::ServerOptions;
use super::super::print_line;
use super::super::stream::{ask_api, percent_encode};
use anyhow::Context;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The topic, such as orders
    topic: String,
    /// What happened, such as create
    kind: String,
    /// Any JSON
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// What the event is about
    #[arg(long, value_name = "URL")]
    about: Option<String>,
    /// A name for the event: the same one is kept once
    #[arg(long)]
    id: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "events")?;
    let path = format!("/v1/topics/{}/events", percent_encode(&args.topic));
    let answer = ask_api(&args.server, "POST", &path, &key, body(&args)?.as_bytes())?;
    print_line(&answer.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn body(args: &Args) -> anyhow::Result<String> {
    let mut event = json!({"type": args.kind});
    for (name, value) in [("url", &args.about), ("id", &args.id)] {
        if let Some(value) = value {
            event[name] = Value::from(value.as_str());
        }
    }
    let mut body = event.to_string();
    if let Some(data) = &args.data {
        let data: &RawValue = serde_json::from_str(data).context("--data is not JSON")?;
        // Written by hand: the data must arrive as it was given, byte for byte.
        body.truncate(body.len() - 1);
        body.push_str(&format!(",\"data\":{}}}", data.get()));
    }
    Ok(body)
}
