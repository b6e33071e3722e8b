//! `tavern subscribe`: prints the messages of channels and patterns, one flushed JSON line each. Survives a lost
//! connection: it comes back with backoff and jitter and resumes its session where it was.

use super::client::{Client, ClientError, Incoming};
use super::options::ServerOptions;
use super::print_line;
use crate::auth::random_bits;
use anyhow::bail;
use serde::Deserialize;
use serde_json::json;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    server: ServerOptions,
    /// Channels, such as game#1
    #[arg(required_unless_present = "pattern")]
    channel: Vec<String>,
    /// Patterns, such as 'game#*'
    #[arg(long, value_name = "PATTERN")]
    pattern: Vec<String>,
    /// End after this many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this many milliseconds
    #[arg(long, value_name = "MS")]
    wait: Option<u64>,
}

const BACKOFF_MIN_MS: u64 = 250;
const BACKOFF_MAX_MS: u64 = 10_000;

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
    let mut progress = Progress::default();
    loop {
        let (why, after_ms) = match listen(&args, &mut progress) {
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
fn listen(args: &Args, progress: &mut Progress) -> Result<Outcome, ClientError> {
    let mut client = Client::connect(&args.server)?;
    let welcome = client.hello(progress.session.as_deref().map(|session| (session, progress.seq)))?;
    if !welcome.resumed {
        if progress.session.is_some() {
            eprintln!("the session is gone; messages may have been missed");
        }
        progress.seq = 0;
        for channel in &args.channel {
            client.ask(json!({"op": "subscribe", "channel": channel}))?;
        }
        for pattern in &args.pattern {
            client.ask(json!({"op": "subscribe", "pattern": pattern}))?;
        }
    }
    progress.session = Some(welcome.session);
    progress.failures = 0;
    if let (None, Some(wait)) = (progress.ends_at, args.wait) {
        progress.ends_at = Some(Instant::now() + Duration::from_millis(wait));
    }
    // The server speaks at every heartbeat; two of them missed mean that it is gone.
    let silence =
        Duration::from_millis(welcome.heartbeat_ms.saturating_mul(2).clamp(1_000, 7_200_000) + 5_000);
    loop {
        let dead_at = Instant::now() + silence;
        let until = progress.ends_at.map_or(dead_at, |end| end.min(dead_at));
        match client.receive(until)? {
            Incoming::Text(text) => {
                if let Some(outcome) = event(args, progress, &text)? {
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
fn event(args: &Args, progress: &mut Progress, text: &str) -> Result<Option<Outcome>, ClientError> {
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
            Ok((args.count == Some(progress.printed)).then_some(Outcome::Done))
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

/// A raw newline in JSON only ever stands between tokens, so a space says the same.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
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

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line("{\"data\":{\n \"a\": \"x\\ny\"\r\n}}"), "{\"data\":{  \"a\": \"x\\ny\"  }}");
    }
}
