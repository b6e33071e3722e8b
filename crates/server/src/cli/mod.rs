//! The command line: one file per command, each with `Args` and `run`. Commands speak the public protocol or the
//! store's contract like anybody else; nothing here is a back door. Results go to stdout, words about them to stderr.

mod archive;
mod certificate;
mod check;
mod client;
mod completions;
pub mod dev;
mod doctor;
mod events;
mod export;
mod folder;
mod follow;
mod import;
mod key;
mod line;
mod local;
mod man;
mod moment;
mod options;
mod party;
mod publish;
mod ready;
mod serve;
mod stream;
mod subscribe;
mod table;
mod token;
mod user;
mod who;

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
    /// Start with no configuration, on this machine only
    Dev(dev::Args),
    /// Start for real: needs a secret, denies by default
    Serve(serve::Args),
    /// Print a token for a user
    Token(token::Args),
    /// Create, list and revoke API keys
    Key(key::Args),
    /// Publish one message and print how many received it
    Publish(publish::Args),
    /// Print the messages of channels, one JSON line each
    Subscribe(subscribe::Args),
    /// Look at a folder that processes share without a server
    Local(local::Args),
    /// Show who is in a channel
    Who(who::Args),
    /// Show where a user is, and why he counts as online
    User(user::Args),
    /// Follow a user, or show what those you follow do
    Follow(follow::Args),
    /// Invite, accept, lead and go, or watch your party
    Party(party::Args),
    /// Publish, subscribe to, tail and replay durable events; receive webhooks
    Events(events::Args),
    /// Check the configuration and show where each value came from
    Check(check::Args),
    /// Check what the server needs around it: store, clock, ports, limits, disk
    Doctor(doctor::Args),
    /// Ask a running server whether it is ready; exit code 1 when it is not
    Ready(ready::Args),
    /// Write everything that a store keeps to stdout
    Export(export::Args),
    /// Read an export from stdin into an empty store
    Import(import::Args),
    /// Print what completes the command line in a shell
    Completions(completions::Args),
    /// Print the manual page, or write those of all commands into a folder
    Man(man::Args),
}

pub fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Dev(args) => dev::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Token(args) => token::run(args),
        Command::Key(args) => key::run(args),
        Command::Publish(args) => publish::run(args),
        Command::Subscribe(args) => subscribe::run(args),
        Command::Local(args) => local::run(args),
        Command::Who(args) => who::run(args),
        Command::User(args) => user::run(args),
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
        // `tavern subscribe … | head` is no failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The whole chain of causes on one line. A cause that its effect has already told is not told again.
fn told(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(|cause| cause.to_string().replace('\n', " ")) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told = format!("{told}: {cause}");
        }
    }
    told
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
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_error_is_one_line_that_repeats_nothing() {
        let error =
            anyhow::anyhow!("no such\nfile").context("cannot read x: no such file").context("stopped");
        assert_eq!(told(&error), "stopped: cannot read x: no such file");
    }
}
