//! The command line: one file per command, each with its arguments and `run`. Commands that talk to a server are built on
//! `tavern-client`, those that open a store on the store contract. Results go to stdout, everything else to
//! stderr.

mod archive;
mod certificate;
mod check;
mod completions;
mod dashboard;
pub mod dev;
mod doctor;
mod events;
mod export;
mod folder;
mod follow;
mod history;
mod import;
mod key;
mod line;
mod local;
mod man;
mod moment;
mod options;
mod party;
mod progress;
mod publish;
mod ready;
mod serve;
mod stats;
mod subscribe;
mod table;
mod token;
mod user;
mod users;
mod who;

use crate::config::ConfigErrors;
use clap::{CommandFactory, Parser};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Presence, channels, parties and durable events in one server.
#[derive(Parser)]
#[command(name = "tavern", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Start without configuration, reachable from this machine only
    Dev(dev::DevArgs),
    /// Start a production server: needs a secret, denies by default
    Serve(serve::ServeArgs),
    /// Print a token for a user
    Token(token::TokenArgs),
    /// Create, list and revoke API keys
    Key(key::KeyArgs),
    /// Print a link that opens the dashboard, once and within a minute
    Dashboard(dashboard::DashboardArgs),
    /// Publish one message and print how many received it
    Publish(publish::PublishArgs),
    /// Print the messages of channels, one JSON line each
    Subscribe(subscribe::SubscribeArgs),
    /// Show the last messages of a channel that keeps history, or clear it
    History(history::HistoryArgs),
    /// Inspect a folder that processes share without a server
    Local(local::LocalArgs),
    /// Show who is in a channel
    Who(who::WhoArgs),
    /// Show the channels of a user, and why they count as online or offline
    User(user::UserArgs),
    /// List, disconnect, ban and erase users
    Users(users::UsersArgs),
    /// Show how many users, sessions and connections there are
    Stats(stats::StatsArgs),
    /// Follow a user, or show the statuses of the users you follow
    Follow(follow::FollowArgs),
    /// Send party commands (invite, accept, go, …), or watch your party
    Party(party::PartyArgs),
    /// Publish, subscribe to, tail and replay durable events; receive webhooks
    Events(events::EventsArgs),
    /// Check the configuration and show where each value came from
    Check(check::CheckArgs),
    /// Check what a server depends on: store, bus, clock, ports, limits, disk
    Doctor(doctor::DoctorArgs),
    /// Check whether a running server is ready; exit code 1 when it is not
    Ready(ready::ReadyArgs),
    /// Export the whole store to stdout
    Export(export::ExportArgs),
    /// Import an export from stdin into an empty store
    Import(import::ImportArgs),
    /// Print the completion script of a shell
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write those of all commands into a folder
    Man(man::ManArgs),
}

pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Dev(args) => dev::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Token(args) => token::run(args),
        Command::Key(args) => key::run(args),
        Command::Dashboard(args) => dashboard::run(args),
        Command::Publish(args) => publish::run(args),
        Command::Subscribe(args) => subscribe::run(args),
        Command::History(args) => history::run(args),
        Command::Local(args) => local::run(args),
        Command::Who(args) => who::run(args),
        Command::User(args) => user::run(args),
        Command::Users(args) => users::run(args),
        Command::Stats(args) => stats::run(args),
        Command::Follow(args) => follow::run(args),
        Command::Party(args) => party::run(args),
        Command::Events(args) => events::run(args),
        Command::Check(args) => check::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Ready(args) => ready::run(args),
        Command::Export(args) => export::run(args),
        Command::Import(args) => import::run(args),
        Command::Completions(args) => completions::run(args, Cli::command()),
        Command::Man(args) => man::run(args, Cli::command()),
    };
    match outcome {
        Ok(code) => code,
        // A closed pipe (`tavern subscribe … | head`) is not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<ConfigErrors>() {
                // One line for each fault of the configuration.
                Some(errors) => eprintln!("error: {errors}"),
                None => eprintln!("error: {}", describe(&error)),
            }
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The chain of causes on one line, without repetitions.
fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = match cause.downcast_ref::<tavern_client::Error>() {
            Some(tavern_client::Error::Unreachable(why)) => format!("{why}{}", hint(why)),
            _ => cause.to_string(),
        };
        let cause = cause.replace('\n', " ");
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What to do about a server that cannot be reached, unless the message says it.
fn hint(message: &str) -> &'static str {
    if message.contains("self-signed") {
        "; trust its authority with --ca FILE"
    } else if message.contains("certificate") || message.contains("TLS") {
        ""
    } else {
        "; is a server running there?"
    }
}

/// Runs a command that talks to a server. The command is a task like those of the client, so that they are scheduled
/// fairly: the future given to `block_on` itself is polled too rarely to keep up with a fast channel.
fn block_on<T: Send + 'static>(
    command: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { tokio::spawn(command).await? })
}

/// Writes one line to stdout and flushes it, so that a reader at the other end of a pipe sees it now.
fn print_line(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn error_is_one_line_without_repetitions() {
        let error =
            anyhow::anyhow!("no such\nfile").context("cannot read x: no such file").context("stopped");
        assert_eq!(describe(&error), "stopped: cannot read x: no such file");
    }
}
