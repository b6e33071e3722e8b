//! `tavern follow`: whom a user follows and what they do; begins or stops to follow somebody.

use super::client::{Client, ClientError, Incoming};
use super::options::ServerOptions;
use super::{line, moment, print_line, table};
use anyhow::bail;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// Whom to follow; without it shows everybody you follow
    #[arg(value_name = "USER")]
    whom: Option<String>,
    /// Stop following
    #[arg(long, requires = "whom")]
    stop: bool,
    /// Go on and print one JSON line for each change of status
    #[arg(long, conflicts_with = "stop")]
    watch: bool,
    /// With --watch: end after so many lines
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How long the server may take to tell about everybody.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(&args.server)?;
    client.hello(None)?;
    if let Some(user) = &args.whom {
        let op = if args.stop { "unfollow" } else { "follow" };
        client.ask(json!({"op": op, "user": user}))?;
    }
    if args.watch {
        return watch(client, args.count.unwrap_or(u64::MAX));
    }
    if !args.stop {
        let statuses = statuses(&mut client, args.whom.as_deref())?;
        print_line(&if args.json { statuses.to_string() } else { text(&statuses) })?;
    }
    client.bye();
    Ok(ExitCode::SUCCESS)
}

/// What those one follows do, or one of them.
fn statuses(client: &mut Client, user: Option<&str>) -> anyhow::Result<Value> {
    if let Some(user) = user {
        return Ok(client.ask(json!({"op": "status", "users": [user]}))?["statuses"].clone());
    }
    client.ask(json!({"op": "hello", "status": true}))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match client.receive(until)? {
            Incoming::Text(text) => {
                let event: Value = serde_json::from_str(&text)?;
                if event["event"] == "statuses" {
                    return Ok(event["statuses"].clone());
                }
            }
            Incoming::Heartbeat => {}
            Incoming::Nothing => bail!("the server did not tell who is where within 10 s"),
        }
    }
}

fn watch(mut client: Client, count: u64) -> anyhow::Result<ExitCode> {
    client.ask(json!({"op": "hello", "status": true}))?;
    let mut printed = 0;
    while printed < count {
        match client.receive(Instant::now() + Duration::from_secs(3600)) {
            Ok(Incoming::Text(text)) => {
                let event: Value = serde_json::from_str(&text)?;
                if event["event"] == "status" || event["event"] == "statuses" {
                    print_line(&line::one_line(&text))?;
                    printed += 1;
                }
            }
            Ok(Incoming::Heartbeat | Incoming::Nothing) => {}
            Err(ClientError::Lost(why)) => bail!("connection lost: {why}"),
            Err(error) => return Err(error.into()),
        }
    }
    client.bye();
    Ok(ExitCode::SUCCESS)
}

fn text(statuses: &Value) -> String {
    let now = SystemClock.now().ms();
    let mut rows = vec![["USER", "STATUS", "DOING", "LAST SEEN"].map(str::to_owned).to_vec()];
    for status in statuses.as_array().into_iter().flatten() {
        let state = match (status["online"].as_bool(), status["leaving"].as_bool()) {
            (Some(true), Some(true)) => "leaving",
            (Some(true), _) => "online",
            _ => "offline",
        };
        let doing = status["activities"].as_array().into_iter().flatten().map(|one| {
            format!(
                "{} {}",
                one["activity"].as_str().unwrap_or_default(),
                one["channel"].as_str().unwrap_or_default()
            )
        });
        let doing: Vec<String> = doing.collect();
        let seen =
            status["last_seen"].as_u64().map(|at| format!("{} ago", moment::span(now.saturating_sub(at))));
        rows.push(vec![
            table::plain(status["user"].as_str().unwrap_or_default()),
            state.to_owned(),
            table::plain(&doing.join(", ")),
            seen.unwrap_or_default(),
        ]);
    }
    match rows.len() {
        1 => "you follow nobody yet: tavern follow USER".to_owned(),
        _ => table::columns(&rows),
    }
}
