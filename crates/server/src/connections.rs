//! Accepting connections: their number, and the options every socket gets. Authentication comes later.
//! Must hold: no more connections than allowed, in total and from one address; a refused connection is answered and
//! logged; running out of descriptors pauses accepting and closes nothing.

use crate::closing::Closing;
use crate::config::Cidr;
use crate::connection_refusal::{ConnectionLimit, ConnectionRefuser};
use crate::refusal_log::RefusalLog;
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tavern_domain::AddressGroup;
use tokio::net::{TcpListener, TcpStream};

/// How long accepting pauses when descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);
/// A peer that does not acknowledge what is written to it is dead after this long.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);
const KEEPALIVE: Duration = Duration::from_secs(60);
/// Unsent bytes that the kernel holds for a stalled reader; the rest stays in the mailbox as references.
const UNSENT_BYTES: u32 = 128 * 1024;
const BACKLOG: u32 = 4096;

/// How a client is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTransport {
    WebSocket,
    Sse,
    /// A long-poll that waits.
    Poll,
    Redis,
}

impl ClientTransport {
    pub const ALL: [ClientTransport; 4] =
        [ClientTransport::WebSocket, ClientTransport::Sse, ClientTransport::Poll, ClientTransport::Redis];

    pub fn as_str(self) -> &'static str {
        match self {
            ClientTransport::WebSocket => "websocket",
            ClientTransport::Sse => "sse",
            ClientTransport::Poll => "poll",
            ClientTransport::Redis => "redis",
        }
    }
}

/// One client in the count of its transport; released when dropped.
#[derive(Debug)]
pub struct TransportSlot {
    connections: Arc<Connections>,
    transport: ClientTransport,
}

impl Drop for TransportSlot {
    fn drop(&mut self) {
        self.connections.by_transport[self.transport as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct Connections {
    open: AtomicUsize,
    by_transport: [AtomicU64; ClientTransport::ALL.len()],
    max: usize,
    by_address: Mutex<HashMap<AddressGroup, usize>>,
    max_per_address: usize,
    pub accepted: AtomicU64,
    /// Refused because of the limit in total, and because of the limit per address.
    pub refused_total: AtomicU64,
    pub refused_address: AtomicU64,
    pub closing: Arc<Closing>,
}

/// One open connection in the counts; released when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    /// None for a trusted proxy, which serves many clients.
    address: Option<AddressGroup>,
    /// How its client is connected, once that is known.
    transport: Option<ClientTransport>,
}

/// One connection or request in the count of its address; released when dropped.
#[derive(Debug)]
pub struct AddressSlot {
    connections: Arc<Connections>,
    address: AddressGroup,
}

impl Connections {
    pub fn new(max: usize, max_per_address: usize) -> Arc<Connections> {
        Arc::new(Connections {
            open: AtomicUsize::new(0),
            by_transport: Default::default(),
            max,
            by_address: Mutex::default(),
            max_per_address,
            accepted: AtomicU64::new(0),
            refused_total: AtomicU64::new(0),
            refused_address: AtomicU64::new(0),
            closing: Arc::default(),
        })
    }

    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Clients that are connected in this way.
    pub fn open_by(&self, transport: ClientTransport) -> u64 {
        self.by_transport[transport as usize].load(Ordering::Relaxed)
    }

    /// Counts a client for its transport.
    pub fn count_transport(self: &Arc<Connections>, transport: ClientTransport) -> TransportSlot {
        self.by_transport[transport as usize].fetch_add(1, Ordering::Relaxed);
        TransportSlot { connections: self.clone(), transport }
    }

    /// Connections that were refused.
    pub fn refused(&self) -> u64 {
        self.refused_total.load(Ordering::Relaxed) + self.refused_address.load(Ordering::Relaxed)
    }

    /// Takes a slot for a connection, or returns the limit that it would exceed.
    pub fn admit(
        self: &Arc<Connections>,
        address: Option<IpAddr>,
    ) -> Result<ConnectionSlot, ConnectionLimit> {
        if self.open.fetch_add(1, Ordering::AcqRel) >= self.max {
            self.open.fetch_sub(1, Ordering::AcqRel);
            self.refused_total.fetch_add(1, Ordering::Relaxed);
            return Err(ConnectionLimit::Total);
        }
        let slot = ConnectionSlot { connections: self.clone(), address: None, transport: None };
        if let Some(address) = address {
            return slot.count_for(address).ok_or(ConnectionLimit::PerAddress);
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Counts something for an address; None when that address has too many.
    pub fn count_address(self: &Arc<Connections>, address: IpAddr) -> Option<AddressSlot> {
        let address = self.add_to_address(address)?;
        Some(AddressSlot { connections: self.clone(), address })
    }

    fn add_to_address(&self, address: IpAddr) -> Option<AddressGroup> {
        let address = AddressGroup::of(address);
        let mut addresses = self.addresses();
        let held = addresses.entry(address).or_default();
        if *held >= self.max_per_address {
            self.refused_address.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        *held += 1;
        Some(address)
    }

    fn remove_from_address(&self, address: AddressGroup) {
        let mut addresses = self.addresses();
        if let Some(held) = addresses.get_mut(&address) {
            *held -= 1;
            if *held == 0 {
                addresses.remove(&address);
            }
        }
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, HashMap<AddressGroup, usize>> {
        self.by_address.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// Counts the connection for its transport too.
    pub fn count_transport(&mut self, transport: ClientTransport) {
        self.connections.by_transport[transport as usize].fetch_add(1, Ordering::Relaxed);
        let former = self.transport.replace(transport);
        debug_assert_eq!(former, None);
    }

    /// Counts the connection for an address; None when that address has too many.
    pub fn count_for(mut self, address: IpAddr) -> Option<ConnectionSlot> {
        self.address = Some(self.connections.add_to_address(address)?);
        self.connections.accepted.fetch_add(1, Ordering::Relaxed);
        Some(self)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::AcqRel);
        if let Some(address) = self.address {
            self.connections.remove_from_address(address);
        }
        if let Some(transport) = self.transport {
            self.connections.by_transport[transport as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        self.connections.remove_from_address(self.address);
    }
}

pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG as i32)?;
    TcpListener::from_std(socket.into())
}

/// Accepts until the server is closing; gives each connection with its slot to `serve`. Connections over a limit get the
/// answer of `refuser`.
pub async fn accept(
    listener: TcpListener,
    connections: Arc<Connections>,
    proxies: Vec<Cidr>,
    mut refuser: ConnectionRefuser,
    serve: impl Fn(TcpStream, SocketAddr, ConnectionSlot),
) {
    let (mut failures, closing) = (RefusalLog::default(), connections.closing.clone());
    let mut closing = pin!(closing.begun());
    loop {
        let accepted = tokio::select! {
            // First those that the kernel has accepted: they would be reset.
            biased;
            accepted = listener.accept() => accepted,
            () = closing.as_mut() => return,
        };
        match accepted {
            Ok((socket, peer)) => {
                let proxied = proxies.iter().any(|proxy| proxy.contains(peer.ip()));
                let address = (!proxied).then_some(peer.ip());
                match connections.admit(address) {
                    Ok(slot) => {
                        prepare(&socket);
                        serve(socket, peer, slot);
                    }
                    Err(limit) => refuser.refuse(socket, peer, limit),
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => {
                if let Some(failed) = failures.count(1, Instant::now()) {
                    tracing::warn!(%error, failed, pause_ms = PAUSE.as_millis() as u64, "accept failed; pausing");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted
    )
}

/// A shard writes once per turn, so no Nagle delay; dead peers are noticed by the kernel. A socket that refuses an
/// option works without it.
fn prepare(socket: &TcpStream) {
    let socket = SockRef::from(socket);
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
    let _ = socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_total_and_by_address() {
        let connections = Connections::new(3, 2);
        let ann: IpAddr = "127.0.0.1".parse().unwrap();
        let bob: IpAddr = "127.0.0.2".parse().unwrap();
        let first = connections.admit(Some(ann)).unwrap();
        let _second = connections.admit(Some(ann)).unwrap();
        assert_eq!(connections.admit(Some(ann)).unwrap_err(), ConnectionLimit::PerAddress);
        let _third = connections.admit(Some(bob)).unwrap();
        assert_eq!(connections.admit(Some(bob)).unwrap_err(), ConnectionLimit::Total);
        assert_eq!(connections.admit(None).unwrap_err(), ConnectionLimit::Total);
        drop(first);
        assert_eq!(connections.open(), 2);
        assert!(connections.admit(Some(ann)).is_ok());
        assert_eq!(connections.refused_address.load(Ordering::Relaxed), 1);
        assert_eq!(connections.refused_total.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn addresses_of_one_64_count_together() {
        let connections = Connections::new(10, 2);
        let slots: Vec<_> = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
            .map(|text| connections.admit(Some(text.parse().unwrap())).ok())
            .into();
        assert_eq!(slots.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, true]);
        drop(slots);
        assert!(connections.addresses().is_empty());
    }
}
