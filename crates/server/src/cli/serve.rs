//! `tavern serve`: a server for real.

use super::options::ConfigOptions;
use crate::config::Mode;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    options: ConfigOptions,
}

pub fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    let config = args.options.load(Mode::Serve, true)?.valid()?;
    crate::boot::run(config, |_| {})?;
    Ok(ExitCode::SUCCESS)
}
