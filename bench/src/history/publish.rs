//! Publishers of channels with history: messages per second, each answered when the store has it.
//! Must hold: only answered messages count; a refusal is a fault.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::peers::StoredPublishes;
use crate::compare::peer::Running;
use crate::crowd::Crowd;
use crate::dial::Dialer;
use crate::events::line::Line;
use crate::events::site::joined;
use crate::process;
use crate::target::Protocol;

pub const PUBLISHERS: usize = 16;
/// Messages in one request.
pub const LIST: usize = 50;
/// Publishes in flight on one connection.
const DEPTH: usize = 16;
const WARMUP: Duration = Duration::from_secs(1);

pub struct Publishing {
    /// HTTP requests of many messages, instead of pipelined commands.
    pub lists: bool,
    pub has_history: bool,
    pub seconds: f64,
}

/// The configuration of a server whose channels of one kind have history, or not.
pub fn settings(kind: &str, has_history: bool) -> String {
    let limits = "[limits]\nconnections_per_address = 100000\n";
    match has_history {
        true => format!("{limits}[kinds.{kind}]\nhistory_messages = 100\n"),
        false => limits.to_owned(),
    }
}

/// A JSON text of 256 bytes.
pub fn payload() -> String {
    format!("\"{}\"", "x".repeat(254))
}

pub fn run(program: &Path, store: Option<&str>, publishing: &Publishing) -> anyhow::Result<StoredPublishes> {
    let server = Running::tavern(program, store, &settings("log", publishing.has_history))?;
    let measured = match publishing.lists {
        true => {
            let key = server.dev_key()?;
            let request = |line: &Line, publisher: usize| {
                let message = format!(r#"{{"channel":"log#{publisher}","data":{}}}"#, payload());
                let body = format!(r#"{{"messages":[{}]}}"#, vec![message; LIST].join(","));
                line.written("POST", "/v1/publish", body.as_bytes())
            };
            let is_good = |body: &[u8]| memchr::memmem::find(body, br#""failed":0"#).is_some();
            let open = || Line::open(server.address(), &key);
            measure_lists(server.pid(), publishing.seconds, open, request, is_good)
        }
        false => measure_pipelined(&server, publishing.seconds),
    };
    measured.map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}

fn measure_pipelined(server: &Running, seconds: f64) -> anyhow::Result<StoredPublishes> {
    let target = server.target(Protocol::WebSocket);
    let mut dialer = Dialer::new(&target, None)?;
    let mut crowd = Crowd::new()?;
    for index in 0..PUBLISHERS {
        crowd.connect(&mut dialer, &format!("publisher-{index}"))?;
    }
    let data = payload();
    let publish =
        |index: usize| format!(r#"{{"id":1,"op":"publish","channel":"log#{index}","data":{data}}}"#);
    for index in 0..PUBLISHERS {
        (0..DEPTH).for_each(|_| crowd.say(index, publish(index).as_bytes()));
        crowd.flush(index)?;
    }
    let mut received = Vec::new();
    let mut answered = |crowd: &mut Crowd, until: Instant| -> anyhow::Result<u64> {
        let mut count = 0;
        while Instant::now() < until {
            crowd.turn(Duration::from_millis(20), &mut received)?;
            for received in &received {
                count += received.replies;
                (0..received.replies)
                    .for_each(|_| crowd.say(received.client, publish(received.client).as_bytes()));
                crowd.flush(received.client)?;
            }
        }
        Ok(count)
    };
    answered(&mut crowd, Instant::now() + WARMUP)?;
    let cpu = process::usage(server.pid())?.cpu_seconds;
    let begun = Instant::now();
    let count = answered(&mut crowd, begun + Duration::from_secs_f64(seconds))?;
    StoredPublishes::between(server.pid(), cpu, count, begun)
}

/// The same request again and again on each of several connections.
pub fn measure_lists(
    pid: u32,
    seconds: f64,
    open: impl Fn() -> anyhow::Result<Line> + Sync,
    request: impl Fn(&Line, usize) -> Vec<u8> + Sync,
    is_good: impl Fn(&[u8]) -> bool + Sync,
) -> anyhow::Result<StoredPublishes> {
    let (answered, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let publish = |publisher: usize| {
        let mut line = open()?;
        let request = request(&line, publisher);
        while !ends.load(Ordering::Relaxed) {
            let answer = line.say(&request)?;
            ensure!(
                answer.status == 200 && is_good(answer.body),
                "refused: {} {}",
                answer.status,
                String::from_utf8_lossy(answer.body)
            );
            answered.fetch_add(LIST as u64, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let publish = &publish;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..PUBLISHERS).map(|index| scope.spawn(move || publish(index))).collect();
        let is_over = || threads.iter().any(|thread| thread.is_finished());
        thread::sleep(WARMUP);
        let (before, cpu) = (answered.load(Ordering::Relaxed), process::usage(pid)?.cpu_seconds);
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds && !is_over() {
            thread::sleep(Duration::from_millis(20));
        }
        let measured = StoredPublishes::between(pid, cpu, answered.load(Ordering::Relaxed) - before, begun);
        ends.store(true, Ordering::Relaxed);
        // An error of a publisher takes precedence over the counts.
        threads.into_iter().try_for_each(joined)?;
        measured
    })
}
