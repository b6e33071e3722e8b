//! Pulling: who cannot be called asks for events, and tells by the next question how far it has come.
//! Must hold: what was not acknowledged comes again, with the same numbers; a stretch that was dropped is told as a gap;
//! nobody waits for the whole time when there is something.

use super::ledger::{Edit, Tries, counts};
use super::place;
use super::queue::Queue;
use crate::topics::TopicsApi;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::SubscriptionMarks;
use tavern_hub::topics::{Reading, TopicCaller, unseal};
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchEvent, BatchFormat, entry, gap_entry, shown_id};
use tavern_wire::record::{self, DELIVERY, MARKS};
use tokio::time::Instant;

/// Events in one answer, unless the question asks for fewer.
pub const LIMIT: u32 = 100;
pub const LIMIT_MAX: u32 = PAGE_ROWS;
/// The longest wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// How often the store is looked at while one waits: other nodes publish too.
const LOOK: Duration = Duration::from_millis(500);
/// However much is published, one who waits looks no more often.
const PAUSE: Duration = Duration::from_millis(5);
/// Places remembered of what was handed out.
const HANDED: usize = 10_000;

#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Everything through here has come.
    pub after: Option<u64>,
    pub wait: Duration,
    pub limit: u32,
}

/// Where the last answers ended, so that their acknowledgement needs no reading.
#[derive(Default)]
pub struct Handed(Mutex<HashMap<Arc<str>, (u64, LogMark)>>);

impl Handed {
    fn get(&self, queue: &Queue, seq: u64) -> Option<LogMark> {
        let handed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, mark) = handed.get(queue.name())?;
        (*version == queue.marks.version && mark.seq == seq).then_some(*mark)
    }

    fn keep(&self, queue: &Queue, mark: LogMark) {
        let mut handed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if handed.len() >= HANDED && !handed.contains_key(queue.name()) {
            handed.clear();
        }
        handed.insert(queue.name().clone(), (queue.marks.version, mark));
    }
}

/// Events as an answer holds them.
struct Events {
    entries: Vec<u8>,
    count: u32,
    first: u64,
    /// Where they end.
    last: LogMark,
}

pub async fn pull(
    api: &TopicsApi,
    caller: &TopicCaller,
    name: &str,
    question: Question,
) -> Result<Vec<u8>, Refusal> {
    let until = Instant::now() + question.wait.min(WAIT_MAX);
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let Settled { queue, acknowledges } = settle(api, caller, name, question.after).await?;
        // Before looking: what is published while one looks must be heard.
        let topics = || queue.marks.row.topics();
        let heard = api.wakeups.heard(topics());
        let events = look(api, &queue, question).await?;
        let hands_out = events.count > 0 && events.last.seq > queue.delivery.row.sealed.seq;
        if queue.subscription.row.pull && (acknowledges || hands_out) && !keep(api, &queue).await? {
            continue;
        }
        tries = Tries::default();
        if events.count > 0 {
            api.office.handed.keep(&queue, events.last);
            return Ok(answer(&events));
        }
        if Instant::now() >= until || api.is_stopping() {
            return Ok(answer(&events));
        }
        rung(api, until.min(Instant::now() + LOOK), || api.wakeups.heard(topics()) != heard).await;
    }
}

/// Waits until there is something, or the time is over.
async fn rung(api: &TopicsApi, until: Instant, is_there: impl Fn() -> bool) {
    tokio::time::sleep_until(until.min(Instant::now() + PAUSE)).await;
    loop {
        let update = api.wakeups.update();
        tokio::pin!(update);
        update.as_mut().enable();
        if is_there() || tokio::time::timeout_at(until, update).await.is_err() {
            return;
        }
    }
}

/// The queue as it becomes by what is acknowledged, which is not kept yet.
struct Settled {
    queue: Queue,
    acknowledges: bool,
}

/// The progress is written with what was acknowledged, and also when nothing was: whoever changes the topics expects the
/// progress from before he looked at the log, so no number that is handed out now is given to another event later. False: it has
/// changed since it was read.
async fn keep(api: &TopicsApi, queue: &Queue) -> Result<bool, Refusal> {
    let name = queue.name();
    let mut edit = Edit::new(api);
    edit.expect(DELIVERY, name, queue.delivery.version);
    edit.put(DELIVERY, name, record::write_progress(&queue.delivery.row));
    let mut marks = SubscriptionMarks::clone(&queue.marks.row);
    // Whether or not they are noted now: by other marks the numbers would be others.
    edit.expect(MARKS, name, queue.marks.version);
    if marks.note(queue.delivery.row.sealed) {
        edit.put(MARKS, name, record::write_marks(&marks));
    }
    Ok(edit.commit(api).await?.is_some())
}

async fn settle(
    api: &TopicsApi,
    caller: &TopicCaller,
    name: &str,
    after: Option<u64>,
) -> Result<Settled, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let mut queue = Queue::open(api, caller, name).await?;
        if let Some(why) = queue.delivery.row.disabled.filter(|_| queue.subscription.row.pull) {
            let message = format!(
                "the subscription is disabled ({}): POST /v1/subscriptions/{name}/enable; nothing is lost meanwhile",
                why.as_str()
            );
            return Err(Refusal::new(Code::Conflict, message));
        }
        if queue.subscription.row.pull && !queue.delivery.row.batches.is_empty() {
            // A worker sealed them before it knew that nobody is to be called any more.
            let log = counts(api, Vec::new()).await?.log;
            unseal(&mut queue.delivery.row, log.first)?;
            let mut edit = Edit::new(api);
            edit.expect(DELIVERY, name, queue.delivery.version);
            edit.put(DELIVERY, name, record::write_progress(&queue.delivery.row));
            edit.commit(api).await?;
            continue;
        }
        let Some(after) = after.filter(|&after| after > queue.delivery.row.sealed.seq) else {
            return Ok(Settled { queue, acknowledges: false });
        };
        let through = locate(api, &queue, after).await?;
        // What goes to a callback is acknowledged by its answers alone.
        let acknowledges = queue.subscription.row.pull && queue.delivery.row.acknowledge(through);
        return Ok(Settled { queue, acknowledges });
    }
}

/// Where the event with this number lies, which is after what was acknowledged.
async fn locate(api: &TopicsApi, queue: &Queue, seq: u64) -> Result<LogMark, Refusal> {
    let (progress, marks) = (&queue.delivery.row, &queue.marks.row);
    if let Some(shed) = progress.dropped.filter(|shed| seq <= shed.through.seq) {
        // In the middle of a gap there is no event: one reads on behind it anyway.
        let position = if seq == shed.through.seq { shed.through.position } else { progress.sealed.position };
        return Ok(LogMark { seq, position });
    }
    if let Some(mark) = api.office.handed.get(queue, seq) {
        return Ok(mark);
    }
    let (reached, near) = (progress.reached(), marks.before(seq + 1));
    let from = if near.seq <= seq && near.position > reached.position { near } else { reached };
    match place::forward(api, marks, from, seq).await? {
        Some(mark) => Ok(mark),
        None => {
            let message =
                format!("`after` is {seq}, but no event of this subscription has had that number yet");
            Err(Refusal::new(Code::BadRequest, message))
        }
    }
}

/// What comes next, as far as there is any.
async fn look(api: &TopicsApi, queue: &Queue, question: Question) -> Result<Events, Refusal> {
    let progress = &queue.delivery.row;
    let after = question.after.unwrap_or(progress.sealed.seq);
    let limit = question.limit.clamp(1, LIMIT_MAX);
    if after < progress.sealed.seq {
        // Again, what was acknowledged already; up to there, because a gap may follow.
        let from = match place::before(api, &queue.marks.row, after).await? {
            Some(from) => place::forward(api, &queue.marks.row, from, after).await?,
            None => None,
        };
        let Some(from) = from else {
            let message =
                format!("the log does not keep the event after {after} any more; omit `after` to go on");
            return Err(Refusal::new(Code::Gone, message));
        };
        let most = u32::try_from(progress.sealed.seq - after).unwrap_or(limit).min(limit);
        return gather(api, queue, Events::from(from), most).await;
    }
    let mut events = Events::from(LogMark { seq: after, ..progress.sealed });
    if let Some(shed) = progress.dropped.filter(|shed| shed.through.seq > after) {
        gap_entry(&mut events.entries, after + 1, shed.through.seq);
        (events.count, events.first, events.last) = (1, after + 1, shed.through);
    } else if after > progress.sealed.seq {
        // A callback has it: it is looked at and not acknowledged.
        events.last = locate(api, queue, after).await?;
    }
    gather(api, queue, events, limit).await
}

/// Reads on until the answer is full.
async fn gather(api: &TopicsApi, queue: &Queue, mut events: Events, limit: u32) -> Result<Events, Refusal> {
    let room = usize::try_from(queue.subscription.row.max_bytes).unwrap_or(usize::MAX);
    let mut reading = Reading::new(queue.marks.row.clone(), events.last);
    while events.count < limit {
        let begun = reading.at();
        let step = place::step(api, &mut reading, limit - events.count).await?;
        let Some((log, took)) = step else { break };
        if log.first > begun.position + 1 && !is_current(api, queue).await? {
            // The log was cut meanwhile, and the progress tells where.
            break;
        }
        for (seq, event) in &took.events {
            let id = shown_id(event.id.as_deref(), event.position);
            let bytes = BatchFormat::Standard.bytes_of(&id, &event.topic, &event.body);
            if events.count > 0 && events.entries.len() + bytes > room {
                return Ok(events);
            }
            events.push(LogMark { seq: *seq, position: event.position }, |out| {
                entry(out, BatchEvent { seq: *seq, id: &id, topic: &event.topic, body: &event.body });
            });
        }
        if !took.more {
            break;
        }
    }
    Ok(events)
}

/// Nobody has changed the progress since it was read.
async fn is_current(api: &TopicsApi, queue: &Queue) -> Result<bool, Refusal> {
    let now = super::ledger::document(api, DELIVERY, queue.name()).await?;
    Ok(super::queue::version(now.as_ref()) == queue.delivery.version)
}

impl Events {
    fn from(last: LogMark) -> Events {
        Events { entries: Vec::new(), count: 0, first: 0, last }
    }

    fn push(&mut self, at: LogMark, write: impl FnOnce(&mut Vec<u8>)) {
        match self.count {
            0 => self.first = at.seq,
            _ => self.entries.push(b','),
        }
        write(&mut self.entries);
        self.count += 1;
        self.last = at;
    }
}

fn answer(events: &Events) -> Vec<u8> {
    let Events { entries, count, first, last } = events;
    let mut body = Vec::with_capacity(entries.len() + 96);
    body.extend_from_slice(b"{\"events\":[");
    body.extend_from_slice(entries);
    let ends = match count {
        0 => format!("],\"first_seq\":null,\"last_seq\":null,\"next_after\":{}}}", last.seq),
        _ => format!("],\"first_seq\":{first},\"last_seq\":{0},\"next_after\":{0}}}", last.seq),
    };
    body.extend_from_slice(ends.as_bytes());
    body
}
