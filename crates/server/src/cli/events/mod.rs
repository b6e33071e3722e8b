//! `tavern events`: durable events from the command line, one file per command.

mod batch;
mod dead;
mod list;
mod publish;
mod receive;
mod replay;
mod subscribe;
mod tail;

use super::options::ServerOptions;
use anyhow::bail;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Publish one event to a topic and print where it stands
    Publish(publish::Args),
    /// Make or change a subscription and print its secret, if one was made
    Subscribe(subscribe::Args),
    /// Print the events of topics as they come, one JSON line each
    Tail(tail::Args),
    /// Show subscriptions, their queues and their health, or topics
    List(list::Args),
    /// Show events that an endpoint refused, or send them again
    Dead(dead::Args),
    /// Send again what a subscription has had
    Replay(replay::Args),
    /// Listen for webhooks on this machine, print them and check their signatures
    Receive(receive::Args),
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Publish(args) => publish::run(args),
        Action::Subscribe(args) => subscribe::run(args),
        Action::Tail(args) => tail::run(args),
        Action::List(args) => list::run(args),
        Action::Dead(args) => dead::run(args),
        Action::Replay(args) => replay::run(args),
        Action::Receive(args) => receive::run(args),
    }
}

/// The key that all of these need.
fn key(server: &ServerOptions, scope: &str) -> anyhow::Result<String> {
    match server.api_key() {
        Some(key) => Ok(key),
        None => bail!(
            "this needs an API key with the scope {scope}: give --key or TAVERN_KEY (dev mode prints one at its start)"
        ),
    }
}
