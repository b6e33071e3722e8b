//! The bus on a NATS server. Core subjects alone: what a bus may lose needs no stream, and no promise rests on one.
//! A cluster of servers works as one; a word longer than `max_payload` travels in parts.
//!
//! # Addresses
//!
//! `nats://[user[:password]@]host[:port][,host[:port]…][?option=value&…]`; a user without a password is a token. TLS is
//! used when the server asks for it, and always with `tls://`. Options, percent-encoded:
//!
//! | option | is |
//! |---|---|
//! | `token` | an access token |
//! | `creds` | the path of a credentials file: a JWT and the seed that signs the server's nonce |
//! | `ca` | the path of a PEM file with the authorities to trust, instead of those that browsers trust |

mod credentials;
mod dialect;
mod facts;

use crate::options::BusOptions;
use crate::remote::{Address, RemoteBus};
use dialect::Nats;
pub use facts::facts;
use std::sync::Arc;
use tavern_store::bus::{BusError, BusReceiver};

const PORT: u16 = 4222;
const OPTIONS: &[&str] = &["token", "creds", "ca"];

pub fn open(url: &str, options: &BusOptions<'_>, inbox: Arc<dyn BusReceiver>) -> Result<RemoteBus, BusError> {
    let address = Address::parse(url, PORT, OPTIONS)?;
    RemoteBus::open(Nats::new(address, options.node)?, options, inbox)
}
