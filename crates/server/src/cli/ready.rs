//! `tavern ready`: asks `/readyz` of a running server, for health checks and rolling restarts. Exit code 1: it is not ready, or does not answer.

use super::options::ServerOptions;
use super::{block_on, print_line};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The interval of requests with --wait.
const RETRY: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct ReadyArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// Retry until it is ready, for at most this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

pub fn run(args: ReadyArgs) -> anyhow::Result<ExitCode> {
    print_line(&block_on(ask(args))?)?;
    Ok(ExitCode::SUCCESS)
}

async fn ask(args: ReadyArgs) -> anyhow::Result<String> {
    let api = args.server.api()?;
    let (began, wait) = (Instant::now(), Duration::from_secs(args.wait));
    loop {
        let answer = api.ready().await;
        let left = wait.saturating_sub(began.elapsed());
        if answer.is_ok() || left.is_zero() {
            return Ok(answer?);
        }
        tokio::time::sleep(RETRY.min(left)).await;
    }
}
