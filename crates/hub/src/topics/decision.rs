//! Topic commands and the steps of retention as decisions of the transaction driver. Must hold: a refused command writes
//! nothing.

use super::command::{TopicCaller, TopicCommand};
use super::dead_letters::{ListLetters, RetryLetters};
use super::load::CommandStop;
use super::outcome::{Meaning, TopicStep};
use super::progress::Switch;
use super::publish::{Claims, Publish, RememberReply};
use super::pull::Pull;
use super::replay::Replay;
use super::report::{ListSubscriptions, ShowSubscription};
use super::retention::RetentionStep;
use super::subscriptions::{DeleteSubscription, PutSubscription};
use super::topic_admin::{AssignTopic, DeleteTopic, ListTopics, ShowTopic};
use crate::core::Core;
use crate::transaction::{Decision, DecisionStep, Facts};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{StoreAnswer, StoreError};
use tavern_wire::error::{Code, Refusal};

pub(super) struct TopicDecision {
    pub request: Request,
    pub task: InboxRequest,
}

/// Whose decision it is.
#[derive(Clone)]
pub(super) enum Request {
    /// A caller's, whose reply is given under this number.
    Command(u64, TopicCaller),
    /// Retention's own.
    Retention,
}

pub(super) enum InboxRequest {
    Publish(Publish),
    RememberReply(RememberReply),
    ListTopics(ListTopics),
    ShowTopic(ShowTopic),
    AssignTopic(AssignTopic),
    DeleteTopic(DeleteTopic),
    ListSubscriptions(ListSubscriptions),
    ShowSubscription(ShowSubscription),
    PutSubscription(PutSubscription),
    DeleteSubscription(DeleteSubscription),
    Switch(Switch),
    Pull(Pull),
    Replay(Replay),
    ListLetters(ListLetters),
    RetryLetters(RetryLetters),
    Retain(RetentionStep),
}

impl InboxRequest {
    /// A command that can be decided. What is wrong in itself is refused at once.
    pub fn of(caller: &TopicCaller, command: TopicCommand, claims: &Claims) -> Result<InboxRequest, Refusal> {
        Ok(match command {
            TopicCommand::Publish { topic, once, events } => {
                InboxRequest::Publish(Publish::new(topic, caller, once, events, claims)?)
            }
            TopicCommand::ListTopics { after, limit } => {
                InboxRequest::ListTopics(ListTopics::new(after, limit))
            }
            TopicCommand::ShowTopic { topic } => InboxRequest::ShowTopic(ShowTopic::new(topic)),
            TopicCommand::AssignTopic { topic, publisher } => {
                InboxRequest::AssignTopic(AssignTopic::new(topic, publisher))
            }
            TopicCommand::DeleteTopic { topic } => InboxRequest::DeleteTopic(DeleteTopic::new(topic)),
            TopicCommand::ListSubscriptions { after, limit } => {
                InboxRequest::ListSubscriptions(ListSubscriptions::new(after, limit))
            }
            TopicCommand::ShowSubscription { name } => {
                InboxRequest::ShowSubscription(ShowSubscription::new(name))
            }
            TopicCommand::PutSubscription { name, change } => {
                InboxRequest::PutSubscription(PutSubscription { name, change })
            }
            TopicCommand::DeleteSubscription { name } => {
                InboxRequest::DeleteSubscription(DeleteSubscription { name })
            }
            TopicCommand::SwitchSubscription { name, on } => InboxRequest::Switch(Switch { name, on }),
            TopicCommand::Pull { name, after, limit, .. } => {
                InboxRequest::Pull(Pull::new(name, after, limit, None))
            }
            TopicCommand::Replay { name, from } => InboxRequest::Replay(Replay::new(name, from)),
            TopicCommand::ListDeadLetters { name, after, limit } => {
                InboxRequest::ListLetters(ListLetters { name, after, limit })
            }
            TopicCommand::RetryDeadLetters { name, choice } => {
                InboxRequest::RetryLetters(RetryLetters::new(name, choice))
            }
        })
    }
}

impl Decision for TopicDecision {
    type Outcome = Result<Meaning, Refusal>;

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<Result<Meaning, Refusal>> {
        let decided = match (&mut self.task, &self.request) {
            (InboxRequest::RememberReply(task), _) => task.decide(core),
            (InboxRequest::ListTopics(task), _) => task.decide(facts),
            (InboxRequest::ShowTopic(task), _) => task.decide(facts),
            (InboxRequest::AssignTopic(task), _) => task.decide(core, facts),
            (InboxRequest::Retain(RetentionStep::Look(task)), _) => task.decide(core, facts),
            (InboxRequest::Retain(RetentionStep::Cut(task)), _) => task.decide(core, facts),
            (InboxRequest::Retain(RetentionStep::Sweep(task)), _) => task.decide(core, facts),
            (InboxRequest::Retain(RetentionStep::ListBudgets(task)), _) => task.decide(facts),
            (InboxRequest::Retain(RetentionStep::CountBacklog(task)), _) => task.decide(core, facts),
            (InboxRequest::Publish(task), Request::Command(_, caller)) => task.decide(core, facts, caller),
            (InboxRequest::DeleteTopic(task), Request::Command(_, caller)) => {
                task.decide(core, facts, caller)
            }
            (InboxRequest::ListSubscriptions(task), Request::Command(_, caller)) => {
                task.decide(facts, caller)
            }
            (InboxRequest::ShowSubscription(task), Request::Command(_, caller)) => task.decide(facts, caller),
            (InboxRequest::PutSubscription(task), Request::Command(_, caller)) => {
                task.decide(core, facts, caller)
            }
            (InboxRequest::DeleteSubscription(task), Request::Command(_, caller)) => {
                task.decide(core, facts, caller)
            }
            (InboxRequest::Switch(task), Request::Command(_, caller)) => task.decide(core, facts, caller),
            (InboxRequest::Pull(task), Request::Command(_, caller)) => task.decide(core, facts, caller),
            (InboxRequest::Replay(task), Request::Command(_, caller)) => task.decide(core, facts, caller),
            (InboxRequest::ListLetters(task), Request::Command(_, caller)) => task.decide(facts, caller),
            (InboxRequest::RetryLetters(task), Request::Command(_, caller)) => {
                task.decide(core, facts, caller)
            }
            (_, Request::Retention) => unreachable!("retention runs its own steps only"),
        };
        match decided {
            Ok(TopicStep::Commit(commit, meaning)) => {
                DecisionStep::Commit { commit: *commit, outcome: Ok(meaning) }
            }
            Ok(TopicStep::Done(meaning)) => DecisionStep::Done(Ok(meaning)),
            Err(CommandStop::Need(needs)) => DecisionStep::Need(needs),
            Err(CommandStop::Again) => DecisionStep::Again,
            Err(CommandStop::Refuse(refusal)) => DecisionStep::Done(Err(refusal)),
            Err(CommandStop::Fail(answer)) => DecisionStep::Fail(*answer),
        }
    }
}

/// What the caller is told when the store did not do what it must.
pub(super) fn refusal(answer: &StoreAnswer) -> Refusal {
    match answer {
        StoreAnswer::Failed(StoreError::TooLarge { what, found, limit }) => {
            Refusal::new(Code::TooLarge, format!("{what}: {found}, at most {limit}"))
        }
        StoreAnswer::Failed(StoreError::Conflict { .. }) => {
            Refusal::new(Code::Unavailable, "others change the same thing all the time; try again")
                .retry_after(RETRY_AFTER_MS)
        }
        StoreAnswer::Failed(StoreError::Corrupt { .. }) => {
            Refusal::new(Code::Internal, "a record in the store cannot be read; the server's log says which")
        }
        _ => Refusal::new(Code::Unavailable, "the store does not answer; try again")
            .retry_after(RETRY_AFTER_MS),
    }
}
