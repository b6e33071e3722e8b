//! `tavern ready`: what `/readyz` of a running server says, for health checks and for scripts that restart one server after
//! another. Exit code 1: it is not ready, or nobody answers.

use super::options::ServerOptions;
use super::print_line;
use super::stream::request;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How soon it is asked again while one waits for it.
const AGAIN: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// Ask again until it is ready, for this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=86_400))]
    wait: u64,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let began = Instant::now();
    loop {
        let answer = request(&args.server, "GET", "/readyz", None, b"");
        if let Ok((200, body)) = &answer {
            print_line(String::from_utf8_lossy(body).trim_end())?;
            return Ok(ExitCode::SUCCESS);
        }
        let left = Duration::from_secs(args.wait).saturating_sub(began.elapsed());
        if left.is_zero() {
            let (status, body) = answer?;
            anyhow::bail!("not ready ({status}): {}", String::from_utf8_lossy(&body).trim_end());
        }
        std::thread::sleep(AGAIN.min(left));
    }
}
