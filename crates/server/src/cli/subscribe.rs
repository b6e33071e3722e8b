//! `tavern subscribe`: prints the messages of channels and patterns, one flushed JSON line each, of a server or of a
//! folder. Survives a lost connection: the client reconnects and resumes its session.

use super::line::one_line;
use super::options::{FolderOptions, ServerOptions};
use super::{block_on, folder, print_line};
use anyhow::Context;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;
use tavern_client::{Event, Events, Received};
use tokio::time::{Instant, timeout_at};

#[derive(clap::Args)]
pub struct SubscribeArgs {
    #[command(flatten)]
    server: ServerOptions,
    #[command(flatten)]
    folder: FolderOptions,
    /// Channels, such as game#1
    #[arg(required_unless_present = "pattern")]
    channel: Vec<OsString>,
    /// Patterns, such as 'game#*'
    #[arg(long, value_name = "PATTERN")]
    pattern: Vec<OsString>,
    /// Exit after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Exit after this many milliseconds
    #[arg(long, value_name = "MS")]
    wait: Option<u64>,
}

pub fn run(args: SubscribeArgs) -> anyhow::Result<ExitCode> {
    let SubscribeArgs { server, folder, channel, pattern, count, wait } = args;
    let wait = wait.map(Duration::from_millis);
    match folder.data {
        Some(data) => {
            let wanted = folder::ListenRequest { channels: &channel, patterns: &pattern, count, wait };
            folder::subscribe(&data, &wanted)?;
        }
        None => {
            let (channels, patterns) = (texts(channel, "channel")?, texts(pattern, "pattern")?);
            block_on(listen(server, channels, patterns, count, wait))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Names on a server must be UTF-8.
fn texts(names: Vec<OsString>, what: &str) -> anyhow::Result<Vec<String>> {
    let text =
        |name: OsString| name.into_string().ok().with_context(|| format!("a {what} is not UTF-8 text"));
    names.into_iter().map(text).collect()
}

async fn listen(
    server: ServerOptions,
    channels: Vec<String>,
    patterns: Vec<String>,
    count: Option<u64>,
    wait: Option<Duration>,
) -> anyhow::Result<()> {
    let client = server.client()?.build()?;
    let mut events = client.events();
    client.open().await?;
    for channel in channels {
        client.channel(channel).subscribe().await?;
    }
    for pattern in patterns {
        client.pattern(pattern).subscribe().await?;
    }
    let end = wait.and_then(|wait| Instant::now().checked_add(wait));
    match end {
        Some(end) => timeout_at(end, print_messages(&mut events, count)).await.unwrap_or(Ok(()))?,
        None => print_messages(&mut events, count).await?,
    }
    client.close().await;
    Ok(())
}

async fn print_messages(events: &mut Events, count: Option<u64>) -> anyhow::Result<()> {
    let mut printed = 0;
    while let Some(received) = events.next_received().await {
        let Received { event, json } = received?;
        let json = json.as_deref().map(one_line).unwrap_or_default();
        match event {
            Event::Message(_) => {
                print_line(&json)?;
                printed += 1;
                if count == Some(printed) {
                    return Ok(());
                }
            }
            Event::Gap(_) => eprintln!("messages were missed: {json}"),
            Event::Reconnecting { why } => eprintln!("connection lost ({why}); reconnecting"),
            Event::Reset { failed } => match failed.into_iter().next() {
                Some(refused) => return Err(refused.error.into()),
                None => eprintln!("the session has expired; messages may have been missed"),
            },
            Event::Closed(error) => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}
