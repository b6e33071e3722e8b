//! The contract of a bus: it carries words between nodes. It may lose, repeat and delay; what it knows to be lost it
//! says. It keeps nothing and knows no channel, session or presence.
//! Must hold: what is published after a subscription was confirmed is heard, or reported lost, or found out by `n`;
//! words of one publisher on one subject arrive in order; a node hears each word once, however many of its
//! subscriptions match; a node never hears itself: the engine drops words whose `from` names the node that
//! opened it, so no hub ever sees its own echo.

use crate::row::Writer;
use crate::store::{Cause, Ticket};
use crate::subject::Subject;
use std::sync::Arc;

pub trait Bus: Send + Sync {
    /// Never blocks. Nothing is answered: what was lost shows as a hole in `n`.
    fn publish(&self, batch: Vec<Parcel>);

    /// Confirmed through the inbox once everything published from then on will be heard.
    fn subscribe(&self, subjects: Vec<Subject>, ticket: Ticket);

    /// Words already under way may still arrive.
    fn unsubscribe(&self, subjects: Vec<Subject>);

    fn name(&self) -> &'static str;

    /// After this nothing is delivered. Not to be called from inside the inbox.
    fn stop(&self);
}

/// Given to a bus when it is opened. Only takes: it must be quick.
pub trait BusInbox: Send + Sync {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>);
    fn words(&self, parcels: Vec<Parcel>);
    fn lost(&self, lost: Lost);
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub subject: Subject,
    pub from: Writer,
    /// Counts per (node, epoch, channel), so that listening to a part makes no false holes.
    pub n: u64,
    pub payload: Arc<[u8]>,
}

/// Words that the bus knows it did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection broke, or this node was too slow.
    Everything,
    On(Subject),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum BusError {
    #[error("the bus is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    #[error("no bus of kind {kind:?}: use memory:")]
    Address { kind: String },
}
