//! `tavern events browse`: the stored events of a topic, one JSON line each. Acknowledges nothing.

use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use std::process::ExitCode;

/// Events of one request.
const PAGE: u64 = 1_000;

#[derive(clap::Args)]
pub struct BrowseArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The topic
    topic: String,
    /// At most this many events, the oldest first
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Continue after the event with this `seq`
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    after: u64,
}

pub fn run(args: BrowseArgs) -> anyhow::Result<ExitCode> {
    let next = block_on(print(args))?;
    if let Some(next) = next {
        eprintln!("more events: continue with --after {next}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn print(args: BrowseArgs) -> anyhow::Result<Option<u64>> {
    let api = args.server.api_with_key("subscriptions")?;
    let (mut after, mut left) = (args.after, args.limit);
    loop {
        let (events, next) = api.topics().browse(&args.topic, after, left.min(PAGE)).await?;
        for event in &events {
            print_line(event.get())?;
        }
        left = left.saturating_sub(events.len() as u64);
        match next {
            Some(next) if left > 0 => after = next,
            next => return Ok(next),
        }
    }
}
