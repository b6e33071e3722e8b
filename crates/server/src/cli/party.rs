//! `tavern party`: sends one party command, or prints party events. A command opens no session, so the user does not
//! come online. Members of a party must be online: run `tavern party watch` in another terminal.

use super::options::ServerOptions;
use super::{block_on, line, print_line};
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use std::process::ExitCode;
use tavern_client::{Auth, Event};

#[derive(clap::Args)]
pub struct PartyArgs {
    #[command(flatten)]
    server: ServerOptions,
    #[command(subcommand)]
    action: PartyAction,
}

#[derive(clap::Subcommand)]
enum PartyAction {
    /// Print your party as JSON, or null
    Get,
    /// Stay online, and print one JSON line per party event
    Watch {
        /// Exit after this many lines
        #[arg(long)]
        count: Option<u64>,
    },
    /// Invite a user; without a party this creates one
    Invite { user: String },
    /// Cancel an invite
    CancelInvite { user: String },
    /// Join the party that invited you
    Accept { party: u64 },
    /// Decline an invite
    Decline {
        party: u64,
        #[arg(long)]
        message: Option<String>,
    },
    /// Remove a member
    Kick {
        user: String,
        #[arg(long)]
        message: Option<String>,
    },
    /// Leave your party
    Leave {
        #[arg(long)]
        message: Option<String>,
    },
    /// Make another member the leader
    Promote { user: String },
    /// Disband your party
    Disband {
        #[arg(long)]
        message: Option<String>,
    },
    /// Replace the data of your party: a JSON object
    SetData { data: String },
    /// Go into a match together
    Go {
        /// JSON for the matchmaker
        #[arg(long, value_name = "JSON")]
        params: Option<String>,
    },
    /// Cancel the match request
    CancelGo,
    /// Confirm that you are ready
    Ready { go: u64 },
    /// Block invites from a user
    Block { user: String },
    /// Allow invites from a user again
    Unblock { user: String },
}

pub fn run(args: PartyArgs) -> anyhow::Result<ExitCode> {
    block_on(carry_out(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn carry_out(args: PartyArgs) -> anyhow::Result<()> {
    let Some((cmd, members)) = command(&args.action)? else {
        let PartyAction::Watch { count } = args.action else { return Ok(()) };
        return watch(&args.server, count.unwrap_or(u64::MAX)).await;
    };
    if let Auth::Key(_) = args.server.auth() {
        bail!("this command needs a user: use --token or, in dev mode, --user");
    }
    let reply = args.server.api()?.parties().own_command(cmd, members).await?;
    print_line(&reply.to_string())
}

/// The command with its members; None: it is not a command of the protocol.
fn command(action: &PartyAction) -> anyhow::Result<Option<(&'static str, Value)>> {
    Ok(Some(match action {
        PartyAction::Get => ("get", json!({})),
        PartyAction::Watch { .. } => return Ok(None),
        PartyAction::Invite { user } => ("invite", json!({"user": user})),
        PartyAction::CancelInvite { user } => ("cancel_invite", json!({"user": user})),
        PartyAction::Accept { party } => ("accept", json!({"party_id": party})),
        PartyAction::Decline { party, message } => {
            ("decline", json!({"party_id": party, "message": message}))
        }
        PartyAction::Kick { user, message } => ("kick", json!({"user": user, "message": message})),
        PartyAction::Leave { message } => ("leave", json!({"message": message})),
        PartyAction::Promote { user } => ("promote", json!({"user": user})),
        PartyAction::Disband { message } => ("disband", json!({"message": message})),
        PartyAction::SetData { data } => ("set_data", json!({"data": parse(data, "the data")?})),
        PartyAction::Go { params: None } => ("go", json!({})),
        PartyAction::Go { params: Some(params) } => ("go", json!({"params": parse(params, "--params")?})),
        PartyAction::CancelGo => ("cancel_go", json!({})),
        PartyAction::Ready { go } => ("ready", json!({"go_id": go})),
        PartyAction::Block { user } => ("block", json!({"user": user})),
        PartyAction::Unblock { user } => ("unblock", json!({"user": user})),
    }))
}

fn parse(text: &str, what: &str) -> anyhow::Result<Value> {
    serde_json::from_str(text).with_context(|| format!("{what} is not JSON"))
}

/// The number of an event, by which it is acknowledged.
#[derive(Deserialize)]
struct SeqField {
    seq: Option<u64>,
}

/// Prints the party, then every party event and party message.
async fn watch(server: &ServerOptions, count: u64) -> anyhow::Result<()> {
    let client = server.client()?.build()?;
    let mut events = client.events();
    client.open().await?;
    print_line(&client.party().command("get", json!({})).await?.to_string())?;
    let mut printed = 0;
    while printed < count
        && let Some(received) = events.next_received().await
    {
        let received = received?;
        match received.event {
            Event::Party(_) | Event::PartyMessage(_) => {
                let json = received.json.unwrap_or_default();
                print_line(&line::one_line(&json))?;
                printed += 1;
                // Acknowledged once printed, so that it is not delivered again to the next session.
                if let SeqField { seq: Some(seq) } = serde_json::from_str(&json)? {
                    client.command("ack", json!({"seq": seq}), true).await?;
                }
            }
            Event::Reconnecting { why } => eprintln!("connection lost ({why}); reconnecting"),
            Event::Closed(error) => return Err(error.into()),
            _ => {}
        }
    }
    client.close().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_become_commands_of_the_protocol() {
        let decline = PartyAction::Decline { party: 5, message: None };
        let expected = ("decline", json!({"party_id": 5, "message": null}));
        assert_eq!(command(&decline).unwrap(), Some(expected));
        let data = PartyAction::SetData { data: "{\"a\": 1}".into() };
        assert_eq!(command(&data).unwrap(), Some(("set_data", json!({"data": {"a": 1}}))));
        assert!(command(&PartyAction::SetData { data: "{".into() }).is_err());
        assert!(command(&PartyAction::Go { params: Some("x".into()) }).is_err());
    }
}
