//! The contract of a bus: it delivers messages between nodes. It may lose, repeat and delay messages; it reports the
//! losses it knows of. It stores nothing and knows no channel, session or presence.
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
    /// Never blocks. There is no answer: a loss shows as a gap in `n`.
    fn publish(&self, batch: Vec<BusPacket>);

    /// True: every message published from now on will arrive. False: the receiver gets `confirmed` when that is so.
    fn subscribe(&self, interests: Vec<Interest>, ticket: Ticket) -> bool;

    /// Messages already in flight may still arrive.
    fn unsubscribe(&self, interests: Vec<Interest>);

    /// True only if it is certain that no other node or process listens. Called for every message, so it is cheap.
    fn is_alone(&self) -> bool {
        false
    }

    /// Every message arrives without any subscription. When that ends, this returns false, and then
    /// `BusReceiver::interests` is called.
    fn receives_everything(&self) -> bool {
        false
    }

    /// Programs that are not nodes can listen on its server: they get a message of `Writer::outsider` unchanged.
    fn reaches_services(&self) -> bool {
        false
    }

    /// Backpressure: so much is queued that publishers should not be read for a while.
    fn is_full(&self) -> bool {
        false
    }

    /// Whether messages can be sent now, as far as is known.
    fn is_connected(&self) -> bool {
        true
    }

    fn name(&self) -> &'static str;

    /// For the metrics page.
    fn counts(&self) -> BusCounts {
        BusCounts::default()
    }

    /// Nothing is delivered after this. Must not be called by the receiver.
    fn stop(&self);
}

/// Given to a bus when it is opened. Must be quick.
pub trait BusReceiver: Send + Sync {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>);

    /// May block while the node is overloaded: the bus then buffers what follows, as far as it can.
    fn messages(&self, messages: Vec<BusPacket>);

    fn lost(&self, lost: BusLoss);

    /// Everything that the node listens to now.
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
    /// Grows with the messages of one shard of this epoch of the node, on all subjects; the shard is in the top byte.
    /// A session that migrates uses it to skip messages it already has. A node that listens only to some subjects
    /// sees gaps.
    pub n: u64,
    /// The header of the payload; opaque to the engine.
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

/// Counters of a bus since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusCounts {
    /// Messages that other nodes may have received.
    pub sent: u64,
    /// Messages from other nodes.
    pub received: u64,
    /// Messages that could not be sent.
    pub failed: u64,
    /// How often messages of other nodes were lost on the way here.
    pub losses: u64,
}

/// Why a bus cannot be opened or used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BusError {
    #[error("the bus is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    #[error("no bus of kind {kind:?}: use local, memory:, nats://…, redis://… or postgres://…")]
    Address { kind: String },
    /// Correct the address. The message does not repeat it: it may contain a password.
    #[error("the address of the bus is invalid: wrong {what}")]
    Malformed { what: &'static str },
}
