//! `tavern party`: commands about parties, one at a time, and what happens in yours. A command opens no session, so that
//! nobody comes and goes because of it: whoever wants to be in a party stays with `tavern party watch`.

use super::client::{Client, ClientError, Incoming};
use super::options::ServerOptions;
use super::stream::{percent_encode, request};
use super::{line, print_line};
use crate::auth::Credential;
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Print your party as JSON, or null
    Get,
    /// Stay, and print one JSON line for each event of parties
    Watch {
        /// End after so many lines
        #[arg(long)]
        count: Option<u64>,
    },
    /// Invite a user; without a party this begins one
    Invite { user: String },
    /// Take an invite back
    CancelInvite { user: String },
    /// Join the party that invited you
    Accept { party: u64 },
    /// Say no to an invite
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
    /// Let another member lead
    Promote { user: String },
    /// End your party
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
    /// Do not go after all
    CancelGo,
    /// Say that you are ready
    Ready { go: u64 },
    /// See no invites of a user
    Block { user: String },
    /// See them again
    Unblock { user: String },
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Watch { count } = args.action {
        return watch(&args.server, count.unwrap_or(u64::MAX));
    }
    let form = form(&args.action)?;
    let (path, authorization) = match args.server.credential() {
        Credential::User(user) => (format!("/party?user={}", percent_encode(&user)), None),
        Credential::Token(token) => ("/party".to_owned(), Some(token)),
        Credential::Key(_) => bail!("this is done by a user: give --token or, in dev mode, --user"),
    };
    let (status, body) = request(&args.server, "POST", &path, authorization.as_deref(), form.as_bytes())?;
    let answer: Value =
        serde_json::from_slice(&body).context("the server answered no JSON; is this a Tavern?")?;
    if status >= 400 {
        // The same object as everywhere, or the flat one of this form.
        let error = answer.get("error").unwrap_or(&Value::Null);
        let code = answer["code"].as_str().or(error["code"].as_str()).unwrap_or("refused");
        let message = error.as_str().or(error["message"].as_str()).unwrap_or_default();
        bail!("{code}: {message}");
    }
    print_line(&answer.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The command as form fields.
fn form(action: &Action) -> anyhow::Result<String> {
    let mut fields: Vec<(&str, String)> = Vec::new();
    let said = |message: &Option<String>| message.clone().map(|message| ("message", message));
    let cmd = match action {
        Action::Get => "get",
        Action::Watch { .. } => unreachable!("handled before"),
        Action::Invite { user } => named(&mut fields, "invite", user),
        Action::CancelInvite { user } => named(&mut fields, "cancel_invite", user),
        Action::Promote { user } => named(&mut fields, "promote", user),
        Action::Block { user } => named(&mut fields, "block", user),
        Action::Unblock { user } => named(&mut fields, "unblock", user),
        Action::Kick { user, message } => {
            fields.extend(said(message));
            named(&mut fields, "kick", user)
        }
        Action::Accept { party } => {
            fields.push(("party_id", party.to_string()));
            "accept"
        }
        Action::Decline { party, message } => {
            fields.push(("party_id", party.to_string()));
            fields.extend(said(message));
            "decline"
        }
        Action::Leave { message } => {
            fields.extend(said(message));
            "leave"
        }
        Action::Disband { message } => {
            fields.extend(said(message));
            "disband"
        }
        Action::SetData { data } => {
            let _: Value = serde_json::from_str(data).context("the data is not JSON")?;
            fields.push(("data", data.clone()));
            "set_data"
        }
        Action::Go { params } => {
            if let Some(params) = params {
                let _: Value = serde_json::from_str(params).context("--params is not JSON")?;
                fields.push(("params", params.clone()));
            }
            "go"
        }
        Action::CancelGo => "cancel_go",
        Action::Ready { go } => {
            fields.push(("go_id", go.to_string()));
            "ready"
        }
    };
    let mut form = format!("action=party&cmd={cmd}");
    for (name, value) in fields {
        form.push_str(&format!("&{name}={}", percent_encode(&value)));
    }
    Ok(form)
}

fn named(fields: &mut Vec<(&str, String)>, cmd: &'static str, user: &str) -> &'static str {
    fields.push(("user", user.to_owned()));
    cmd
}

/// Prints the party as it is, then every event of parties and what is said in it.
fn watch(server: &ServerOptions, count: u64) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(server)?;
    client.hello(None)?;
    print_line(&client.ask(json!({"op": "party.get"}))?.to_string())?;
    let (mut printed, mut last) = (0, 0);
    while printed < count {
        match client.receive(Instant::now() + Duration::from_secs(3600)) {
            Ok(Incoming::Text(text)) => {
                let event: Value = serde_json::from_str(&text)?;
                last = event["seq"].as_u64().unwrap_or(last);
                let chat = event["channel"].as_str().is_some_and(|channel| channel.starts_with("party#"));
                if event["event"] == "party" || chat {
                    print_line(&line::one_line(&text))?;
                    printed += 1;
                }
                // What was printed was heard.
                client.ask(json!({"op": "ack", "seq": last}))?;
            }
            Ok(Incoming::Heartbeat | Incoming::Nothing) => {}
            Err(ClientError::Lost(why)) => bail!("connection lost: {why}"),
            Err(error) => return Err(error.into()),
        }
    }
    client.bye();
    Ok(ExitCode::SUCCESS)
}
