//! `tavern subscribe`: prints the messages of channels and patterns, one flushed JSON line each, of a server or of a
//! folder. Survives a lost connection: it comes back with backoff and jitter and resumes its session where it was.

use super::client::{Client, ClientError, Incoming};
use super::line::one_line;
use super::options::{FolderOptions, ServerOptions};
use super::{folder, print_line};
use crate::random::random_bits;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Args {
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
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many milliseconds
    #[arg(long, value_name = "MS")]
    wait: Option<u64>,
}

const BACKOFF_MIN_MS: u64 = 250;
const BACKOFF_MAX_MS: u64 = 10_000;

/// What to hear of a server. Its names are text.
struct Wish {
    server: ServerOptions,
    channels: Vec<String>,
    patterns: Vec<String>,
    count: Option<u64>,
    wait: Option<Duration>,
}

/// What is known of the session between two connections.
#[derive(Default)]
struct Progress {
    session: Option<String>,
    seq: u64,
    printed: u64,
    failures: u32,
    ends_at: Option<Instant>,
}

enum Outcome {
    Done,
    /// Come back after this long, or when the backoff says so.
    Again {
        why: String,
        after_ms: Option<u64>,
    },
}

/// The members that every event has; the rest is passed on unread.
#[derive(Deserialize)]
struct Event<'a> {
    seq: Option<u64>,
    #[serde(borrow)]
    event: Option<std::borrow::Cow<'a, str>>,
    reconnect_after_ms: Option<u64>,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { server, folder, channel, pattern, count, wait } = args;
    let wait = wait.map(Duration::from_millis);
    if let Some(data) = folder.data {
        folder::subscribe(&data, &folder::Wish { channels: &channel, patterns: &pattern, count, wait })?;
        return Ok(ExitCode::SUCCESS);
    }
    let (channels, patterns) = (texts(channel, "channel")?, texts(pattern, "pattern")?);
    stay_at(&Wish { server, channels, patterns, count, wait })
}

fn texts(names: Vec<OsString>, what: &str) -> anyhow::Result<Vec<String>> {
    let text =
        |name: OsString| name.into_string().ok().with_context(|| format!("a {what} is not UTF-8 text"));
    names.into_iter().map(text).collect()
}

/// Listens to a server for as long as it is wanted, over as many connections as that takes.
fn stay_at(wish: &Wish) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::default();
    loop {
        let (why, after_ms) = match listen(wish, &mut progress) {
            Ok(Outcome::Done) => return Ok(ExitCode::SUCCESS),
            Ok(Outcome::Again { why, after_ms }) => (why, after_ms),
            Err(ClientError::Lost(why)) => (why, None),
            // Before the first success a failure is an answer; after it the server is probably restarting.
            Err(error) if progress.session.is_none() => return Err(error.into()),
            Err(ClientError::Refused { code, message }) if passes(&code) => (message, None),
            Err(ClientError::Broken(error)) if !super::is_broken_pipe(&error) => (format!("{error:#}"), None),
            Err(ClientError::Broken(error)) => return Err(error),
            Err(error) => return Err(error.into()),
        };
        if progress.session.is_none() {
            bail!(why);
        }
        let delay = Duration::from_millis(after_ms.unwrap_or_else(|| backoff(progress.failures)));
        if progress.ends_at.is_some_and(|end| Instant::now() + delay >= end) {
            return Ok(ExitCode::SUCCESS);
        }
        eprintln!("connection lost ({why}); again in {} ms", delay.as_millis());
        std::thread::sleep(delay);
        progress.failures = progress.failures.saturating_add(1);
    }
}

/// Whether the same request may succeed later.
fn passes(code: &str) -> bool {
    tavern_wire::Code::parse(code).is_some_and(tavern_wire::Code::retry)
}

/// Full jitter: many clients of one lost server come back spread out.
fn backoff(failures: u32) -> u64 {
    let most = BACKOFF_MIN_MS.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX_MS);
    1 + random_bits() as u64 % most
}

/// One connection, from hello to its end.
fn listen(wish: &Wish, progress: &mut Progress) -> Result<Outcome, ClientError> {
    let mut client = Client::connect(&wish.server)?;
    let welcome = client.hello(progress.session.as_deref().map(|session| (session, progress.seq)))?;
    if !welcome.resumed {
        if progress.session.is_some() {
            eprintln!("the session is gone; messages may have been missed");
        }
        progress.seq = 0;
        for channel in &wish.channels {
            client.ask(json!({"op": "subscribe", "channel": channel}))?;
        }
        for pattern in &wish.patterns {
            client.ask(json!({"op": "subscribe", "pattern": pattern}))?;
        }
    }
    progress.session = Some(welcome.session);
    progress.failures = 0;
    if let (None, Some(wait)) = (progress.ends_at, wish.wait) {
        progress.ends_at = Instant::now().checked_add(wait);
    }
    // The server speaks at every heartbeat; two of them missed mean that it is gone.
    let silence =
        Duration::from_millis(welcome.heartbeat_ms.saturating_mul(2).clamp(1_000, 7_200_000) + 5_000);
    loop {
        let dead_at = Instant::now() + silence;
        let until = progress.ends_at.map_or(dead_at, |end| end.min(dead_at));
        match client.receive(until)? {
            Incoming::Text(text) => {
                if let Some(outcome) = event(wish, progress, &text)? {
                    if matches!(outcome, Outcome::Done) {
                        client.bye();
                    }
                    return Ok(outcome);
                }
            }
            // What was printed need not be kept for us any longer.
            Incoming::Heartbeat if progress.seq > 0 => {
                client.ask(json!({"op": "ack", "seq": progress.seq}))?;
            }
            Incoming::Heartbeat => {}
            Incoming::Nothing if progress.ends_at.is_some_and(|end| Instant::now() >= end) => {
                client.bye();
                return Ok(Outcome::Done);
            }
            Incoming::Nothing => return Err(ClientError::Lost("the server fell silent".into())),
        }
    }
}

/// Takes one event. An outcome ends the connection.
fn event(wish: &Wish, progress: &mut Progress, text: &str) -> Result<Option<Outcome>, ClientError> {
    let Ok(event) = serde_json::from_str::<Event>(text) else { return Ok(None) };
    // A resumed session may repeat what was printed already.
    if event.seq.is_some_and(|seq| seq <= progress.seq) {
        return Ok(None);
    }
    progress.seq = event.seq.unwrap_or(progress.seq);
    match event.event.as_deref() {
        Some("message") => {
            print_line(&one_line(text))?;
            progress.printed += 1;
            Ok((wish.count == Some(progress.printed)).then_some(Outcome::Done))
        }
        Some("gap") => {
            eprintln!("messages were missed: {}", one_line(text));
            Ok(None)
        }
        Some("closing") => {
            let why = "the server is stopping".to_owned();
            Ok(Some(Outcome::Again { why, after_ms: event.reconnect_after_ms.map(|ms| ms.min(600_000)) }))
        }
        Some("superseded") => {
            let message = "another client has taken over this session".to_owned();
            Err(ClientError::Refused { code: "superseded".into(), message })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_bound() {
        for failures in 0..40 {
            let most = BACKOFF_MIN_MS.saturating_mul(1 << failures.min(16)).min(BACKOFF_MAX_MS);
            assert!((1..=most).contains(&backoff(failures)));
        }
    }
}
