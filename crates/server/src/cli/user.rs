//! `tavern user`: the channels of a user, and why they count as online or offline. Needs an API key.

use super::options::ServerOptions;
use super::{block_on, moment, print_line, table};
use std::process::ExitCode;
use tavern_client::UserReport;
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct UserArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The user id
    name: String,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: UserArgs) -> anyhow::Result<ExitCode> {
    let json = args.json;
    let report =
        block_on(async move { Ok(args.server.api_with_key("presence")?.users().get(&args.name).await?) })?;
    print_line(&if json { serde_json::to_string(&report)? } else { text(&report) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(user: &UserReport) -> String {
    let now = SystemClock.now().ms();
    let ago = |at: u64| moment::span(now.saturating_sub(at));
    let state = match (user.online, user.leaving) {
        (true, true) => "leaving",
        (true, false) => "online",
        (false, _) => "offline",
    };
    let mut text = format!("{} is {state}: {}", table::plain(&user.user), table::plain(&user.why));
    if user.banned {
        let lift = format!("tavern users unban {}", table::plain(&user.user));
        text.push_str(&format!("\nbanned: they cannot connect; to lift the ban: {lift}"));
    }
    if let Some(seen) = user.last_seen {
        text.push_str(&format!("\nlast seen {} ago", ago(seen)));
    }
    let mut rows = vec![["CHANNEL", "CLIENT", "NODE", "FOR", "STATE"].map(str::to_owned).to_vec()];
    for channel in &user.channels {
        for client in &channel.clients {
            let state = match client.lost_at {
                Some(lost) => format!("lost {} ago", ago(lost)),
                None => client.state.to_string(),
            };
            rows.push(vec![
                table::plain(&channel.channel),
                table::plain(&client.client),
                table::plain(&client.node),
                ago(client.since),
                table::plain(&state),
            ]);
        }
    }
    if rows.len() > 1 {
        text.push_str("\n\n");
        text.push_str(&table::columns(&rows));
    }
    text
}
