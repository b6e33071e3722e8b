//! Dead letters: events that their subscriber refused, kept until somebody tries them again or removes the subscription.
//! Must hold: a letter is either dead or under way again, never both and never neither.

use super::body::object;
use super::ledger::{self, Edit, Tries};
use super::machine;
use super::queue::Queue;
use crate::topics::TopicsApi;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tavern_domain::delivery::{
    Batch, DeliveryInput, EntryRange, GAP_BYTES, LETTERS, LogMark, RetriedDeadLetter,
};
use tavern_hub::topics::TopicCaller;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{self, COPY, CopiedEvent, DEAD, DeadLetterRecord};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    ids: Option<Vec<Named>>,
}

/// An event by its id or by its number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Seq(u64),
    Id(String),
}

impl Wish {
    pub fn parse(body: &[u8]) -> Result<Wish, Refusal> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Wish::default());
        }
        object(body, "give {} for all, or {\"ids\": […]} with ids or seqs of dead letters")
    }

    fn names(&self, letter: &DeadLetterRecord) -> bool {
        let named = |name: &Named| match name {
            Named::Seq(seq) => *seq == letter.seq,
            Named::Id(id) => **id == *letter.id,
        };
        self.ids.as_ref().is_none_or(|ids| ids.iter().any(named))
    }
}

/// By number.
pub async fn dead_letters(
    api: &TopicsApi,
    caller: &TopicCaller,
    name: &str,
    after: &str,
    limit: usize,
) -> Result<Value, Refusal> {
    Queue::open(api, caller, name).await?;
    let after = match after {
        "" => String::new(),
        seq => {
            let wrong =
                |_| Refusal::new(Code::BadRequest, format!("`after` is {seq:?}; it is the `next` of a page"));
            record::dead_name(name, seq.parse().map_err(wrong)?)
        }
    };
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let (letters, more) = page(api, name, &after, limit).await?;
    let next = letters.last().filter(|_| more).map(|last| last.seq.to_string());
    let shown: Vec<Value> = letters.iter().map(shown).collect();
    Ok(json!({"dead_letters": shown, "next": next}))
}

fn shown(letter: &DeadLetterRecord) -> Value {
    // The server wrote it; what is no JSON is shown as it is.
    let event: Value = serde_json::from_str::<&RawValue>(&letter.event)
        .ok()
        .and_then(|event| serde_json::from_str(event.get()).ok())
        .unwrap_or_else(|| Value::String(letter.event.to_string()));
    json!({
        "seq": letter.seq,
        "id": &*letter.id,
        "topic": &*letter.topic,
        "parked_at": letter.parked_at,
        "reason": &*letter.reason,
        "event": event,
    })
}

async fn page(
    api: &TopicsApi,
    name: &str,
    after: &str,
    limit: u32,
) -> Result<(Vec<DeadLetterRecord>, bool), Refusal> {
    let page = ledger::list(api, DEAD, &format!("{name}/"), after, limit).await?;
    let mut letters = Vec::with_capacity(page.rows.len());
    for row in page.rows {
        let letter = ledger::found(Some(row), |bytes| record::read::<DeadLetterRecord>(bytes))?;
        letters.extend(letter.map(|letter| letter.row));
    }
    Ok((letters, page.more))
}

/// Sends dead letters again: those that are named, or all, but no more than some at once.
pub async fn retry(api: &TopicsApi, caller: &TopicCaller, name: &str, wish: &Wish) -> Result<Value, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        // Before its letters: whoever parks or retries one writes the progress too.
        let queue = Queue::open(api, caller, name).await?;
        let (letters, more) = wanted(api, name, wish).await?;
        let format = queue.subscription.row.format;
        let each = letters.iter().map(|letter| as_letter(format, letter)).collect();
        let Some(outcome) = machine::order(api, &queue, DeliveryInput::Retry(each)) else {
            return Ok(json!({"retried": 0, "more": false}));
        };
        let mut edit = Edit::new(api);
        machine::write(api, &mut edit, &queue, &outcome);
        for seq in &outcome.retried {
            edit.delete(DEAD, &record::dead_name(name, *seq));
        }
        let log = ledger::counts(api, Vec::new()).await?.log;
        let fresh =
            outcome.progress.batches.iter().filter(|batch| batch.number > queue.delivery.row.numbered);
        for batch in fresh {
            if let Some(copy) = copy(batch, &letters, log.first) {
                edit.put(COPY, &record::copy_name(name, batch.number), record::write(&copy));
            }
        }
        if edit.commit(api).await?.is_some() {
            machine::ring(api, &queue, &outcome);
            return Ok(json!({"retried": outcome.retried.len(), "more": more}));
        }
    }
}

/// The letters that are asked for, and whether there are more than can be tried at once.
async fn wanted(api: &TopicsApi, name: &str, wish: &Wish) -> Result<(Vec<DeadLetterRecord>, bool), Refusal> {
    let (mut letters, mut after) = (Vec::new(), String::new());
    loop {
        let (found, more) = page(api, name, &after, PAGE_ROWS).await?;
        after = found.last().map_or(String::new(), |last| record::dead_name(name, last.seq));
        for letter in found.into_iter().filter(|letter| wish.names(letter)) {
            if letters.len() == LETTERS {
                return Ok((letters, true));
            }
            letters.push(letter);
        }
        if !more {
            return Ok((letters, false));
        }
    }
}

fn as_letter(format: BatchFormat, letter: &DeadLetterRecord) -> RetriedDeadLetter {
    let (seq, position) = letter.after;
    let last = letter.gap_through.unwrap_or(letter.seq);
    let run = EntryRange {
        after: LogMark { seq, position },
        first: letter.seq,
        last,
        gap: letter.gap_through.is_some(),
    };
    let bytes = format.bytes_of(&letter.id, &letter.topic, letter.event.as_bytes());
    let bytes = if run.gap { GAP_BYTES } else { u32::try_from(bytes).unwrap_or(u32::MAX) };
    RetriedDeadLetter { run, bytes }
}

/// The events of a batch, if the log may have lost one of them.
fn copy(batch: &Batch, letters: &[DeadLetterRecord], log_first: u64) -> Option<Vec<CopiedEvent>> {
    if batch.ranges.iter().all(|run| run.gap || run.after.position + 1 >= log_first) {
        return None;
    }
    let of_batch =
        |letter: &&DeadLetterRecord| batch.ranges.iter().any(|run| !run.gap && run.first == letter.seq);
    let copied = |letter: &DeadLetterRecord| CopiedEvent {
        seq: letter.seq,
        id: letter.id.clone(),
        topic: letter.topic.clone(),
        event: letter.event.clone(),
    };
    Some(letters.iter().filter(of_batch).map(copied).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;
    use tavern_domain::delivery::BatchReason;

    fn dead(seq: u64, id: &str) -> DeadLetterRecord {
        DeadLetterRecord {
            seq,
            gap_through: None,
            after: (seq - 1, 10 * seq),
            id: id.into(),
            topic: "t".into(),
            parked_at: 5,
            reason: "400".into(),
            event: "{}".into(),
        }
    }

    #[test]
    fn letters_are_named_by_id_or_number_or_not_at_all() {
        let names = |json: &str| {
            let wish = Wish::parse(json.as_bytes()).unwrap();
            [dead(1, "a"), dead(2, "b")].map(|letter| wish.names(&letter))
        };
        assert_eq!(names(""), [true, true]);
        assert_eq!(names("{}"), [true, true]);
        assert_eq!(names(r#"{"ids":["a"]}"#), [true, false]);
        assert_eq!(names(r#"{"ids":[2,"x"]}"#), [false, true]);
        assert_eq!(names(r#"{"ids":[]}"#), [false, false]);
        assert!(Wish::parse(b"[1]").is_err() && Wish::parse(br#"{"id":1}"#).is_err());
    }

    #[test]
    fn a_batch_that_the_log_has_lost_a_part_of_is_copied() {
        let letters = [dead(3, "a"), dead(7, "b"), dead(9, "c")];
        let runs = letters[..2].iter().map(|letter| as_letter(BatchFormat::Standard, letter).run).collect();
        let batch = Batch {
            number: 1,
            ranges: runs,
            reason: BatchReason::Retry,
            accepted: Time(0),
            attempts: 0,
            refusals: 0,
            suspect: true,
        };
        assert_eq!(copy(&batch, &letters, 31), None, "everything is in the log");
        let kept = copy(&batch, &letters, 32).unwrap();
        assert_eq!(kept.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 7]);
    }
}
