//! `tavern follow`: follows or unfollows a user, or shows the statuses of followed users.

use super::options::ServerOptions;
use super::{block_on, line, moment, print_line, table};
use anyhow::{Context, bail};
use std::process::ExitCode;
use std::time::Duration;
use tavern_client::{Client, Event, Events, Status};
use tavern_store::{Clock, SystemClock};
use tokio::time::timeout;

#[derive(clap::Args)]
pub struct FollowArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The user to follow; without it, shows everyone you follow
    #[arg(value_name = "USER")]
    whom: Option<String>,
    /// Stop following
    #[arg(long, requires = "whom")]
    stop: bool,
    /// Keep running and print one JSON line per status change
    #[arg(long, conflicts_with = "stop")]
    watch: bool,
    /// With --watch: exit after this many lines
    #[arg(long, requires = "watch")]
    count: Option<u64>,
    /// JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How long the server may take to send the statuses.
const STATUSES_TIMEOUT: Duration = Duration::from_secs(10);

pub fn run(args: FollowArgs) -> anyhow::Result<ExitCode> {
    block_on(follow(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn follow(args: FollowArgs) -> anyhow::Result<()> {
    let client = args.server.client()?.build()?;
    let mut events = client.events();
    client.open().await?;
    match &args.whom {
        Some(user) if args.stop => client.me().unfollow(user).await?,
        Some(user) => client.me().follow(user).await?,
        None => {}
    }
    if args.watch {
        watch(&client, &mut events, args.count.unwrap_or(u64::MAX)).await?;
    } else if !args.stop {
        let statuses = match args.whom.as_deref() {
            Some(user) => client.me().status([user]).await?,
            None => timeout(STATUSES_TIMEOUT, all_statuses(&client, &mut events))
                .await
                .context("the server did not send the statuses in time")??,
        };
        print_line(&if args.json { serde_json::to_string(&statuses)? } else { text(&statuses) })?;
    }
    client.close().await;
    Ok(())
}

async fn all_statuses(client: &Client, events: &mut Events) -> anyhow::Result<Vec<Status>> {
    client.me().request_statuses().await?;
    while let Some(event) = events.next().await {
        match event? {
            Event::Statuses(statuses) => return Ok(statuses),
            Event::Closed(error) | Event::Error { error, retry_in: None } => return Err(error.into()),
            _ => {}
        }
    }
    bail!("the connection ended")
}

async fn watch(client: &Client, events: &mut Events, count: u64) -> anyhow::Result<()> {
    client.me().request_statuses().await?;
    let mut printed = 0;
    while printed < count
        && let Some(received) = events.next_received().await
    {
        let received = received?;
        match received.event {
            Event::Status(_) | Event::Statuses(_) => {
                print_line(&received.json.as_deref().map(line::one_line).unwrap_or_default())?;
                printed += 1;
            }
            Event::Reconnecting { why } => eprintln!("connection lost ({why}); reconnecting"),
            // A new session has no requests of the old one.
            Event::Reset { .. } => client.me().request_statuses().await?,
            Event::Closed(error) | Event::Error { error, retry_in: None } => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

fn text(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "you do not follow anyone yet: tavern follow USER".to_owned();
    }
    let mut rows = vec![["USER", "STATUS", "DOING", "LAST SEEN"].map(str::to_owned).to_vec()];
    rows.extend(statuses.iter().map(row));
    table::columns(&rows)
}

fn row(status: &Status) -> Vec<String> {
    let now = SystemClock.now().ms();
    let state = match (status.online, status.leaving) {
        (true, true) => "leaving",
        (true, false) => "online",
        (false, _) => "offline",
    };
    let doing: Vec<String> =
        status.activities.iter().map(|one| format!("{} {}", one.activity, one.channel)).collect();
    let seen = status.last_seen.map(|at| format!("{} ago", moment::span(now.saturating_sub(at))));
    vec![
        table::plain(&status.user),
        state.to_owned(),
        table::plain(&doing.join(", ")),
        seen.unwrap_or_default(),
    ]
}
