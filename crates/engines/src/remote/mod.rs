//! What the buses on a server have in common: the queue in front of the socket, the book of what is listened to, the
//! connection that comes back, the envelope around each word. An engine adds its `Dialect`: how to log in, and how to
//! say and read the few things that are said here.
//!
//! One thread runs the socket, another hands over to the inbox; between them stands a bounded queue. A node that is too
//! slow lets the queue fill, then the socket, and the server closes the connection: the loss is heard as such.
//!
//! All subscriptions of a node share one connection and one reader, because words of one shard of a node must arrive
//! in order on all subjects. That is why the client libraries are not used: those with a queue for each subscription
//! lose that order, those with an unbounded queue hide from the server that the node is too slow.

mod address;
mod book;
mod bus;
mod desk;
mod dialect;
mod ear;
mod envelope;
mod link;
mod pen;
mod socket;

pub(crate) use address::{Address, Host};
pub(crate) use bus::{RemoteBus, look};
pub(crate) use dialect::{Dialect, Frame, broken, line};
pub(crate) use socket::{Socket, Tls, dial, read_more};
