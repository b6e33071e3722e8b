//! Replay: a subscription goes back to an event that it has received, by number or time. Must hold: replayed events
//! keep their numbers; no subscription goes back to where the log has dropped events, and the log is not trimmed
//! during a replay: both write the document `events/log`.

use super::command::{ReplayFrom, TopicCaller, TopicReply};
use super::load::{LoadStop, SubscriptionRows, document, log_ends};
use super::outcome::{Edit, TopicDecided, TopicOutcome, TopicStep};
use super::position::{self, Forward};
use super::progress::ProgressChange;
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_domain::delivery::{DeliveryInput, LogMark};
use tavern_domain::topic::SubscriptionMarks;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{EVENTS, LOG};

#[derive(Clone)]
pub(super) struct Replay {
    pub name: Arc<str>,
    pub from: ReplayFrom,
    forward: Option<Forward>,
}

fn bad(message: String) -> LoadStop {
    Refusal::new(Code::BadRequest, message).into()
}

impl Replay {
    pub fn new(name: Arc<str>, from: ReplayFrom) -> Replay {
        Replay { name, from, forward: None }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        // Before searching for the event: a concurrent trim is then a conflict.
        document(facts, EVENTS, LOG)?;
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let marks = &rows.marks.row;
        let to = match self.from {
            ReplayFrom::Seq(seq) => self.by_seq(facts, marks, seq)?,
            ReplayFrom::Time(ms) => by_time(facts, marks, ms)?,
        };
        let reply = |rewound| TopicOutcome::reply(TopicReply::Replayed { from_seq: to.seq + 1, rewound });
        let Some(change) = ProgressChange::of(context, &rows, DeliveryInput::Rewind(to)) else {
            return Ok(TopicStep::Done(reply(false)));
        };
        let mut edit = Edit::new(context);
        change.write(context, &rows, &mut edit);
        edit.put(EVENTS, LOG, *b"{}");
        edit.commit(reply(true).changing(vec![self.name.clone()]).announcing(change.disabled.is_some()))
    }

    fn by_seq(
        &mut self,
        facts: &Facts,
        marks: &Arc<SubscriptionMarks>,
        seq: u64,
    ) -> Result<LogMark, LoadStop> {
        let forward = match &mut self.forward {
            Some(forward) => forward,
            None => {
                let Some(near) = position::before(facts, marks, seq - 1)? else {
                    let first = position::beginning(facts, marks)?.seq + 1;
                    return Err(bad(format!(
                        "event {seq} is no longer in the log; the oldest that can be replayed is {first}"
                    )));
                };
                self.forward.insert(Forward::new(marks, near))
            }
        };
        match forward.to(facts, seq - 1)? {
            Some(found) => Ok(found),
            // The log was trimmed during the search: what was counted is not right.
            None if forward.cut => Err(LoadStop::Again),
            None => Err(bad(format!("event {seq} does not exist yet; there is nothing to replay"))),
        }
    }
}

/// The position right before the first event that was accepted at that time or later.
fn by_time(facts: &Facts, marks: &Arc<SubscriptionMarks>, ms: u64) -> Result<LogMark, LoadStop> {
    let ends = log_ends(facts)?;
    let begun = position::at(facts, marks, ends.first - 1, ends.first)?;
    let position = position::last_before(facts, ends, ms)?;
    if position < ends.first && begun.seq > 0 {
        return Err(bad(format!(
            "the log does not go back that far; the oldest event that can be replayed is from_seq {}",
            begun.seq + 1
        )));
    }
    position::at(facts, marks, position, ends.first)
}
