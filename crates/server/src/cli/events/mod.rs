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
    /// Publish one event to a topic and print where it stands
    Publish(publish::PublishEventArgs),
    /// Make or change a subscription and print its secret, if one was made
    Subscribe(subscribe::SubscriptionArgs),
    /// Print the events of topics as they come, one JSON line each
    Tail(tail::TailArgs),
    /// Show subscriptions, their queues and their health, or topics
    List(list::ListArgs),
    /// Show events that an endpoint refused, or send them again
    Dead(dead::DeadLettersArgs),
    /// Send again what a subscription has had
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
