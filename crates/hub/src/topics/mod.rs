//! Topics and their subscriptions on one node: commands (`command`) are decided by `decision` (`publish`) and run by this
//! feature; `delivery` delivers the queues of subscriptions to endpoints; `reading` walks such a queue in the log; `progress`
//! and `backlog` are the rules of administration and budgets; `announcement` is what is published about them. Knows no
//! sockets: posts and replies are effects. The rules of deliveries are in `tavern_domain::delivery`.
//! Must hold: a command is replied to once, after its commit; who waits for events is woken after the commit.

pub mod announcement;
mod backlog;
mod command;
mod decision;
pub mod delivery;
mod progress;
mod publish;
mod reading;

pub use backlog::Backlog;
pub use command::{Published, TopicCaller, TopicCommand, TopicReply, check_topic_name};
pub use progress::{ProgressChange, unseal};
pub use publish::once_bytes;
pub use reading::{Reading, Took};

use crate::core::{Core, Feature};
use crate::transaction::{Facts, TransactionEnd, TransactionProgress, Transactions};
use decision::{Decided, TopicDecision, refusal};
use publish::{Claims, Publication};
use std::sync::Arc;
use tavern_store::{Receipt, StoreAnswer, Ticket, Versioned};
use tavern_wire::error::Refusal;
use tavern_wire::record::TopicRecord;

/// What the server must carry out. Buffers are reused: drain them, keep them.
#[derive(Debug, Default)]
pub struct TopicEffects {
    /// Replies to commands, by their numbers.
    pub replies: Vec<(u64, Result<TopicReply, Refusal>)>,
    /// Topics to which events were added: how many, and how many were known by their id.
    pub published: Vec<(Arc<str>, u64, u64)>,
}

pub(crate) struct Topics {
    transactions: Transactions<TopicDecision>,
    claims: Claims,
    pub effects: TopicEffects,
}

impl Topics {
    pub fn new() -> Topics {
        Topics {
            transactions: Transactions::new(Feature::Topics),
            claims: Claims::default(),
            effects: TopicEffects::default(),
        }
    }

    pub fn handle(&mut self, core: &mut Core, number: u64, caller: TopicCaller, command: TopicCommand) {
        match TopicDecision::new(number, caller, command, &self.claims) {
            Ok(decision) => {
                let progress = self.transactions.begin(core, decision, Facts::default());
                self.progressed(progress);
            }
            Err(refused) => self.effects.replies.push((number, Err(refused))),
        }
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let progress = self.transactions.answered(core, ticket, answer);
        self.progressed(progress);
    }

    fn progressed(&mut self, progress: TransactionProgress<TopicDecision>) {
        let TransactionProgress::Ended(decision, ended) = progress else { return };
        let publication = &decision.publication;
        let reply = match ended {
            TransactionEnd::Committed(Ok(Decided::Published(claim)), receipt) => {
                Ok(TopicReply::Published(self.published(publication, claim, &receipt)))
            }
            TransactionEnd::Done(Ok(Decided::Published(_))) => unreachable!("events are committed"),
            TransactionEnd::Done(Err(refused)) | TransactionEnd::Committed(Err(refused), _) => Err(refused),
            // The claim may be another by now, or the commit may have happened all the same.
            TransactionEnd::Failed { answer, .. } => {
                self.claims.forget(&publication.topic);
                Err(refusal(&answer))
            }
        };
        self.effects.replies.push((decision.number, reply));
    }

    fn published(
        &mut self,
        publication: &Publication,
        claim: Versioned<TopicRecord>,
        receipt: &Receipt,
    ) -> Published {
        let version = receipt.put.first().copied().unwrap_or(claim.version);
        self.claims.keep(&publication.topic, Versioned { version, row: claim.row });
        let added = receipt.appended.iter().filter(|appended| !appended.again).count() as u64;
        let known = receipt.appended.len() as u64 - added;
        self.effects.published.push((publication.topic.clone(), added, known));
        publication.count(&receipt.appended)
    }
}
