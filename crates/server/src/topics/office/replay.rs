//! Replay: a subscription goes back to an event that it has had, by its number or its time. Must hold: what comes again has
//! the numbers it had; nobody is sent back to where the log has forgotten something.

use super::body::object;
use super::ledger::{self, Tries};
use super::queue::Queue;
use super::{machine, place};
use crate::topics::TopicsApi;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::SubscriptionMarks;
use tavern_hub::topics::TopicCaller;
use tavern_store::Read;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::parse_moment;
use tavern_wire::record::{EVENTS, LOG};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    from_seq: Option<u64>,
    from_time: Option<Moment>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Moment {
    Ms(u64),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    Seq(u64),
    Time(u64),
}

fn bad(message: impl Into<std::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::BadRequest, message)
}

impl From {
    pub fn parse(body: &[u8]) -> Result<From, Refusal> {
        let wanted = "give {\"from_seq\": N} from 1 on, or {\"from_time\": T} in milliseconds since 1970 or as \
                      2026-11-15T10:00:00Z";
        let wish: Wish = object(body, wanted)?;
        let from = match (wish.from_seq, wish.from_time) {
            (Some(seq), None) if seq > 0 => Some(From::Seq(seq)),
            (None, Some(Moment::Ms(ms))) => Some(From::Time(ms)),
            (None, Some(Moment::Text(text))) => parse_moment(&text).map(From::Time),
            _ => None,
        };
        from.ok_or_else(|| bad(wanted))
    }
}

pub async fn replay(api: &TopicsApi, caller: &TopicCaller, name: &str, from: From) -> Result<Value, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        // Before looking where it lies: whoever cuts the log meanwhile is noticed.
        let log = ledger::document(api, EVENTS, LOG).await?.map_or(0, |found| found.version);
        let queue = Queue::open(api, caller, name).await?;
        let marks = &queue.marks.row;
        let to = match from {
            From::Seq(seq) => by_seq(api, marks, seq).await?,
            From::Time(ms) => by_time(api, marks, ms).await?,
        };
        if let Some(rewound) = machine::rewind(api, &queue, to, log).await? {
            return Ok(json!({"from_seq": to.seq + 1, "rewound": rewound}));
        }
    }
}

async fn by_seq(api: &TopicsApi, marks: &Arc<SubscriptionMarks>, seq: u64) -> Result<LogMark, Refusal> {
    let Some(near) = place::before(api, marks, seq - 1).await? else {
        let first = place::beginning(api, marks).await?.seq + 1;
        return Err(bad(format!(
            "event {seq} is not kept any more: the oldest that can be replayed is {first}"
        )));
    };
    let found = place::forward(api, marks, near, seq - 1).await?;
    found.ok_or_else(|| bad(format!("event {seq} has not come yet: there is nothing to replay")))
}

/// The place right before the first event that was accepted then or later.
async fn by_time(api: &TopicsApi, marks: &Arc<SubscriptionMarks>, ms: u64) -> Result<LogMark, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let log = ledger::counts(api, Vec::new()).await?.log;
        let begun = place::at(api, marks, log.first - 1, log.first).await?;
        let found = before(api, ms, log.first, log.head).await?;
        let (Some(begun), Some(position)) = (begun, found) else { continue };
        if position < log.first && begun.seq > 0 {
            let message = format!(
                "the log does not reach back so far: the oldest event that can be replayed is from_seq {}",
                begun.seq + 1
            );
            return Err(bad(message));
        }
        if let Some(to) = place::at(api, marks, position, log.first).await? {
            return Ok(to);
        }
    }
}

/// The last position whose event was accepted before this time. None: the log begins later than it did. The store's time
/// never goes back, so halving finds it.
async fn before(api: &TopicsApi, ms: u64, first: u64, head: u64) -> Result<Option<u64>, Refusal> {
    let (mut early, mut late) = (first - 1, head + 1);
    while early + 1 < late {
        let middle = early + (late - early) / 2;
        let read = Read::Log { topics: Vec::new(), after: middle - 1, limit: 1 };
        let stretch = place::stretch(api, read).await?;
        match stretch.page.rows.first() {
            Some(event) if event.position == middle && event.at.ms() >= ms => late = middle,
            Some(event) if event.position == middle => early = middle,
            _ => return Ok(None),
        }
    }
    Ok(Some(early))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_begins_at_a_number_or_a_time() {
        let read = |json: &str| From::parse(json.as_bytes()).ok();
        assert_eq!(read(r#"{"from_seq":7}"#), Some(From::Seq(7)));
        assert_eq!(read(r#"{"from_time":7}"#), Some(From::Time(7)));
        assert_eq!(read(r#"{"from_time":"1970-01-01T00:00:02Z"}"#), Some(From::Time(2_000)));
        for bad in [
            "",
            "{}",
            r#"{"from_seq":0}"#,
            r#"{"from_seq":1,"from_time":1}"#,
            r#"{"from_time":"now"}"#,
            r#"{"seq":1}"#,
            "[1]",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
