//! `tavern users`: the sessions of a user, disconnecting, banning and erasing them. Needs an API key.

use super::options::ServerOptions;
use super::{block_on, moment, print_line, table};
use anyhow::Context;
use std::process::ExitCode;
use tavern_client::{Backend, DisconnectOptions, ReachedSessions, SessionsOfUser};
use tavern_store::{Clock, SystemClock};
use tavern_wire::json::parse_moment;

const SCOPE: &str = "users";

#[derive(clap::Args)]
pub struct UsersArgs {
    #[command(subcommand)]
    action: UsersAction,
}

#[derive(clap::Subcommand)]
enum UsersAction {
    /// List the sessions of a user on all nodes
    Sessions {
        /// The user id
        name: String,
        /// One JSON object instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// End all sessions of a user, on all nodes
    Disconnect {
        /// The user id
        name: String,
        /// The close code of WebSockets, 4000 to 4999; clients reconnect after 4500 and above
        #[arg(long)]
        code: Option<u16>,
        /// Shown to the client
        #[arg(long)]
        reason: Option<String>,
        /// A client that stays; may be repeated
        #[arg(long, value_name = "CLIENT")]
        except: Vec<String>,
        /// Close connections only: clients may resume their sessions
        #[arg(long)]
        allow_resume: bool,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// Let a user open no session; those that exist end
    Ban {
        /// The user id
        name: String,
        /// Shown to the user
        #[arg(long, default_value = "")]
        reason: String,
        /// When the ban ends: milliseconds since 1970, or a time such as 2026-11-15T10:00:00Z [default: never]
        #[arg(long)]
        until: Option<String>,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// Lift the ban of a user
    Unban {
        /// The user id
        name: String,
        #[command(flatten)]
        server: ServerOptions,
    },
    /// Erase what is stored about a user: follows, last seen, inbox, party; their ban stays
    Erase {
        /// The user id
        name: String,
        #[command(flatten)]
        server: ServerOptions,
    },
}

pub fn run(args: UsersArgs) -> anyhow::Result<ExitCode> {
    block_on(act(args.action))?;
    Ok(ExitCode::SUCCESS)
}

async fn act(action: UsersAction) -> anyhow::Result<()> {
    match action {
        UsersAction::Sessions { name, json, server } => {
            let found = backend(&server)?.sessions_of(&name).await?;
            warn(&found.missing_nodes);
            print_line(&if json { serde_json::to_string(&found)? } else { sessions(&found) })
        }
        UsersAction::Disconnect { name, code, reason, except, allow_resume, server } => {
            let options = DisconnectOptions { code, reason, except, allow_resume };
            let reached = backend(&server)?.disconnect(&name, &options).await?;
            report("disconnected", &reached)
        }
        UsersAction::Ban { name, reason, until, server } => {
            let until = until.as_deref().map(time).transpose()?;
            let reached = backend(&server)?.ban(&name, &reason, until).await?;
            report("banned; ended", &reached)
        }
        UsersAction::Unban { name, server } => Ok(backend(&server)?.unban(&name).await?),
        UsersAction::Erase { name, server } => Ok(backend(&server)?.erase_user(&name).await?),
    }
}

fn backend(server: &ServerOptions) -> anyhow::Result<Backend> {
    Ok(Backend::new(server.api_with_key(SCOPE)?))
}

pub(super) fn time(text: &str) -> anyhow::Result<u64> {
    let wanted = "give milliseconds since 1970, or a time such as 2026-11-15T10:00:00Z";
    text.parse().ok().or_else(|| parse_moment(text)).with_context(|| format!("{text:?} is no time: {wanted}"))
}

fn report(done: &str, reached: &ReachedSessions) -> anyhow::Result<()> {
    warn(&reached.missing_nodes);
    print_line(&format!("{done} {} sessions", reached.sessions))
}

fn warn(missing_nodes: &[String]) {
    if !missing_nodes.is_empty() {
        eprintln!("warning: no answer from {}; try again", missing_nodes.join(", "));
    }
}

fn sessions(found: &SessionsOfUser) -> String {
    if found.sessions.is_empty() {
        return "no sessions".to_owned();
    }
    let now = SystemClock.now().ms();
    let mut rows = vec![["CLIENT", "NODE", "TRANSPORT", "FOR", "CHANNELS"].map(str::to_owned).to_vec()];
    rows.extend(found.sessions.iter().map(|session| {
        vec![
            table::plain(&session.client),
            table::plain(&session.node),
            session.transport.as_deref().map_or("detached".to_owned(), table::plain),
            moment::span(now.saturating_sub(session.since)),
            session.channels.to_string(),
        ]
    }));
    table::columns(&rows).trim_end().to_owned()
}
