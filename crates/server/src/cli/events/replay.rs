//! `tavern events replay`: a subscription goes back to an event that it has had.

use super::super::options::ServerOptions;
use super::super::print_line;
use super::super::stream::{ask_api, percent_encode};
use serde_json::json;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
    /// The first event to come again, by its number
    #[arg(long, value_name = "N", required_unless_present = "from_time", conflicts_with = "from_time")]
    from_seq: Option<u64>,
    /// The first event to come again, by its time: 2026-11-15T10:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME")]
    from_time: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let key = super::key(&args.server, "subscriptions")?;
    let wish = match (&args.from_seq, &args.from_time) {
        (Some(seq), _) => json!({"from_seq": seq}),
        (None, Some(time)) => match time.parse::<u64>() {
            Ok(ms) => json!({"from_time": ms}),
            Err(_) => json!({"from_time": time}),
        },
        (None, None) => json!({}),
    };
    let path = format!("/v1/subscriptions/{}/replay", percent_encode(&args.name));
    let answer = ask_api(&args.server, "POST", &path, &key, wish.to_string().as_bytes())?;
    print_line(&answer.to_string())?;
    Ok(ExitCode::SUCCESS)
}
