//! Dead letters: events that their subscriber refused, kept until they are retried or the subscription is deleted.
//! Must hold: an event is either a dead letter or being delivered again, never both and never neither; the log is not
//! trimmed during a retry, whose events it may have: both write the document `events/log`.

use super::command::{DeadLetterChoice, TopicCaller, TopicReply};
use super::load::{Listing, LoadStop, SubscriptionRows, document, log_ends, parse};
use super::outcome::{Edit, TopicDecided, TopicOutcome, TopicStep};
use super::progress::ProgressChange;
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_domain::delivery::{
    Batch, DeliveryInput, EntryRange, GAP_BYTES, LogMark, MAX_RETRIED_DEAD_LETTERS, RetriedDeadLetter,
};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Document, Versioned};
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::{self, COPY, CopiedEvent, DEAD, DeadLetterRecord, EVENTS, LOG};

/// How many dead letters are counted for a report.
const COUNTED: usize = 10_000;

/// The dead letters of a subscription, page by page.
pub(super) fn listing(name: &str, after: Option<u64>, limit: u32) -> Listing {
    let after = after.map_or(String::new(), |seq| record::dead_name(name, seq));
    Listing::new(DEAD, format!("{name}/"), after, limit)
}

fn letters(page: &[Versioned<Document>]) -> Result<Vec<DeadLetterRecord>, LoadStop> {
    page.iter().map(|row| parse(row, |bytes| record::read(bytes)).map(|letter| letter.row)).collect()
}

/// How many there are, up to a limit.
#[derive(Clone, Default)]
pub(super) struct DeadLetterCount {
    listing: Option<Listing>,
    count: usize,
}

impl DeadLetterCount {
    pub fn of(&mut self, facts: &Facts, name: &str) -> Result<usize, LoadStop> {
        let listing = self.listing.get_or_insert_with(|| listing(name, None, PAGE_ROWS));
        while self.count < COUNTED
            && let Some(page) = listing.next(facts)?
        {
            self.count += page.len();
        }
        Ok(self.count)
    }
}

/// One page of them, by number.
#[derive(Clone)]
pub(super) struct ListDeadLetters {
    pub name: Arc<str>,
    pub after: Option<u64>,
    pub limit: u32,
}

impl ListDeadLetters {
    pub fn decide(&mut self, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        SubscriptionRows::open(facts, caller, &self.name)?;
        let mut listing = listing(&self.name, self.after, self.limit);
        let letters = letters(&listing.next(facts)?.unwrap_or_default())?;
        let next = letters.last().filter(|_| !listing.is_done()).map(|last| last.seq);
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::DeadLetters { letters, next })))
    }
}

/// Sends dead letters again: the selected ones, or all, up to a limit at once.
#[derive(Clone)]
pub(super) struct RetryDeadLetters {
    name: Arc<str>,
    choice: DeadLetterChoice,
    listing: Listing,
    chosen: Vec<DeadLetterRecord>,
    /// There are more than can be retried at once.
    more: bool,
}

impl RetryDeadLetters {
    pub fn new(name: Arc<str>, choice: DeadLetterChoice) -> RetryDeadLetters {
        let listing = listing(&name, None, PAGE_ROWS);
        RetryDeadLetters { name, choice, listing, chosen: Vec::new(), more: false }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        // Before the events are found in the log: a concurrent trim is then a conflict.
        document(facts, EVENTS, LOG)?;
        // Before the dead letters: a writer that parks or retries one also writes the progress.
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        self.choose(facts)?;
        let format = rows.subscription.row.format;
        let each = self.chosen.iter().map(|letter| as_letter(format, letter)).collect();
        let reply = |retried, more| TopicOutcome::reply(TopicReply::Retried { retried, more });
        let Some(change) = ProgressChange::of(context, &rows, DeliveryInput::Retry(each)) else {
            return Ok(TopicStep::Done(reply(0, false)));
        };
        let first = log_ends(facts)?.first;
        let mut edit = Edit::new(context);
        change.write(context, &rows, &mut edit);
        for seq in &change.retried {
            edit.delete(DEAD, &record::dead_name(&self.name, *seq));
        }
        let known = rows.delivery.row.numbered;
        for batch in change.progress.batches.iter().filter(|batch| batch.number > known) {
            if let Some(copy) = copy(batch, &self.chosen, first) {
                edit.put(COPY, &record::copy_name(&self.name, batch.number), record::write(&copy));
            }
        }
        edit.put(EVENTS, LOG, *b"{}");
        let reply = reply(change.retried.len(), self.more);
        edit.commit(reply.changing(vec![self.name.clone()]).announcing(change.disabled.is_some()))
    }

    fn choose(&mut self, facts: &Facts) -> Result<(), LoadStop> {
        while !self.more
            && let Some(page) = self.listing.next(facts)?
        {
            for letter in letters(&page)?.into_iter().filter(|letter| self.choice.has(letter)) {
                if self.chosen.len() == MAX_RETRIED_DEAD_LETTERS {
                    self.more = true;
                    break;
                }
                self.chosen.push(letter);
            }
        }
        Ok(())
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

/// The events of a batch, if the log may have dropped one of them.
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
    fn letters_are_chosen_by_id_or_number_or_all() {
        let check = |choice: DeadLetterChoice, expected: [bool; 2]| {
            assert_eq!([dead(1, "a"), dead(2, "b")].map(|letter| choice.has(&letter)), expected);
        };
        check(DeadLetterChoice::All, [true, true]);
        check(DeadLetterChoice::Some { seqs: vec![], ids: vec!["a".into()] }, [true, false]);
        check(DeadLetterChoice::Some { seqs: vec![2], ids: vec!["x".into()] }, [false, true]);
        check(DeadLetterChoice::Some { seqs: vec![], ids: vec![] }, [false, false]);
    }

    #[test]
    fn batch_that_the_log_has_lost_a_part_of_is_copied() {
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
