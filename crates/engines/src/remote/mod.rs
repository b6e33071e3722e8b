//! What the buses on a server share: the queue in front of the socket, the interests of the node, reconnecting, and
//! how messages are numbered and split. An engine adds its `BusProtocol`: how to log in, and how to write and read
//! the few commands that are needed here. A server that speaks no such protocol has a `BusLink` of its own.
//!
//! One thread runs the socket, another calls the receiver; between them is a bounded queue. A node that is too slow lets
//! the queue fill, then the socket, and the server closes the connection: the loss is reported as such.
//!
//! All subscriptions of a node share one connection and one reader, because messages of one shard of a node must arrive
//! in order on all subjects. That is why the client libraries are not used: those with a queue for each subscription
//! lose that order, those with an unbounded queue hide from the server that the node is too slow.

mod address;
mod bus;
mod connection;
mod fragment;
mod interests;
mod line;
mod outbox;
mod protocol;
mod reader;
mod shared;
mod socket;
mod writer;

pub(crate) use address::{Host, ServerAddress};
pub(crate) use bus::{RemoteBus, ask};
pub(crate) use connection::{BusLink, PING_EVERY, SILENCE, SocketLink, random, stopped};
pub(crate) use line::{broken, line};
pub(crate) use outbox::OutboxCommand;
pub(crate) use protocol::{BusFrame, BusProtocol};
pub(crate) use reader::BusDelivery;
pub(crate) use shared::RemoteShared;
pub(crate) use socket::{BusSocket, BusTls, dial, read_more};
