//! Topics and their subscriptions on one node. Commands (`command`) are decided by `decision` and run by this feature:
//! `publish`, `topic_admin`, `subscriptions` with `settings`, `report`, `pull` (`pulls` are the clients that wait),
//! `replay`, `dead_letters`, `attempts`, `browse`, and `progress` for changes to the progress of a delivery. `retention` maintains the log:
//! `trim` with `id_marks`, `budgets` with `backlog`. They read through `load`, `position` and `reading`, and end in an `outcome`.
//! `delivery` delivers the queues of subscriptions to endpoints; `announcement` is what is published about that. Has no
//! sockets: posts and replies are effects. The rules of deliveries are in `tavern_domain::delivery`.
//! Must hold: a command is replied to once, after its commit; clients and workers that wait for events are woken after
//! the commit.

pub mod announcement;
mod attempts;
mod backlog;
mod browse;
mod budgets;
mod command;
mod dead_letters;
mod decision;
pub mod delivery;
mod id_marks;
mod load;
mod outcome;
mod position;
mod progress;
mod publish;
mod pull;
mod pulls;
mod reading;
mod replay;
mod report;
mod retention;
mod settings;
mod subscriptions;
mod topic_admin;
mod trim;

pub use attempts::AttemptFilter;
pub use command::{
    ANONYMOUS_PUBLISHER, BrowseFrom, DeadLetterChoice, PublishResult, Pulled, ReplayFrom, SQL_PUBLISHER,
    SubscriptionState, TopicCaller, TopicCommand, TopicReply, TopicState,
};
pub use publish::once_bytes;
pub(crate) use reading::LogReading;
pub use settings::SubscriptionChange;

use crate::core::{Core, Feature};
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use decision::{DecisionOrigin, TopicDecision, TopicTask, refusal};
use delivery::DeliveryNotice;
use outcome::{LostEvents, NextStep, Retained, TopicOutcome};
use publish::TopicClaims;
use pulls::{Begin, Pulls};
use retention::{Retention, RetentionStep};
use std::sync::Arc;
use tavern_domain::topic::DELIVERIES;
use tavern_store::{Deadline, DocumentKey, Receipt, RowKey, StoreAnswer, StoreError, Ticket, Versioned};
use tavern_wire::error::Refusal;
use tavern_wire::record::TOPIC;

/// Work for the server. The buffers are reused: drain them, do not replace them.
#[derive(Debug, Default)]
pub struct TopicEffects {
    /// Replies to commands, by their numbers.
    pub replies: Vec<(u64, Result<TopicReply, Refusal>)>,
    /// Topics to which events were added: how many, and how many were duplicates.
    pub published: Vec<(Arc<str>, u64, u64)>,
    /// Subscriptions that were created, changed or deleted, or whose progress was changed: the delivery worker reads
    /// them again.
    pub changed: Vec<Arc<str>>,
    pub notices: Vec<DeliveryNotice>,
    /// Events before a position were dropped from the log.
    pub trimmed: Vec<Trimmed>,
    /// Records that cannot be read: an error for the operator.
    pub corrupt: Vec<StoreError>,
}

/// The log was trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trimmed {
    /// The oldest position that was dropped, and the oldest that is kept.
    pub from: u64,
    pub before: u64,
    /// How many subscriptions had not received all of it.
    pub subscriptions: usize,
}

pub(crate) struct Topics {
    transactions: Transactions<TopicDecision>,
    claims: TopicClaims,
    pulls: Pulls,
    retention: Retention,
    pub effects: TopicEffects,
}

impl Topics {
    pub fn new(core: &mut Core) -> Topics {
        Retention::start(core);
        Topics {
            transactions: Transactions::new(Feature::Topics),
            claims: TopicClaims::default(),
            pulls: Pulls::default(),
            retention: Retention::default(),
            effects: TopicEffects::default(),
        }
    }

    pub fn handle(&mut self, core: &mut Core, number: u64, caller: TopicCaller, command: TopicCommand) {
        if let TopicCommand::Pull { name, after, limit, wait_ms } = command {
            let begin = self.pulls.ask(core, number, caller, (name, after, limit, wait_ms));
            return self.pull(core, begin);
        }
        match TopicTask::of(&caller, command, &self.claims) {
            Ok(task) => self.begin(core, DecisionOrigin::Command(number, caller), task),
            Err(refused) => self.effects.replies.push((number, Err(refused))),
        }
    }

    /// The timer of a client that pulls is due: checks its queue again.
    pub fn pull_is_due(&mut self, core: &mut Core, number: u64) {
        let begin = self.pulls.start_read(core, number);
        self.pull(core, begin);
    }

    /// A topic has new events, published on any shard.
    pub fn topic_grew(&mut self, core: &mut Core, topic: &Arc<str>) {
        self.pulls.published(core, topic);
    }

    /// The retention check is due.
    pub fn retention_is_due(&mut self, core: &mut Core) {
        let step = self.retention.wake(core);
        self.retain(core, step);
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let progress = self.transactions.answered(core, ticket, answer);
        self.progressed(core, progress);
    }

    /// The reply to a request with an `Idempotency-Key` has expired.
    pub fn forget_keyed_publish(core: &mut Core, deadline: &Deadline) {
        publish::forget(core, deadline);
    }

    fn pull(&mut self, core: &mut Core, begin: Option<Begin>) {
        if let Some((number, caller, pull)) = begin {
            self.begin(core, DecisionOrigin::Command(number, caller), TopicTask::Pull(pull));
        }
    }

    fn retain(&mut self, core: &mut Core, step: Option<RetentionStep>) {
        if let Some(step) = step {
            self.begin(core, DecisionOrigin::Retention, TopicTask::Retain(step));
        }
    }

    fn begin(&mut self, core: &mut Core, request: DecisionOrigin, task: TopicTask) {
        let decision = TopicDecision { request, task };
        let progress = self.transactions.begin(core, decision, Facts::default());
        self.progressed(core, progress);
    }

    fn progressed(&mut self, core: &mut Core, progress: TransactionProgress<TopicDecision>) {
        let TransactionProgress::Ended(TopicDecision { request, task }, ended) = progress else {
            return;
        };
        match ended {
            TransactionEnd::Committed(Ok(meaning), receipt) => {
                self.decided(core, request, task, meaning, &receipt);
            }
            TransactionEnd::Done(Ok(meaning)) => {
                self.decided(core, request, task, meaning, &Receipt::default())
            }
            TransactionEnd::Done(Err(refused)) | TransactionEnd::Committed(Err(refused), _) => {
                self.refused(core, request, refused);
            }
            TransactionEnd::Failed { answer, .. } => {
                if let TopicTask::Publish(publish) = &task {
                    // The cached claim may be stale, or the commit may have been applied anyway.
                    self.claims.forget(&publish.topic);
                }
                if let (TopicTask::RememberReply(remember), DecisionOrigin::Command(number, _)) =
                    (&task, &request)
                {
                    // The events are in the log anyway.
                    let published = TopicReply::Published(remember.published);
                    return self.reply(core, *number, Ok(published));
                }
                let refused = refusal(&answer);
                if let StoreAnswer::Failed(error @ StoreError::Corrupt { .. }) = answer {
                    self.effects.corrupt.push(error);
                }
                self.refused(core, request, refused);
            }
        }
    }

    fn refused(&mut self, core: &mut Core, request: DecisionOrigin, refused: Refusal) {
        match request {
            DecisionOrigin::Command(number, _) => self.reply(core, number, Err(refused)),
            DecisionOrigin::Retention => {
                let step = self.retention.next(core, None);
                self.retain(core, step);
            }
        }
    }

    fn reply(&mut self, core: &mut Core, number: u64, reply: Result<TopicReply, Refusal>) {
        self.pulls.end(core, number);
        self.effects.replies.push((number, reply));
    }

    fn decided(
        &mut self,
        core: &mut Core,
        request: DecisionOrigin,
        task: TopicTask,
        meaning: TopicOutcome,
        receipt: &Receipt,
    ) {
        let TopicOutcome { next, changed, announced, lost } = meaning;
        self.effects.changed.extend(changed);
        if announced {
            core.effects.topics.push(DELIVERIES.into());
            self.topic_grew(core, &DELIVERIES.into());
        }
        for LostEvents { name, first, last } in lost {
            self.effects.notices.push(DeliveryNotice::Lost { subscription: name, first, last });
        }
        match (next, task, request) {
            (NextStep::Repeat, task, request) => self.begin(core, request, task),
            (NextStep::Reply(reply), _, DecisionOrigin::Command(number, _)) => {
                self.reply(core, number, Ok(reply))
            }
            (NextStep::Publish { claim, repeats }, TopicTask::Publish(publish), request) => {
                let key = RowKey::Document(DocumentKey::new(TOPIC, &publish.topic));
                let version = receipt.version(&key).unwrap_or(claim.version);
                let past_events = claim.row.past_events;
                self.claims.keep(&publish.topic, Versioned { version, row: claim.row });
                self.published(core, &publish.topic, receipt);
                let published = publish::count(&receipt.appended, past_events, repeats);
                match (publish.remember(published, past_events), request) {
                    (Some(remember), request) => {
                        self.begin(core, request, TopicTask::RememberReply(remember))
                    }
                    (None, DecisionOrigin::Command(number, _)) => {
                        self.reply(core, number, Ok(TopicReply::Published(published)));
                    }
                    (None, DecisionOrigin::Retention) => {}
                }
            }
            (NextStep::Pull(page), _, DecisionOrigin::Command(number, _)) => {
                if let Some(page) = self.pulls.read_done(core, number, page) {
                    self.reply(core, number, Ok(TopicReply::Pulled(page.pulled)));
                }
            }
            (NextStep::Retain(retained), _, _) => {
                if let Retained::Trimmed { from, before, subscriptions } = retained
                    && before > from
                {
                    self.effects.trimmed.push(Trimmed { from, before, subscriptions });
                }
                let step = self.retention.next(core, Some(retained));
                self.retain(core, step);
            }
            _ => unreachable!("a decision ends with the outcome of its task"),
        }
    }

    fn published(&mut self, core: &mut Core, topic: &Arc<str>, receipt: &Receipt) {
        let added = receipt.appended.iter().filter(|appended| !appended.duplicate).count() as u64;
        let known = receipt.appended.len() as u64 - added;
        self.effects.published.push((topic.clone(), added, known));
        self.topic_grew(core, topic);
    }
}
