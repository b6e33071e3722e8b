//! `tavern events`: durable events from the command line, one file per command.

mod attempts;
mod batch;
mod browse;
mod dead;
mod list;
mod publish;
mod receive;
mod replay;
mod rotate;
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
    /// Show the last attempts to deliver to a subscription, and why they failed
    Attempts(attempts::AttemptsArgs),
    /// Send a test event to the callback of a subscription now
    Test(attempts::TestArgs),
    /// Print the stored events of a topic
    Browse(browse::BrowseArgs),
    /// Replace the secret of a subscription
    Rotate(rotate::RotateArgs),
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
        EventsAction::Attempts(args) => attempts::list(args),
        EventsAction::Test(args) => attempts::test(args),
        EventsAction::Browse(args) => browse::run(args),
        EventsAction::Rotate(args) => rotate::run(args),
        EventsAction::Dead(args) => dead::run(args),
        EventsAction::Replay(args) => replay::run(args),
        EventsAction::Receive(args) => receive::run(args),
    }
}
