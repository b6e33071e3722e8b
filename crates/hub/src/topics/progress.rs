//! Commands that change the progress of a subscription: enable, disable, replay, retry of dead letters, a change to
//! pulling. They run the same machine as the delivery worker, on the stored progress; the worker loads it again when its
//! own save is refused. Must hold: a command that changes nothing writes nothing; a subscription that is pulled has a
//! cursor and no batches.

use super::announcement;
use super::command::{TopicCaller, TopicReply};
use super::delivery::rules;
use super::load::SubscriptionRows;
use super::outcome::{Edit, TopicDecided, TopicOutcome, TopicStep};
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_domain::delivery::{Delivery, DeliveryEffect, DeliveryInput, DeliveryProgress, DisabledReason};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{self, DELIVERY};

/// Enables or disables sending.
#[derive(Clone)]
pub(super) struct Switch {
    pub name: Arc<str>,
    pub on: bool,
}

impl Switch {
    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let input = if self.on { DeliveryInput::Enable } else { DeliveryInput::Disable };
        let reply = TopicOutcome::reply(TopicReply::Done);
        let Some(change) = ProgressChange::of(context, &rows, input) else {
            return Ok(TopicStep::Done(reply));
        };
        let mut edit = Edit::new(context);
        change.write(context, &rows, &mut edit);
        edit.commit(reply.changing(vec![self.name.clone()]).announcing(change.disabled.is_some()))
    }
}

/// The changed progress.
pub(super) struct ProgressChange {
    pub progress: DeliveryProgress,
    /// Dead letters that are delivered again, by number.
    pub retried: Vec<u64>,
    /// It is disabled from now on.
    pub disabled: Option<DisabledReason>,
}

impl ProgressChange {
    /// None: the command changes nothing.
    pub fn of(
        context: &DecisionContext<'_>,
        rows: &SubscriptionRows,
        input: DeliveryInput,
    ) -> Option<ProgressChange> {
        let (now, patience) = (context.now, context.settings.topics.patience);
        let (subscription, progress) = (&rows.subscription.row, &rows.delivery.row);
        if subscription.pull {
            return of_pulled(progress, input);
        }
        let mut delivery = Delivery::new(now, progress.clone(), rules(subscription), patience);
        let mut effects = Vec::new();
        delivery.handle(now, input, &mut effects);
        let (mut saved, mut disabled) = (None, None);
        for effect in effects {
            match effect {
                DeliveryEffect::Save { retried, .. } => saved = Some(retried),
                DeliveryEffect::Disabled(why) => disabled = Some(why),
                DeliveryEffect::Recovered | DeliveryEffect::Lost { .. } => {}
            }
        }
        saved.map(|retried| ProgressChange { progress: delivery.progress().clone(), retried, disabled })
    }

    pub fn write(&self, context: &DecisionContext<'_>, rows: &SubscriptionRows, edit: &mut Edit) {
        edit.put(DELIVERY, rows.name(), record::write_progress(&self.progress));
        if let Some(why) = self.disabled {
            edit.0.appends.push(announcement::disabled(rows.name(), why, context.now.ms()));
        }
    }
}

/// A client that pulls sets its own pace: no batch is sealed or sent.
fn of_pulled(progress: &DeliveryProgress, input: DeliveryInput) -> Option<ProgressChange> {
    let mut after = progress.clone();
    let disabled = match input {
        DeliveryInput::Enable => {
            after.disabled = None;
            None
        }
        DeliveryInput::Disable => {
            after.disabled = after.disabled.or(Some(DisabledReason::Asked));
            after.disabled.filter(|_| progress.disabled.is_none())
        }
        DeliveryInput::Rewind(to) => {
            after.rewind(to);
            None
        }
        _ => None,
    };
    (after != *progress).then_some(ProgressChange { progress: after, retried: Vec::new(), disabled })
}

/// A subscription that is pulled has no batches: sealed and unsettled events are returned again.
pub(super) fn unseal(progress: &mut DeliveryProgress, log_first: u64) -> Result<(), Refusal> {
    let runs = progress.batches.iter().flat_map(|batch| &batch.ranges);
    let Some(oldest) = runs.map(|run| run.after).min_by_key(|mark| mark.seq) else { return Ok(()) };
    if oldest.position + 1 < log_first {
        let message = "some queued events are no longer in the log and cannot be pulled; \
                       wait until they are delivered, or delete the subscription";
        return Err(Refusal::new(Code::Conflict, message));
    }
    progress.rewind(oldest);
    progress.batches.clear();
    progress.failure = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;
    use tavern_domain::delivery::{Batch, BatchReason, EntryRange, LogMark};

    #[test]
    fn pulled_subscription_is_disabled_and_enabled_without_a_batch() {
        let begun = DeliveryProgress::starting(LogMark { seq: 4, position: 40 });
        let off = of_pulled(&begun, DeliveryInput::Disable).unwrap();
        assert_eq!(
            (off.progress.disabled, off.disabled),
            (Some(DisabledReason::Asked), Some(DisabledReason::Asked))
        );
        assert!(of_pulled(&off.progress, DeliveryInput::Disable).is_none(), "it is so already");
        assert_eq!(of_pulled(&off.progress, DeliveryInput::Enable).unwrap().progress, begun);
        assert!(of_pulled(&begun, DeliveryInput::Enable).is_none());
        let back = of_pulled(&begun, DeliveryInput::Rewind(LogMark { seq: 1, position: 7 })).unwrap();
        assert_eq!(back.progress.sealed, LogMark { seq: 1, position: 7 });
        assert!(of_pulled(&begun, DeliveryInput::Rewind(LogMark { seq: 4, position: 40 })).is_none());
    }

    fn sealed() -> DeliveryProgress {
        let run = |seq: u64| EntryRange {
            after: LogMark { seq, position: 10 * seq },
            first: seq + 1,
            last: seq + 2,
            gap: false,
        };
        let batch = |number, seq| Batch {
            number,
            ranges: vec![run(seq)],
            reason: BatchReason::Full,
            accepted: Time(0),
            attempts: 1,
            refusals: 0,
            suspect: false,
        };
        let sealed = LogMark { seq: 9, position: 90 };
        DeliveryProgress {
            batches: vec![batch(1, 5), batch(2, 7)],
            numbered: 2,
            sealed,
            ..DeliveryProgress::default()
        }
    }

    #[test]
    fn sealed_batches_are_returned_again_when_a_subscription_is_pulled() {
        let mut open = sealed();
        unseal(&mut open, 51).unwrap();
        assert_eq!((open.sealed.seq, open.batches.len(), open.numbered), (5, 0, 2));
        let mut kept = sealed();
        assert_eq!(unseal(&mut kept, 52).unwrap_err().code, Code::Conflict, "the log begins later");
        assert_eq!(kept, sealed());
    }
}
