//! `tavern events dead`: lists dead letters; `--retry` retries them.

use super::super::options::ServerOptions;
use super::super::table::{columns, plain};
use super::super::{block_on, moment, print_line};
use std::process::ExitCode;
use tavern_client::DeadLetter;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct DeadLettersArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// Retry them
    #[arg(long)]
    retry: bool,
    /// With --retry: only the events with these ids
    #[arg(long, value_name = "ID", value_delimiter = ',', requires = "retry")]
    id: Vec<String>,
    /// JSON instead of a table
    #[arg(long, conflicts_with = "retry")]
    json: bool,
}

pub fn run(args: DeadLettersArgs) -> anyhow::Result<ExitCode> {
    print_line(block_on(text(args))?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// The number of retried events, or the list.
async fn text(args: DeadLettersArgs) -> anyhow::Result<String> {
    let api = args.server.api_with_key("subscriptions")?;
    if args.retry {
        return Ok(api.subscriptions().retry_dead_letters(&args.name, &args.id).await?.to_string());
    }
    let letters = api.subscriptions().dead_letters(&args.name).await?;
    Ok(if args.json { serde_json::to_string(&letters)? } else { table(&letters) })
}

fn table(letters: &[DeadLetter]) -> String {
    if letters.is_empty() {
        return "no dead letters".to_owned();
    }
    let now = SystemClock.now().ms();
    let mut rows = vec![["SEQ", "ID", "TOPIC", "TYPE", "WHY", "AGO"].map(str::to_owned).to_vec()];
    for letter in letters {
        rows.push(vec![
            letter.seq.to_string(),
            plain(&letter.id),
            plain(&letter.topic),
            plain(letter.event["type"].as_str().unwrap_or_default()),
            plain(&letter.reason),
            moment::span(now.saturating_sub(letter.parked_at)),
        ]);
    }
    columns(&rows)
}
