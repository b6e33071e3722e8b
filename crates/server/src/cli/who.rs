//! `tavern who`: who is in a channel, as a table or as JSON.

use super::options::ServerOptions;
use super::{block_on, moment, print_line, table};
use std::process::ExitCode;
use tavern_client::{Auth, Member, Members};
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct WhoArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The channel, such as game#1
    channel: String,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: WhoArgs) -> anyhow::Result<ExitCode> {
    let json = args.json;
    let members = block_on(ask(args))?;
    print_line(&if json { serde_json::to_string(&members)? } else { text(&members) })?;
    Ok(ExitCode::SUCCESS)
}

async fn ask(args: WhoArgs) -> anyhow::Result<Members> {
    if let Auth::Key(_) = args.server.auth() {
        return Ok(args.server.api()?.channels().presence(&args.channel).await?);
    }
    let client = args.server.client()?.connect().await?;
    let members = client.channel(args.channel).who().await?;
    client.close().await;
    Ok(members)
}

fn text(members: &Members) -> String {
    if members.users.is_empty() {
        return "no users".to_owned();
    }
    let mut rows = vec![["USER", "NAME", "FOR", "CLIENTS", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(members.users.iter().map(row));
    table::columns(&rows)
}

fn row(member: &Member) -> Vec<String> {
    let states = member.clients.iter().map(|client| &client.state).filter(|state| !state.is_null());
    let states: Vec<String> = states.map(ToString::to_string).collect();
    vec![
        member.user.as_deref().map_or("(anonymous)".to_owned(), table::plain),
        member.name.as_deref().map_or(String::new(), table::plain),
        moment::span(SystemClock.now().ms().saturating_sub(member.since)),
        if member.leaving { "leaving".to_owned() } else { member.clients.len().to_string() },
        table::plain(&states.join(" ")),
    ]
}
