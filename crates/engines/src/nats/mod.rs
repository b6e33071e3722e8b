//! The bus on a NATS server. Core subjects only: a bus may lose messages, so it needs no stream. A cluster of servers works
//! like one server; a message longer than `max_payload` is sent in parts.
//!
//! # Addresses
//!
//! `nats://[user[:password]@]host[:port][,host[:port]…][?option=value&…]`; a user without a password is a token. TLS is
//! used when the server asks for it, and always with `tls://`. Options, percent-encoded:
//!
//! | option | means |
//! |---|---|
//! | `token` | an access token |
//! | `creds` | the path of a credentials file: a JWT and the seed that signs the server's nonce |
//! | `ca` | the path of a PEM file with the authorities to trust, instead of the public ones |

mod credentials;
mod facts;
mod protocol;

use crate::options::BusOptions;
use crate::remote::{RemoteBus, SocketLink};
pub use facts::facts;
use protocol::Nats;
use std::sync::Arc;
use tavern_store::{BusError, BusReceiver};

pub fn open(
    url: &str,
    options: &BusOptions<'_>,
    receiver: Arc<dyn BusReceiver>,
) -> Result<RemoteBus, BusError> {
    RemoteBus::open(SocketLink::new(Nats::new(protocol::parse(url)?, options.node)?), options, receiver)
}
