//! `tavern events`: durable events from the command line, one file per command.

mod batch;
mod dead;
mod list;
mod publish;
mod receive;
mod replay;
mod subscribe;
mod tail;

use std::process::ExitCode;

#[derive(clap::Args)]
pub struct EventsArgs {
    #[command(subcommand)]
    action: EventsAction,
}

#[derive(clap::Subcommand)]
enum EventsAction {
    /// Publish one event to a topic and print its number
    Publish(publish::PublishEventArgs),
    /// Create or change a subscription; prints a new secret
    Subscribe(subscribe::SubscriptionArgs),
    /// Print events of topics as they arrive, one JSON line each
    Tail(tail::TailArgs),
    /// Show subscriptions, their queues and their health, or topics
    List(list::ListArgs),
    /// Show or retry dead letters: events that an endpoint refused
    Dead(dead::DeadLettersArgs),
    /// Deliver earlier events to a subscription again
    Replay(replay::ReplayArgs),
    /// Listen for webhooks on this machine, print them and check their signatures
    Receive(receive::ReceiveArgs),
}

pub fn run(args: EventsArgs) -> anyhow::Result<ExitCode> {
    match args.action {
        EventsAction::Publish(args) => publish::run(args),
        EventsAction::Subscribe(args) => subscribe::run(args),
        EventsAction::Tail(args) => tail::run(args),
        EventsAction::List(args) => list::run(args),
        EventsAction::Dead(args) => dead::run(args),
        EventsAction::Replay(args) => replay::run(args),
        EventsAction::Receive(args) => receive::run(args),
    }
}
