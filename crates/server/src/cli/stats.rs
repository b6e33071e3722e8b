//! `tavern stats`: how many users, sessions and connections there are.

use super::options::ServerOptions;
use super::{block_on, print_line, table};
use std::process::ExitCode;
use tavern_client::{ConnectionNumbers, ServerStats};

#[derive(clap::Args)]
pub struct StatsArgs {
    #[command(flatten)]
    server: ServerOptions,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

pub fn run(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let json = args.json;
    let stats = block_on(async move { Ok(args.server.api_with_key("presence")?.stats().await?) })?;
    print_line(&if json { serde_json::to_string(&stats)? } else { text(&stats) })?;
    Ok(ExitCode::SUCCESS)
}

fn text(stats: &ServerStats) -> String {
    let (cluster, node) = (&stats.cluster, &stats.node);
    let row = |name: &str, all: u64, here: Option<u64>| {
        vec![name.to_owned(), all.to_string(), here.map_or("-".to_owned(), |here| here.to_string())]
    };
    let mut rows = vec![vec![
        String::new(),
        format!("CLUSTER ({} nodes)", cluster.nodes),
        format!("NODE {}", table::plain(&node.node)),
    ]];
    rows.push(row("users online", cluster.users_online, Some(node.users)));
    rows.push(row("sessions", cluster.sessions, Some(node.sessions)));
    for ((name, all), (_, here)) in
        by_transport(&cluster.connections).into_iter().zip(by_transport(&node.connections))
    {
        rows.push(row(&format!("{name} connections"), all, Some(here)));
    }
    rows.push(row("channels with subscribers", cluster.channels, Some(node.channels)));
    rows.push(row("presences", cluster.presences, None));
    rows.push(row("parties", cluster.parties, None));
    table::columns(&rows).trim_end().to_owned()
}

fn by_transport(numbers: &ConnectionNumbers) -> [(&'static str, u64); 4] {
    [("websocket", numbers.websocket), ("sse", numbers.sse), ("poll", numbers.poll), ("redis", numbers.redis)]
}
