//! A received batch of events, printed for people. Reads both formats. Must hold: content of publishers stays on its line
//! and is truncated.

use super::super::table::{self, plain};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Bytes of an event's data that are shown.
const DATA_CHARS: usize = 160;

/// A batch in the format `standard`, or a list of events in the format `routemaster`.
#[derive(Debug, Default)]
pub struct ReceivedBatch {
    subscription: Option<String>,
    range: Option<(u64, u64)>,
    events: Vec<ReceivedEvent>,
}

#[derive(Debug, Deserialize)]
struct StandardBatch {
    subscription: String,
    first_seq: u64,
    last_seq: u64,
    events: Vec<ReceivedEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReceivedEvent {
    seq: Option<u64>,
    id: Option<String>,
    topic: Option<String>,
    r#type: Option<String>,
    url: Option<String>,
    data: Option<Box<RawValue>>,
}

impl ReceivedBatch {
    pub fn parse(body: &[u8]) -> Result<ReceivedBatch, serde_json::Error> {
        if body.trim_ascii_start().starts_with(b"[") {
            return Ok(ReceivedBatch { events: serde_json::from_slice(body)?, ..ReceivedBatch::default() });
        }
        let StandardBatch { subscription, first_seq, last_seq, events } = serde_json::from_slice(body)?;
        Ok(ReceivedBatch { subscription: Some(subscription), range: Some((first_seq, last_seq)), events })
    }

    /// `deploys  seq 1-3  3 events`.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.subscription.as_deref().map(plain));
        parts.extend(self.range.map(|(first, last)| format!("seq {first}-{last}")));
        let s = if self.events.len() == 1 { "" } else { "s" };
        parts.push(format!("{} event{s}", self.events.len()));
        parts.join("  ")
    }

    /// One line per event, aligned.
    pub fn lines(&self) -> String {
        let rows: Vec<Vec<String>> = self.events.iter().map(ReceivedEvent::cells).collect();
        table::columns(&rows)
    }

    /// The response body that reports those of these events that are in the batch; None if there are none.
    pub fn naming(&self, ids: &[String]) -> Option<String> {
        let here = self.events.iter().filter_map(|event| event.id.as_ref()).filter(|id| ids.contains(id));
        let here: Vec<&String> = here.collect();
        (!here.is_empty()).then(|| serde_json::json!({ "failed": here }).to_string())
    }
}

impl ReceivedEvent {
    fn cells(&self) -> Vec<String> {
        let text = |part: &Option<String>| part.as_deref().map_or_else(|| "-".to_owned(), plain);
        let data = self.data.as_ref().map_or("", |data| data.get());
        let mut shown: String = data.chars().take(DATA_CHARS).collect();
        if shown.len() < data.len() {
            shown.push('…');
        }
        let seq = self.seq.map_or_else(|| "-".to_owned(), |seq| seq.to_string());
        let url = self.url.as_deref().map(plain).unwrap_or_default();
        let rest = [url, plain(&shown)].into_iter().filter(|part| !part.is_empty());
        let rest = rest.collect::<Vec<_>>().join("  ");
        vec![format!("  {seq}"), text(&self.topic), text(&self.r#type), text(&self.id), rest]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_shown() {
        let body = br#"{"subscription":"deploys","first_seq":4,"last_seq":5,"events":[
            {"seq":4,"id":"e1","topic":"builds","type":"create","url":"https://x/1","time":1,"data":{"a":[1, 2]}},
            {"seq":5,"id":"e2","topic":"builds","type":"del\u001bete","time":2}]}"#;
        let batch = ReceivedBatch::parse(body).expect("a batch");
        assert_eq!(batch.summary(), "deploys  seq 4-5  2 events");
        assert_eq!(
            batch.lines(),
            "  4  builds  create   e1  https://x/1  {\"a\":[1, 2]}\n  5  builds  del?ete  e2\n"
        );
        assert_eq!(batch.naming(&["e2".into(), "e9".into()]).as_deref(), Some(r#"{"failed":["e2"]}"#));
        assert_eq!(batch.naming(&["e9".into()]), None);
        let batch =
            ReceivedBatch::parse(br#" [{"topic":"builds","type":"update","url":"https://x/1","t":7}]"#);
        let batch = batch.expect("a batch");
        assert_eq!(batch.summary(), "1 event");
        assert_eq!(batch.lines(), "  -  builds  update  -  https://x/1\n");
        assert!(ReceivedBatch::parse(b"{}").is_err());
        assert!(ReceivedBatch::parse(b"events").is_err());
    }

    #[test]
    fn long_data_is_cut() {
        let body = format!(r#"[{{"topic":"t","type":"x","data":"{}"}}]"#, "ü".repeat(500));
        let lines = ReceivedBatch::parse(body.as_bytes()).expect("a batch").lines();
        assert_eq!(lines.matches('ü').count(), DATA_CHARS - 1);
        assert!(lines.ends_with("…\n"));
    }
}
