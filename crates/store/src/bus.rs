//! The contract of a bus: it carries words between nodes. It may lose, repeat and delay; what it knows to be lost it
//! says. It keeps nothing and knows no channel, session or presence.
//! Must hold: what is published after a subscription was confirmed is heard, or reported lost, or found out by `n`;
//! words of one shard of a node arrive in order; a node hears each word once, however many of its
//! subscriptions match; a node never hears itself: the engine drops words whose `from` names the node that
//! opened it, so no hub ever sees its own echo.

use crate::interest::Interest;
use crate::row::Writer;
use crate::store::{Cause, Ticket};
use crate::subject::Subject;
use std::sync::Arc;

pub trait Bus: Send + Sync {
    /// Never blocks. Nothing is answered: what was lost shows as a hole in `n`.
    fn publish(&self, batch: Vec<Parcel>);

    /// True: everything published from now on will be heard. Else the inbox hears `confirmed` when that is so.
    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool;

    /// Words already under way may still arrive.
    fn unsubscribe(&self, interests: Vec<Interest>);

    /// Nobody else listens to anything, for sure: publishing would reach nobody. Asked for every message.
    fn is_alone(&self) -> bool {
        false
    }

    /// It hears everything as it is: nothing needs to be subscribed to. When that ends, `BusInbox::needs` is asked, after
    /// this has become false.
    fn hears_everything(&self) -> bool {
        false
    }

    /// Programs that are no nodes can listen on its server: a parcel of `Writer::outsider` reaches them as it is.
    fn reaches_services(&self) -> bool {
        false
    }

    /// So much waits to be carried that publishers should not be read for a while.
    fn is_full(&self) -> bool {
        false
    }

    /// Words can be carried at this moment, as far as is known.
    fn is_well(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str;

    /// What has been carried so far, for the metrics page.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// After this nothing is delivered. Not to be called from inside the inbox.
    fn stop(&self);
}

/// Given to a bus when it is opened. Only takes: it must be quick.
pub trait BusInbox: Send + Sync {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>);
    /// May wait while the node has more to do than it can: the bus then keeps what follows, as far as it can.
    fn words(&self, parcels: Vec<Parcel>);
    fn lost(&self, lost: Lost);

    /// Everything that the node listens to at this moment.
    fn needs(&self) -> Vec<Interest> {
        Vec::new()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    pub subject: Subject,
    /// `Writer::outsider` for somebody who is no node, and for what is said to those who are none.
    pub from: Writer,
    /// Grows with what one shard of this life of the node says, on all subjects; the shard stands in the top byte. By it
    /// a session that moves is known to have heard a word already. It has holes for whoever listens to a part.
    pub n: u64,
    /// What the node put beside the payload; the engine does not look into it.
    pub note: Arc<[u8]>,
    pub payload: Arc<[u8]>,
}

/// Words that the bus knows it did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The connection broke, or this node was too slow.
    Everything,
    On(Subject),
}

/// What a bus has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Parcels handed to the engine: somebody else may hear them.
    pub sent: u64,
    /// Parcels that came from others.
    pub received: u64,
    /// Parcels that could not be carried.
    pub failed: u64,
    /// Times at which others' words were lost on the way here.
    pub losses: u64,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum BusError {
    #[error("the bus is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    #[error("no bus of kind {kind:?}: use local, memory:, nats://… or redis://…")]
    Address { kind: String },
    /// What the address says; the address itself is never repeated.
    #[error("the address of the bus has a wrong {what}")]
    Malformed { what: &'static str },
}
