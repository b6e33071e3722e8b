//! The contract of a bus: it carries messages between nodes. It may lose, repeat and delay; what it knows to be lost it
//! reports. It stores nothing and knows no channel, session or presence.
//! Must hold: a message published after a subscription was confirmed is delivered, or reported lost, or noticed as a gap in
//! `n`; messages of one shard of a node arrive in order; a node gets each message once, however many of its subscriptions
//! match; a node never gets its own messages: the engine drops those whose `from` names the node that opened it.

use crate::error::Cause;
use crate::interest::Interest;
use crate::node::Writer;
use crate::store::Ticket;
use crate::subject::Subject;
use std::sync::Arc;

/// What an engine implements to connect nodes. All methods return at once.
pub trait Bus: Send + Sync {
    /// Never blocks. Nothing is answered: a loss shows as a gap in `n`.
    fn publish(&self, batch: Vec<BusPacket>);

    /// True: every message published from now on will arrive. Else the receiver gets `confirmed` when that is so.
    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool;

    /// Messages already in flight may still arrive.
    fn unsubscribe(&self, interests: Vec<Interest>);

    /// True only when it is certain that no other node or process listens. Called for every message, so it is cheap.
    fn is_alone(&self) -> bool {
        false
    }

    /// Every message arrives without any subscription. When that ends, `BusReceiver::interests` is called, after this has
    /// become false.
    fn receives_everything(&self) -> bool {
        false
    }

    /// Programs that are not nodes can listen on its server: they get a message of `Writer::outsider` as it is.
    fn reaches_services(&self) -> bool {
        false
    }

    /// Backpressure: so much waits to be sent that publishers should not be read for a while.
    fn is_full(&self) -> bool {
        false
    }

    /// Messages can be sent at this moment, as far as is known.
    fn is_connected(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str;

    /// For the metrics page.
    fn counts(&self) -> BusCounts {
        BusCounts::default()
    }

    /// After this nothing is delivered. Not to be called by the receiver.
    fn stop(&self);
}

/// Given to a bus when it is opened. Must be quick.
pub trait BusReceiver: Send + Sync {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>);

    /// May block while the node is overloaded: the bus then buffers what follows, as far as it can.
    fn messages(&self, messages: Vec<BusPacket>);

    fn lost(&self, lost: BusLoss);

    /// Everything that the node listens to at this moment.
    fn interests(&self) -> Vec<Interest> {
        Vec::new()
    }
}

/// A message between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPacket {
    pub subject: Subject,
    /// `Writer::outsider` for a message from or to programs that are not nodes.
    pub from: Writer,
    /// Grows with the messages of one shard of this epoch of the node, on all subjects; the shard is in the top byte. A
    /// session that migrates uses it to skip messages it already has. A node that listens to some subjects sees gaps.
    pub n: u64,
    /// What the node put beside the payload; opaque to the engine.
    pub header: Arc<[u8]>,
    pub payload: Arc<[u8]>,
}

/// Messages that the bus knows it did not deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusLoss {
    /// The connection broke, or this node was too slow.
    Everything,
    On(Subject),
}

/// What a bus has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCounts {
    /// Messages that others may have got.
    pub sent: u64,
    /// Messages from others.
    pub received: u64,
    /// Messages that could not be sent.
    pub failed: u64,
    /// How often messages of others were lost on the way here.
    pub losses: u64,
}

/// Why a bus cannot be opened or used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BusError {
    #[error("the bus is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    #[error("no bus of kind {kind:?}: use local, memory:, nats://… or redis://…")]
    Address { kind: String },
    /// Correct the address. It is not repeated: it may hold a password.
    #[error("the address of the bus has a wrong {what}")]
    Malformed { what: &'static str },
}
