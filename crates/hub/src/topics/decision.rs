//! Topic commands as decisions of the transaction driver. Must hold: a command that is refused writes nothing.

use super::command::{TopicCaller, TopicCommand};
use super::publish::{Claims, Publication};
use crate::core::Core;
use crate::transaction::{Decision, DecisionStep, Facts};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{StoreAnswer, StoreError, Versioned};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::TopicRecord;

pub(super) struct TopicDecision {
    /// Its reply is given under this number.
    pub number: u64,
    caller: TopicCaller,
    pub publication: Publication,
}

/// What a command means once it is committed.
pub(super) enum Decided {
    /// With the claim of the topic, and its version unless the commit writes it.
    Published(Versioned<TopicRecord>),
}

impl TopicDecision {
    /// A command that can be decided. What is wrong in itself is refused at once.
    pub fn new(
        number: u64,
        caller: TopicCaller,
        command: TopicCommand,
        claims: &Claims,
    ) -> Result<TopicDecision, Refusal> {
        let TopicCommand::Publish { topic, once, events } = command;
        let publication = Publication::new(topic, &caller, once.as_deref(), events, claims)?;
        Ok(TopicDecision { number, caller, publication })
    }
}

impl Decision for TopicDecision {
    type Outcome = Result<Decided, Refusal>;

    fn decide(&mut self, core: &Core, facts: &Facts) -> DecisionStep<Result<Decided, Refusal>> {
        self.publication.decide(core, facts, &self.caller)
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
