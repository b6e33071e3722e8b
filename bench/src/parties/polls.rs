//! Many users wait in a poll and are invited one after another: the time until their poll returns.
//! Must hold: the response contains the invite, and only the poll of the invited user returns.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use memchr::memmem;

use super::commands::SETTINGS;
use crate::compare::peer::Running;
use crate::events::accept::times;
use crate::events::line::{Answer, Line, number_after};

pub struct Polls {
    pub waiting: usize,
    pub invites: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct PollsResult {
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// How long a poll waits before it is answered empty and sent again.
const PARKED_MS: u64 = 20_000;
/// Long enough before the timeout, which the server jitters, that the timeout is not measured.
const SAFE: Duration = Duration::from_millis(PARKED_MS / 2);
/// The server has answered the poll by then.
const OVER: Duration = Duration::from_millis(PARKED_MS * 5 / 4);
/// Polls that are renewed between two invites.
const RENEWED: usize = 50;
/// Long enough apart that no invite waits for another.
const PACE: Duration = Duration::from_millis(10);

struct Waiting {
    line: Line,
    session: String,
    cursor: u64,
    /// When the poll was sent.
    since: Instant,
}

pub fn run(program: &Path, polls: &Polls) -> anyhow::Result<PollsResult> {
    crate::run::raise_files();
    let server = Running::tavern(program, None, SETTINGS)?;
    measure(&server, polls).map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure(server: &Running, polls: &Polls) -> anyhow::Result<PollsResult> {
    let mut waiting = Vec::with_capacity(polls.waiting);
    for index in 0..polls.waiting {
        waiting.push(Waiting::come(server, index)?);
        if index % RENEWED == 0 {
            renew(server, &mut waiting, usize::MAX)?;
        }
    }
    let mut host = Line::open(server.address(), "")?;
    let session = hello(&mut host, server, "host")?;
    let mut took = times()?;
    let warmup = polls.invites / 10;
    for at in 0..warmup + polls.invites {
        // Spread over all of them, the same one seldom.
        let spread = (0..polls.waiting).map(|more| (at * 7919 + more) % polls.waiting);
        let index = spread.clone().find(|index| waiting[*index].since.elapsed() < SAFE);
        let index = index.context("no poll is waiting")?;
        let client = &mut waiting[index];
        let begun = Instant::now();
        order(&mut host, server, &session, "invite", index)?;
        client.expect("invite")?;
        if at >= warmup {
            took.saturating_record(begun.elapsed().as_micros() as u64);
        }
        client.park(server, index)?;
        order(&mut host, server, &session, "cancel_invite", index)?;
        client.expect("invite_cancel")?;
        client.park(server, index)?;
        renew(server, &mut waiting, RENEWED)?;
        std::thread::sleep(PACE);
    }
    let ms = |quantile| took.value_at_quantile(quantile) as f64 / 1e3;
    Ok(PollsResult { p50_ms: ms(0.5), p99_ms: ms(0.99) })
}

/// Sends again the polls that ended without events.
fn renew(server: &Running, waiting: &mut [Waiting], max: usize) -> anyhow::Result<()> {
    let over = waiting.iter_mut().enumerate().filter(|(_, client)| client.since.elapsed() > OVER);
    over.take(max).try_for_each(|(index, client)| client.again(server, index))
}

fn request(server: &Running, path: &str, user: &str, body: &str) -> Vec<u8> {
    let (address, length) = (server.address(), body.len());
    format!("POST {path}?user={user} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
        .into_bytes()
}

fn good<'a>(answer: Answer<'a>, what: &str) -> anyhow::Result<&'a [u8]> {
    let Answer { status, body } = answer;
    ensure!(status == 200, "{what} was answered with {status} {}", String::from_utf8_lossy(body));
    Ok(body)
}

/// The session of a user.
fn hello(line: &mut Line, server: &Running, user: &str) -> anyhow::Result<String> {
    let body = good(line.say(&request(server, "/v1/command", user, r#"{"op":"hello"}"#))?, "hello")?;
    let reply: serde_json::Value = serde_json::from_slice(body)?;
    Ok(reply["ok"]["session"].as_str().context("a hello without a session")?.to_owned())
}

fn order(line: &mut Line, server: &Running, session: &str, op: &str, index: usize) -> anyhow::Result<()> {
    let body = format!(r#"{{"op":"party.{op}","session":"{session}","user":"user-{index}"}}"#);
    good(line.say(&request(server, "/v1/command", "host", &body))?, op).map(drop)
}

impl Waiting {
    fn come(server: &Running, index: usize) -> anyhow::Result<Waiting> {
        let mut line = Line::open(server.address(), "")?;
        let session = hello(&mut line, server, &format!("user-{index}"))?;
        let mut waiting = Waiting { line, session, cursor: 0, since: Instant::now() };
        waiting.park(server, index)?;
        Ok(waiting)
    }

    fn park(&mut self, server: &Running, index: usize) -> anyhow::Result<()> {
        let (session, cursor) = (&self.session, self.cursor);
        let body = format!(r#"{{"session":"{session}","cursor":{cursor},"timeout_ms":{PARKED_MS}}}"#);
        self.since = Instant::now();
        self.line.send(&request(server, "/v1/poll", &format!("user-{index}"), &body))
    }

    /// The poll has ended without events.
    fn again(&mut self, server: &Running, index: usize) -> anyhow::Result<()> {
        let body = good(self.line.receive()?, "a poll")?;
        let empty = memmem::find(body, br#""events":[]"#).is_some();
        ensure!(empty, "a user who was not invited received {}", String::from_utf8_lossy(body));
        self.park(server, index)
    }

    /// The poll returns this party event.
    fn expect(&mut self, cmd: &str) -> anyhow::Result<()> {
        let body = good(self.line.receive()?, "a poll")?;
        let wanted = format!(r#""cmd":"{cmd}""#);
        let holds = memmem::find(body, wanted.as_bytes()).is_some();
        ensure!(holds, "a poll without {cmd}: {}", String::from_utf8_lossy(body));
        self.cursor = number_after(body, br#""cursor":"#).context("a poll without a cursor")?;
        Ok(())
    }
}
