//! A server on its SQLite store in a temporary folder, with what every case needs: subscribing, publishing, commands.
//! Must hold: anything that the server refuses is a fault.

use std::path::Path;
use std::thread;

use anyhow::ensure;

use super::line::{Answer, Line, number_after};
use crate::compare::peer::Running;

pub struct Site {
    pub server: Running,
    key: String,
}

/// About a hundred bytes, and what one wants to look up.
const DATA: &str = r#"{"order":123456,"customer":"c-98765","state":"paid","total":"129.90","note":"abcdefghijklmnopqrstuvwxyz"}"#;
/// Nothing is dropped meanwhile.
const SETTINGS: &str = "[limits]\nconnections_per_address = 100000\n[events]\nmax_bytes = 17179869184\n";

impl Site {
    pub fn start(program: &Path) -> anyhow::Result<Site> {
        let server = Running::tavern(program, None, SETTINGS)?;
        let key = server.dev_key()?;
        Ok(Site { server, key })
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub fn line(&self) -> anyhow::Result<Line> {
        Line::open(self.server.address(), &self.key)
    }

    /// Fills topics by several publishers, each its own, with this many events together.
    pub fn fill(&self, topics: &[String], events: u64) -> anyhow::Result<()> {
        let each = events / topics.len() as u64;
        ensure!(each * topics.len() as u64 == events, "every topic gets as many");
        thread::scope(|scope| {
            let fill = |topic: &String| {
                let mut publisher = Publisher::open(self, topic, FILL)?;
                let (whole, rest) = (each / FILL as u64, each % FILL as u64);
                for _ in 0..whole {
                    publisher.publish()?;
                }
                if rest > 0 {
                    publisher.publish_some(rest as usize)?;
                }
                anyhow::Ok(())
            };
            let fills: Vec<_> = topics.iter().map(|topic| scope.spawn(move || fill(topic))).collect();
            fills.into_iter().try_for_each(joined)
        })
    }
}

const FILL: usize = 500;

/// The result of a thread.
pub fn joined<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the load panicked")))
}

/// Publishes the same request to a topic that is its own, and counts.
pub struct Publisher {
    line: Line,
    topic: String,
    request: Vec<u8>,
    events: u64,
    /// The number of the last event that the server has answered for; nothing before this publisher was there.
    last: Option<u64>,
}

impl Publisher {
    /// With one event it is sent alone, not as a list.
    pub fn open(site: &Site, topic: &str, events: usize) -> anyhow::Result<Publisher> {
        let line = site.line()?;
        let body = body(events);
        let request = line.written("POST", &path(topic), body.as_bytes());
        Ok(Publisher { line, topic: topic.into(), request, events: events as u64, last: None })
    }

    /// Answers with how many were accepted.
    pub fn publish(&mut self) -> anyhow::Result<u64> {
        let Answer { status, body } = self.line.say(&self.request)?;
        check(status, body, self.events, &mut self.last)
    }

    pub fn publish_some(&mut self, events: usize) -> anyhow::Result<u64> {
        self.publish_body(body(events).as_bytes(), events as u64)
    }

    pub fn publish_body(&mut self, body: &[u8], events: u64) -> anyhow::Result<u64> {
        let Answer { status, body } = self.line.ask("POST", &path(&self.topic), body)?;
        check(status, body, events, &mut self.last)
    }
}

fn path(topic: &str) -> String {
    format!("/v1/topics/{topic}/events")
}

fn body(events: usize) -> String {
    let event = format!(r#"{{"type":"update","data":{DATA}}}"#);
    match events {
        1 => event,
        _ => format!("[{}]", vec![event; events].join(",")),
    }
}

/// A publisher is alone on its topic: its events follow each other.
fn check(status: u16, body: &[u8], events: u64, last: &mut Option<u64>) -> anyhow::Result<u64> {
    let text = || String::from_utf8_lossy(body);
    ensure!(status == 202, "publishing was refused: {status} {}", text());
    let (first, through) = (number_after(body, br#""first_seq":"#), number_after(body, br#""last_seq":"#));
    let (Some(first), Some(through)) = (first, through) else { anyhow::bail!("no numbers in {}", text()) };
    ensure!(through + 1 - first == events, "{events} events were published and answered with {}", text());
    ensure!(last.is_none_or(|last| first == last + 1), "after {last:?} came {}", text());
    *last = Some(through);
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_must_follow_each_other() {
        let mut last = None;
        let one = br#"{"topic":"a","first_seq":5,"last_seq":6}"#;
        assert_eq!(check(202, one, 2, &mut last).unwrap(), 2);
        assert!(check(202, one, 2, &mut last).is_err(), "the same numbers again");
        assert!(check(503, b"{}", 2, &mut last).unwrap_err().to_string().contains("503"));
    }

    #[test]
    fn one_event_is_no_list() {
        assert!(body(1).starts_with('{'));
        let list: Vec<serde_json::Value> = serde_json::from_str(&body(3)).unwrap();
        assert_eq!(list.len(), 3);
        assert!((90..120).contains(&DATA.len()));
    }
}
