//! `tavern events replay`: delivers earlier events to a subscription again.

use super::super::options::ServerOptions;
use super::super::progress::Progress;
use super::super::{block_on, print_line};
use anyhow::bail;
use std::process::ExitCode;
use std::time::Duration;
use tavern_client::{Api, ReplayFrom, Replayed};

const ASK_EVERY: Duration = Duration::from_millis(200);

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
    block_on(async move {
        let api = args.server.api_with_key("subscriptions")?;
        let replayed = api.subscriptions().replay(&args.name, &from).await?;
        print_line(&serde_json::to_string(&replayed)?)?;
        follow(&api, &args.name, &replayed).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// On a terminal: shows how much of it is delivered, until all is. The server goes on if this is interrupted.
async fn follow(api: &Api, name: &str, replayed: &Replayed) -> anyhow::Result<()> {
    let mut progress = Progress::new("events");
    if !progress.is_bar() || !replayed.rewound {
        return Ok(());
    }
    let mut state = api.subscriptions().get(name).await?;
    if state.pull {
        return Ok(());
    }
    eprintln!("delivering; to stop watching, press Ctrl-C: the server goes on");
    let (before, last) = (replayed.from_seq.saturating_sub(1), state.seq);
    while state.acknowledged < last {
        if state.health == "disabled" {
            drop(progress);
            let why = state.why.unwrap_or_default();
            bail!("the subscription is disabled and delivers nothing: {why}; enable it to go on");
        }
        let done = state.acknowledged.saturating_sub(before);
        progress.show(done, Some((done, last - before)));
        tokio::time::sleep(ASK_EVERY).await;
        state = api.subscriptions().get(name).await?;
    }
    drop(progress);
    eprintln!("delivered {} events", last - before);
    Ok(())
}
