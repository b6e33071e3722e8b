//! `tavern local`: the subscribers of a folder that processes share without a server, and their queues. Creates nothing;
//! removes only dead processes, with `--sweep`.

use super::table::{self, Colour, paint};
use super::{moment, print_line};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tavern_local::{Local, Options, ProcessStat, Stat};
use tavern_store::{Clock, SystemClock};

#[derive(clap::Args)]
pub struct LocalArgs {
    #[command(subcommand)]
    action: LocalAction,
}

#[derive(clap::Subcommand)]
enum LocalAction {
    /// Show the subscribers of a folder and their queues
    Stat {
        /// The folder
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// First remove dead processes
        #[arg(long)]
        sweep: bool,
    },
}

/// The file of a folder's bus; without it there is no bus.
const DATABASE: &str = "bus.db";

pub fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    let LocalAction::Stat { data, json, sweep } = args.action;
    let Some(local) = open(&data)? else { bail!("no bus in {}", data.display()) };
    let swept = if sweep { Some(local.sweep()?) } else { None };
    let stat = local.stat()?;
    local.close()?;
    if json {
        print_line(&object(&stat, swept).to_string())?;
    } else {
        print_line(&text(&stat))?;
        if let Some(swept) = swept {
            eprintln!("removed {}", counted(swept as u64, "dead process", "dead processes"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens a folder without creating or cleaning up anything. None: there is no bus.
pub fn open(folder: &Path) -> anyhow::Result<Option<Local>> {
    match folder.join(DATABASE).try_exists() {
        Ok(true) => {
            Ok(Some(Local::open_with(folder, Options { sweep_on_open: false, ..Options::default() })?))
        }
        Ok(false) => Ok(None),
        Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot open {}", folder.display())),
    }
}

fn object(stat: &Stat, swept: Option<usize>) -> Value {
    let process = |process: &ProcessStat| {
        json!({
            "id": process.id, "pid": process.pid, "program": process.program, "alive": process.alive,
            "since": process.since, "subscribers": process.subscribers, "channels": process.channels,
            "patterns": process.patterns, "everything": process.everything, "queued": process.queued,
            "queued_bytes": process.queued_bytes, "lost": process.lost,
        })
    };
    let processes: Vec<Value> = stat.processes.iter().map(process).collect();
    let mut object = json!({
        "processes": processes, "log_messages": stat.log_messages, "log_bytes": stat.log_bytes,
        "oldest_ms": stat.oldest_ms, "last_id": stat.last_id, "database_bytes": stat.database_bytes,
        "wal_bytes": stat.wal_bytes,
    });
    if let Some(swept) = swept {
        object["swept"] = swept.into();
    }
    object
}

const HEADS: [&str; 11] = [
    "ID",
    "PID",
    "PROGRAM",
    "STATE",
    "AGE",
    "SUBSCRIBERS",
    "CHANNELS",
    "PATTERNS",
    "QUEUED",
    "BYTES",
    "LOST",
];

fn text(stat: &Stat) -> String {
    let mut rows = vec![HEADS.map(str::to_owned).to_vec()];
    rows.extend(stat.processes.iter().map(row));
    let mut text = if stat.processes.is_empty() { "no subscribers\n".into() } else { table::columns(&rows) };
    let log = counted(stat.log_messages, "message", "messages");
    let oldest = stat.oldest_ms.map_or(String::new(), |ms| format!(", the oldest {} ago", moment::span(ms)));
    text.push_str(&format!(
        "\nlog: {log}, {}{oldest}; database {}, WAL {}",
        table::size(stat.log_bytes),
        table::size(stat.database_bytes),
        table::size(stat.wal_bytes)
    ));
    text
}

fn row(process: &ProcessStat) -> Vec<String> {
    let colour = table::wants_colour();
    let state = if process.alive {
        paint("alive", Colour::Green, colour)
    } else {
        paint("dead", Colour::Red, colour)
    };
    let patterns = if process.everything { "everything".to_owned() } else { process.patterns.to_string() };
    vec![
        process.id.to_string(),
        process.pid.to_string(),
        table::plain(&process.program),
        state,
        moment::span(SystemClock.now().ms().saturating_sub(process.since)),
        process.subscribers.to_string(),
        process.channels.to_string(),
        patterns,
        process.queued.to_string(),
        table::size(process.queued_bytes),
        process.lost.to_string(),
    ]
}

/// A count with its noun.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
