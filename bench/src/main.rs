//! The program `tavern-bench`: loads servers of messages, compares Tavern with its peers, and measures each feature by itself.
//! Speaks the Redis protocol, NATS, the JSON protocol over WebSocket, the long-poll and the Pusher protocol, each only as far as
//! publishing and listening need. Knows no rule of Tavern, links none of its crates and is linked into none, so that
//! a figure measured here is a figure any client would see.
//! Must hold: the same workload is the same bytes in the same batches for every server; one thread makes the
//! whole load of messages, because it shares the cores with the server it measures.
#![forbid(unsafe_code)]

mod cases;
mod cluster;
mod compare;
mod crowd;
mod dial;
mod events;
mod figure;
mod frame;
mod history;
mod load;
mod load_command;
mod parties;
mod presence;
mod process;
mod publisher;
mod pusher;
mod report;
mod run;
mod scan;
mod stage;
mod stamp;
mod subscriber;
mod table;
mod target;

use clap::Parser;

/// Load generator for Tavern, and its comparison with Redis and NATS.
#[derive(Parser)]
#[command(name = "tavern-bench", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Put one load on a running server and show its throughput, latency and cost
    Load(load_command::LoadArgs),
    /// Compare Tavern with redis-server and nats-server on this machine
    Compare(compare::CompareArgs),
    /// Measure what presence costs
    Presence(presence::PresenceArgs),
    /// Measure what several nodes cost on Redis, Postgres and NATS
    Cluster(cluster::ClusterArgs),
    /// Measure what topics and webhooks cost
    Events(events::EventsArgs),
    /// Measure what parties cost
    Parties(parties::PartiesArgs),
    /// Measure what channel history costs
    History(history::HistoryArgs),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Load(args) => load_command::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Presence(args) => presence::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::Events(args) => events::run(args),
        Command::Parties(args) => parties::run(args),
        Command::History(args) => history::run(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_valid() {
        Cli::command().debug_assert();
    }
}
