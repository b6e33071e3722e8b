//! `tavern events replay`: delivers earlier events to a subscription again.

use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use anyhow::bail;
use std::process::ExitCode;
use tavern_client::ReplayFrom;

#[derive(clap::Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// The number of the first event
    #[arg(long, value_name = "N", required_unless_present = "from_time", conflicts_with = "from_time")]
    from_seq: Option<u64>,
    /// The time of the first event: 2026-11-15T10:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME")]
    from_time: Option<String>,
}

pub fn run(args: ReplayArgs) -> anyhow::Result<ExitCode> {
    let from = match (args.from_seq, args.from_time) {
        (Some(seq), _) => ReplayFrom::Seq(seq),
        (None, Some(time)) => time.parse().map_or(ReplayFrom::Time(time), ReplayFrom::TimeMs),
        (None, None) => bail!("give --from-seq or --from-time"),
    };
    let replayed =
        block_on(
            async move { Ok(args.server.api_with_key("subscriptions")?.replay(&args.name, &from).await?) },
        )?;
    print_line(&serde_json::to_string(&replayed)?)?;
    Ok(ExitCode::SUCCESS)
}
