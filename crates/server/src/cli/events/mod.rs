//! `tavern events`: durable events from the command line, one file per command.

mod batch;
mod receive;

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Listen for webhooks on this machine, print them and check their signatures
    Receive(receive::Args),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Receive(args) => receive::run(args),
    }
}
