//! Topic commands and the steps of retention as decisions of the transaction driver. Must hold: a refused command writes
//! nothing.

use super::attempts::{ListAttempts, ShowAttempt};
use super::browse::BrowseTopic;
use super::command::{TopicCaller, TopicCommand};
use super::dead_letters::{ListDeadLetters, RetryDeadLetters};
use super::load::LoadStop;
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use super::progress::Switch;
use super::publish::{Publish, RememberReply, TopicClaims};
use super::pull::Pull;
use super::replay::Replay;
use super::report::{ListSubscriptions, ShowSubscription};
use super::retention::RetentionStep;
use super::subscriptions::{DeleteSubscription, PutSubscription, RotateSecret};
use super::topic_admin::{AssignTopic, DeleteTopic, ListTopics, ShowTopic};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{StoreAnswer, StoreError};
use tavern_wire::error::{Code, Refusal};

pub(super) struct TopicDecision {
    pub request: DecisionOrigin,
    pub task: TopicTask,
}

/// The origin of a decision.
#[derive(Clone)]
pub(super) enum DecisionOrigin {
    /// A caller, whose reply is given under this number.
    Command(u64, TopicCaller),
    /// Retention.
    Retention,
}

#[derive(Clone)]
pub(super) enum TopicTask {
    Publish(Publish),
    RememberReply(RememberReply),
    ListTopics(ListTopics),
    ShowTopic(ShowTopic),
    BrowseTopic(BrowseTopic),
    AssignTopic(AssignTopic),
    DeleteTopic(DeleteTopic),
    ListSubscriptions(ListSubscriptions),
    ShowSubscription(ShowSubscription),
    PutSubscription(PutSubscription),
    DeleteSubscription(DeleteSubscription),
    RotateSecret(RotateSecret),
    ListAttempts(ListAttempts),
    ShowAttempt(ShowAttempt),
    Switch(Switch),
    Pull(Pull),
    Replay(Replay),
    ListLetters(ListDeadLetters),
    RetryLetters(RetryDeadLetters),
    Retain(RetentionStep),
}

impl TopicTask {
    /// The decision of a command. A malformed command is refused at once.
    pub fn of(
        caller: &TopicCaller,
        command: TopicCommand,
        claims: &TopicClaims,
    ) -> Result<TopicTask, Refusal> {
        Ok(match command {
            TopicCommand::Publish { topic, once, events } => {
                TopicTask::Publish(Publish::new(topic, caller, once, events, claims)?)
            }
            TopicCommand::ListTopics { after, limit } => TopicTask::ListTopics(ListTopics::new(after, limit)),
            TopicCommand::ShowTopic { topic } => TopicTask::ShowTopic(ShowTopic::new(topic)),
            TopicCommand::BrowseTopic { topic, from, limit } => {
                TopicTask::BrowseTopic(BrowseTopic { topic, from, limit })
            }
            TopicCommand::AssignTopic { topic, publisher } => {
                TopicTask::AssignTopic(AssignTopic::new(topic, publisher))
            }
            TopicCommand::DeleteTopic { topic } => TopicTask::DeleteTopic(DeleteTopic::new(topic)),
            TopicCommand::ListSubscriptions { after, limit } => {
                TopicTask::ListSubscriptions(ListSubscriptions::new(after, limit))
            }
            TopicCommand::ShowSubscription { name } => {
                TopicTask::ShowSubscription(ShowSubscription::new(name))
            }
            TopicCommand::PutSubscription { name, change } => {
                TopicTask::PutSubscription(PutSubscription { name, change })
            }
            TopicCommand::DeleteSubscription { name } => {
                TopicTask::DeleteSubscription(DeleteSubscription::new(name))
            }
            TopicCommand::RotateSecret { name, secret } => {
                TopicTask::RotateSecret(RotateSecret { name, secret })
            }
            TopicCommand::ListAttempts { name, filter } => {
                TopicTask::ListAttempts(ListAttempts::new(name, filter))
            }
            TopicCommand::ShowAttempt { name, number } => {
                TopicTask::ShowAttempt(ShowAttempt::new(name, number))
            }
            TopicCommand::SwitchSubscription { name, on } => TopicTask::Switch(Switch { name, on }),
            TopicCommand::Pull { name, after, limit, .. } => {
                TopicTask::Pull(Pull::new(name, after, limit, None))
            }
            TopicCommand::Replay { name, from } => TopicTask::Replay(Replay::new(name, from)),
            TopicCommand::ListDeadLetters { name, after, limit } => {
                TopicTask::ListLetters(ListDeadLetters { name, after, limit })
            }
            TopicCommand::RetryDeadLetters { name, choice } => {
                TopicTask::RetryLetters(RetryDeadLetters::new(name, choice))
            }
        })
    }

    fn decide(
        &mut self,
        request: &DecisionOrigin,
        context: &DecisionContext<'_>,
        facts: &Facts,
    ) -> TopicDecided {
        let caller = match (&mut *self, request) {
            (TopicTask::Retain(RetentionStep::Check(task)), _) => return task.decide(facts),
            (TopicTask::Retain(RetentionStep::Cut(task)), _) => return task.decide(context, facts),
            (TopicTask::Retain(RetentionStep::Sweep(task)), _) => return task.decide(context, facts),
            (TopicTask::Retain(RetentionStep::ListBudgets(task)), _) => return task.decide(facts),
            (TopicTask::Retain(RetentionStep::CountBacklog(task)), _) => return task.decide(context, facts),
            (_, DecisionOrigin::Command(_, caller)) => caller,
            (_, DecisionOrigin::Retention) => unreachable!("retention runs its own steps only"),
        };
        match self {
            TopicTask::Publish(task) => task.decide(context, facts, caller),
            TopicTask::RememberReply(task) => task.decide(context),
            TopicTask::ListTopics(task) => task.decide(facts),
            TopicTask::ShowTopic(task) => task.decide(facts),
            TopicTask::BrowseTopic(task) => task.decide(facts, caller),
            TopicTask::AssignTopic(task) => task.decide(context, facts),
            TopicTask::DeleteTopic(task) => task.decide(context, facts, caller),
            TopicTask::ListSubscriptions(task) => task.decide(facts, caller),
            TopicTask::ShowSubscription(task) => task.decide(facts, caller),
            TopicTask::PutSubscription(task) => task.decide(context, facts, caller),
            TopicTask::DeleteSubscription(task) => task.decide(context, facts, caller),
            TopicTask::RotateSecret(task) => task.decide(context, facts, caller),
            TopicTask::ListAttempts(task) => task.decide(context, facts, caller),
            TopicTask::ShowAttempt(task) => task.decide(context, facts, caller),
            TopicTask::Switch(task) => task.decide(context, facts, caller),
            TopicTask::Pull(task) => task.decide(context, facts, caller),
            TopicTask::Replay(task) => task.decide(context, facts, caller),
            TopicTask::ListLetters(task) => task.decide(facts, caller),
            TopicTask::RetryLetters(task) => task.decide(context, facts, caller),
            TopicTask::Retain(_) => unreachable!("decided above"),
        }
    }
}

impl Decision for TopicDecision {
    type Outcome = Result<TopicOutcome, Refusal>;
    /// The task with what it has read of lists and of the log.
    type Notes = Option<Box<TopicTask>>;

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        notes: &mut Self::Notes,
    ) -> DecisionStep<Result<TopicOutcome, Refusal>> {
        let decided = match (&self.task, &self.request) {
            // Without notes: it has many events, and reads no list.
            (TopicTask::Publish(publish), DecisionOrigin::Command(_, caller)) => {
                publish.decide(context, facts, caller)
            }
            (task, request) => {
                let task = notes.get_or_insert_with(|| Box::new(task.clone()));
                task.decide(request, context, facts)
            }
        };
        match decided {
            Ok(TopicStep::Commit(commit, meaning)) => {
                DecisionStep::Commit { commit: *commit, outcome: Ok(meaning) }
            }
            Ok(TopicStep::Done(meaning)) => DecisionStep::Done(Ok(meaning)),
            Err(LoadStop::Need(needs)) => DecisionStep::Need(needs),
            Err(LoadStop::Again) => DecisionStep::Again,
            Err(LoadStop::Refuse(refusal)) => DecisionStep::Done(Err(refusal)),
            Err(LoadStop::Fail(answer)) => DecisionStep::Fail(*answer),
        }
    }
}

/// The refusal for the caller when the store failed.
pub(super) fn refusal(answer: &StoreAnswer) -> Refusal {
    match answer {
        StoreAnswer::Failed(StoreError::TooLarge { what, found, limit }) => {
            Refusal::new(Code::TooLarge, format!("{what}: {found}, at most {limit}"))
        }
        StoreAnswer::Failed(StoreError::Conflict { .. }) => {
            Refusal::new(Code::Unavailable, "too many concurrent changes of the same data; retry")
                .retry_after(RETRY_AFTER_MS)
        }
        StoreAnswer::Failed(StoreError::Corrupt { .. }) => {
            Refusal::new(Code::Internal, "a record in the store cannot be read; the server's log names it")
        }
        _ => Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS),
    }
}
