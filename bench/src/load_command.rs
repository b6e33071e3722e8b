//! `tavern-bench load`: one load on a running server, with progress and a table.

use std::time::Duration;

use anyhow::ensure;
use indicatif::{ProgressBar, ProgressStyle};

use crate::load::{DEFAULT_WINDOW, Length, Load};
use crate::run::{self, Watch};
use crate::table;
use crate::target::Target;

/// Load a running server and report the results.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// The server: redis://H:P, ws://H:P, nats://H:P, http://H:P for long-polls, or pusher://H:P
    #[arg(long, default_value = "redis://127.0.0.1:7401")]
    target: Target,
    /// Publish to another address than that of the subscribers
    #[arg(long, value_name = "TARGET")]
    publish_to: Option<Target>,
    /// A token, for servers that require one
    #[arg(long, env = "TAVERN_TOKEN", hide_env_values = true)]
    token: Option<String>,
    #[arg(long, short, default_value_t = 100)]
    subscribers: usize,
    #[arg(long, short, default_value_t = 1)]
    publishers: usize,
    /// Channels, over which subscribers and publishers are spread
    #[arg(long, short, default_value_t = 1)]
    channels: usize,
    /// Bytes of each message's payload
    #[arg(long, value_name = "BYTES", default_value_t = 256)]
    payload: usize,
    /// Publishes sent together before their replies are waited for
    #[arg(long, short, default_value_t = 16)]
    depth: usize,
    /// Messages a second, all publishers together; without it as many as the server takes
    #[arg(long, short, value_name = "MESSAGES")]
    rate: Option<f64>,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Publish this many messages instead of for a time
    #[arg(long, conflicts_with = "seconds")]
    messages: Option<u64>,
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5)]
    warmup: f64,
    /// Publishers wait when their listeners are this many messages behind
    #[arg(long, value_name = "MESSAGES", default_value_t = DEFAULT_WINDOW)]
    window: u64,
    /// Only open the connections, subscribed to nothing, and tell the memory that each one takes
    #[arg(long, requires = "pid")]
    idle: bool,
    /// The server's process: adds its processor time and memory to the table
    #[arg(long)]
    pid: Option<u32>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// How long idle connections rest before their memory is measured.
const HOLD: Duration = Duration::from_secs(3);
const LONGEST: f64 = 86_400.0;

pub fn run(args: LoadArgs) -> anyhow::Result<()> {
    let json = args.json;
    let load = load(args)?;
    let mut bar = Bar::new(json);
    let outcome = run::run(&load, &mut bar);
    bar.bar.finish_and_clear();
    let outcome = outcome?;
    if json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        println!("{}", table::outcome(&load, &outcome));
    }
    Ok(())
}

fn load(args: LoadArgs) -> anyhow::Result<Load> {
    for seconds in [args.seconds, args.warmup] {
        ensure!((0.0..=LONGEST).contains(&seconds), "a time of 0 to {LONGEST} seconds");
    }
    let load = Load {
        publish_to: args.publish_to.unwrap_or_else(|| args.target.publishing()),
        token: args.token,
        subscribers: args.subscribers,
        publishers: if args.idle { 0 } else { args.publishers },
        channels: args.channels,
        payload: args.payload,
        depth: args.depth,
        rate: args.rate,
        warmup: Duration::from_secs_f64(args.warmup),
        length: match args.messages {
            Some(messages) => Length::Messages(messages),
            None => Length::Time(Duration::from_secs_f64(args.seconds)),
        },
        window: args.window,
        idle: args.idle,
        hold: if args.idle { HOLD } else { Duration::ZERO },
        pid: args.pid,
        ..Load::new(args.target)
    };
    load.check()?;
    Ok(load)
}

struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new(hidden: bool) -> Self {
        let bar = if hidden { ProgressBar::hidden() } else { ProgressBar::new(1000) };
        if let Ok(style) = ProgressStyle::with_template("{msg:28} {wide_bar} {percent:>3}%") {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl Watch for Bar {
    fn connecting(&mut self, done: usize, total: usize) {
        self.bar.set_message(format!("connecting {done} of {total}"));
        self.bar.set_position((done * 1000 / total.max(1)) as u64);
    }

    fn running(&mut self, share: f64, deliveries: u64) {
        self.bar.set_message(format!("{} delivered", table::count(deliveries as f64)));
        self.bar.set_position((share * 1000.0) as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: LoadArgs,
    }

    fn parse(line: &str) -> anyhow::Result<Load> {
        load(Program::try_parse_from(line.split(' '))?.args)
    }

    #[test]
    fn the_defaults_are_a_fan_out_to_a_hundred_on_the_local_server() {
        let load = parse("load").unwrap();
        assert_eq!(load.target.to_string(), "redis://127.0.0.1:7401");
        assert_eq!((load.subscribers, load.publishers, load.depth), (100, 1, 16));
        assert_eq!(load.rate, None);
    }

    #[test]
    fn long_polls_are_asked_for_by_their_scheme() {
        let load = parse("load --target http://127.0.0.1:7400 -s 10 --rate 20").unwrap();
        assert_eq!(load.publish_to.to_string(), "ws://127.0.0.1:7400");
    }

    #[test]
    fn idle_connections_need_a_process_and_have_no_publishers() {
        assert!(parse("load --idle").is_err());
        let load = parse("load --idle --pid 1 -s 1000").unwrap();
        assert_eq!((load.publishers, load.hold), (0, HOLD));
    }

    #[test]
    fn impossible_loads_are_refused_before_anything_is_opened() {
        assert!(parse("load --payload 3").is_err());
        assert!(parse("load --seconds -1").is_err());
        assert!(parse("load --seconds 1e300").is_err());
        assert!(parse("load --messages 5 --seconds 3").is_err());
    }
}
