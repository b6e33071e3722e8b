//! `tavern serve`: a production server.

use super::options::ConfigOptions;
use crate::config::ServerMode;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    options: ConfigOptions,
}

pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = args.options.load(ServerMode::Serve, true)?.valid()?;
    crate::boot::run(config, |_| {})?;
    Ok(ExitCode::SUCCESS)
}
