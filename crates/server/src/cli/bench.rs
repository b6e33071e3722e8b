//! `tavern bench`: the load generator, which knows servers only by their protocols.

use std::process::ExitCode;

pub use tavern_bench::cli::Args;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    tavern_bench::cli::run(args)?;
    Ok(ExitCode::SUCCESS)
}
