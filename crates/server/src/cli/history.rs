//! `tavern history`: the last messages of a channel that keeps history, as lines or as JSON.

use super::options::ServerOptions;
use super::{block_on, moment, print_line, table};
use std::process::ExitCode;
use tavern_client::{Auth, HistoryQuery, PastMessage, PastMessages};
use tavern_domain::Time;

#[derive(clap::Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// The channel, such as chat#lobby
    channel: String,
    /// At most so many messages; 100 by default, 1000 at most
    #[arg(long)]
    limit: Option<u64>,
    /// Messages after this offset, the oldest first
    #[arg(long)]
    after: Option<u64>,
    /// Messages before this offset
    #[arg(long)]
    before: Option<u64>,
    /// Remove the history of the channel instead; needs an API key
    #[arg(long, conflicts_with_all = ["limit", "after", "before"])]
    clear: bool,
    /// One JSON object instead of lines
    #[arg(long)]
    json: bool,
}

pub fn run(args: HistoryArgs) -> anyhow::Result<ExitCode> {
    if args.clear {
        block_on(clear(args))?;
        return Ok(ExitCode::SUCCESS);
    }
    let json = args.json;
    let page = block_on(read(args))?;
    print_line(&if json { serde_json::to_string(&page)? } else { text(&page) })?;
    Ok(ExitCode::SUCCESS)
}

async fn clear(args: HistoryArgs) -> anyhow::Result<()> {
    Ok(args.server.api()?.channels().clear_history(&args.channel).await?)
}

async fn read(args: HistoryArgs) -> anyhow::Result<PastMessages> {
    let query = HistoryQuery { after: args.after, before: args.before, limit: args.limit };
    if let Auth::Key(_) = args.server.auth() {
        return Ok(args.server.api()?.channels().history(&args.channel, query).await?);
    }
    let client = args.server.client()?.connect().await?;
    let page = client.channel(args.channel).history(query).await;
    client.close().await;
    Ok(page?)
}

fn text(page: &PastMessages) -> String {
    if page.messages.is_empty() {
        return "no messages".to_owned();
    }
    let mut rows = vec![["OFFSET", "AT", "FROM", "DATA"].map(str::to_owned).to_vec()];
    rows.extend(page.messages.iter().map(row));
    table::columns(&rows)
}

fn row(message: &PastMessage) -> Vec<String> {
    let sender = message.from.as_ref().and_then(|sender| sender.user.as_deref().or(sender.client.as_deref()));
    vec![
        message.offset.to_string(),
        moment::show(Time(message.at)),
        sender.map_or(String::new(), table::plain),
        table::plain(&message.data.to_string()),
    ]
}
