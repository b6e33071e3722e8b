//! `tavern events rotate`: a new secret for a subscription. Only the secret goes to stdout.

use super::super::options::ServerOptions;
use super::super::{block_on, print_line};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct RotateArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The subscription
    name: String,
}

pub fn run(args: RotateArgs) -> anyhow::Result<ExitCode> {
    let RotateArgs { server, name } = args;
    let asked = name.clone();
    let secret = block_on(async move {
        Ok(server.api_with_key("subscriptions")?.subscriptions().rotate_secret(&asked).await?)
    })?;
    eprintln!(
        "{name} signs with a new secret (not shown again), and with the old one for events.rotation_ms:"
    );
    print_line(&secret)?;
    Ok(ExitCode::SUCCESS)
}
