//! `tavern users`: lists of users and bans; the sessions of a user, disconnecting, banning and erasing them. Needs an API key.

use super::options::ServerOptions;
use super::{block_on, moment, print_line, table};
use anyhow::Context;
use std::process::ExitCode;
use tavern_client::{Api, BanSummary, DisconnectOptions, ReachedSessions, SessionsOfUser, UserSummary};
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
    /// List users who are online or known, by id
    List {
        /// Only users whose id begins with this
        #[arg(default_value = "")]
        prefix: String,
        /// Only users who are online
        #[arg(long)]
        online: bool,
        /// One JSON line per user
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        server: ServerOptions,
    },
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
    /// List the bans that are not over
    Bans {
        /// One JSON line per ban
        #[arg(long)]
        json: bool,
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
        UsersAction::List { prefix, online, json, server } => list(&server, &prefix, online, json).await,
        UsersAction::Bans { json, server } => bans(&api(&server)?.users().bans().await?, json),
        UsersAction::Sessions { name, json, server } => {
            let found = api(&server)?.users().sessions(&name).await?;
            warn(&found.missing_nodes);
            print_line(&if json { serde_json::to_string(&found)? } else { sessions(&found) })
        }
        UsersAction::Disconnect { name, code, reason, except, allow_resume, server } => {
            let options = DisconnectOptions { code, reason, except, allow_resume };
            let reached = api(&server)?.users().disconnect(&name, &options).await?;
            report("disconnected", &reached)
        }
        UsersAction::Ban { name, reason, until, server } => {
            let until = until.as_deref().map(time).transpose()?;
            let reached = api(&server)?.users().ban(&name, &reason, until).await?;
            report("banned; ended", &reached)
        }
        UsersAction::Unban { name, server } => Ok(api(&server)?.users().unban(&name).await?),
        UsersAction::Erase { name, server } => Ok(api(&server)?.users().erase(&name).await?),
    }
}

/// Every page is printed when it arrives: a server may know millions of users.
async fn list(server: &ServerOptions, prefix: &str, online: bool, json: bool) -> anyhow::Result<()> {
    let api = server.api_with_key("presence")?;
    let now = SystemClock.now().ms();
    let mut after: Option<String> = None;
    let mut titles = (!json).then(|| ["USER", "STATE", "LAST SEEN", "NAME"].map(str::to_owned).to_vec());
    loop {
        let page = api.users().list(prefix, after.as_deref()).await?;
        let users = page.users.iter().filter(|user| user.online || !online);
        if json {
            for user in users {
                print_line(&serde_json::to_string(user)?)?;
            }
        } else {
            let rows: Vec<_> = titles.take().into_iter().chain(users.map(|user| row(user, now))).collect();
            print_rows(&rows)?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

fn row(user: &UserSummary, now: u64) -> Vec<String> {
    let state = match (user.online, user.leaving) {
        (true, true) => "leaving",
        (true, false) => "online",
        (false, _) => "offline",
    };
    let seen =
        user.last_seen.map_or("-".to_owned(), |at| format!("{} ago", moment::span(now.saturating_sub(at))));
    let name = user.name.as_deref().map_or(String::new(), table::plain);
    vec![table::plain(&user.user), state.to_owned(), seen, name]
}

fn print_rows(rows: &[Vec<String>]) -> anyhow::Result<()> {
    if rows.is_empty() { Ok(()) } else { print_line(table::columns(rows).trim_end()) }
}

fn bans(bans: &[BanSummary], json: bool) -> anyhow::Result<()> {
    if json {
        return bans.iter().try_for_each(|ban| print_line(&serde_json::to_string(ban)?));
    }
    if bans.is_empty() {
        return print_line("no bans");
    }
    let now = SystemClock.now().ms();
    let mut rows = vec![["USER", "FOR", "ENDS", "REASON"].map(str::to_owned).to_vec()];
    rows.extend(bans.iter().map(|ban| {
        let ends =
            ban.until.map_or("never".to_owned(), |at| format!("in {}", moment::span(at.saturating_sub(now))));
        vec![
            table::plain(&ban.user),
            moment::span(now.saturating_sub(ban.at)),
            ends,
            table::plain(&ban.reason),
        ]
    }));
    print_rows(&rows)
}

fn api(server: &ServerOptions) -> anyhow::Result<Api> {
    server.api_with_key(SCOPE)
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
