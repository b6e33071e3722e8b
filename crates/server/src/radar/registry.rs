//! All Engine.IO connections of this node, by their ids.
//! Must hold: an id is answered only to the address that opened it: others learn it from presence events.

use super::connection::{EngineConnection, EngineInput};
use super::hub_sessions::HubSessions;
use super::session::RadarSession;
use crate::byte_budget::ReservedBytes;
use crate::connections::ConnectionSlot;
use crate::gateway::{GatewaySocket, GatewaySources};
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::random::random_bits;
use crate::supervisor::panics;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tavern_domain::{AddressGroup, ClientId};
use tavern_wire::engineio::{Handshake, write_open};
use tokio::sync::mpsc;

/// Requests and sockets that wait for a connection.
const INPUTS: usize = 8;
/// Messages between a connection and its session, each way.
const MESSAGES: usize = 16;
/// What a connection may hold before its first accepted request: its message, its task and its queues.
pub const UNAUTHENTICATED_BYTES: usize = 16 * 1024;

pub struct RadarServer {
    pub sources: GatewaySources,
    connections: Mutex<HashMap<ClientId, EngineHandle>>,
}

/// How requests reach a connection.
#[derive(Clone)]
pub struct EngineHandle {
    pub inputs: mpsc::Sender<EngineInput>,
    pub address: Option<AddressGroup>,
    pub flags: Arc<EngineFlags>,
}

/// What a connection, its session and its requests share.
#[derive(Default)]
pub struct EngineFlags {
    /// A request was accepted.
    pub authenticated: AtomicBool,
    /// It has left polling for a WebSocket.
    pub upgraded: AtomicBool,
}

/// A place in the registry; given back when it is dropped.
struct Registration {
    server: Arc<RadarServer>,
    sid: ClientId,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.server.connections().remove(&self.sid);
    }
}

impl RadarServer {
    pub fn new(sources: GatewaySources) -> Arc<RadarServer> {
        Arc::new(RadarServer { sources, connections: Mutex::default() })
    }

    /// The connection with an id, for a request from this address.
    pub fn find(&self, sid: &str, address: Option<AddressGroup>) -> Option<EngineHandle> {
        let sid = ClientId::parse(sid)?;
        self.connections().get(&sid).filter(|handle| handle.address == address).cloned()
    }

    /// Opens a connection on polls, and returns its `open` packet; with a socket, the packet is written there. None: too much
    /// memory is held by connections that have not logged in.
    pub fn open(
        self: &Arc<RadarServer>,
        address: Option<AddressGroup>,
        slot: ConnectionSlot,
        socket: Option<GatewaySocket>,
    ) -> Option<Vec<u8>> {
        let reserved: ReservedBytes = self.sources.unauthenticated.reserve(UNAUTHENTICATED_BYTES)?;
        let sid = ClientId::from_random(random_bits());
        let flags = Arc::new(EngineFlags::default());
        flags.upgraded.store(socket.is_some(), Ordering::Release);
        let (inputs, received) = mpsc::channel(INPUTS);
        let (requests, requested) = mpsc::channel(MESSAGES);
        let (frames, framed) = mpsc::channel(MESSAGES);
        let handle = EngineHandle { inputs, address, flags: flags.clone() };
        self.connections().insert(sid, handle);
        let registration = Registration { server: self.clone(), sid };
        let hub = HubSessions::new(self.clone(), sid, address, frames);
        let session = RadarSession::new(hub, flags.clone());
        tokio::spawn(panics::contain(session.run(requested)));
        let open = self.open_packet(sid, socket.is_none());
        let config = &self.sources.config;
        let limits = (config.sessions.heartbeat_ms, config.limits.json_frame_bytes);
        let mut connection = EngineConnection::new(limits, received, framed, requests, flags, reserved);
        let answer = match socket {
            None => open,
            Some(socket) => {
                connection.begin_on(socket, open);
                Vec::new()
            }
        };
        tokio::spawn(async move {
            let _ = panics::contain(connection.run()).await;
            drop((registration, slot));
        });
        Some(answer)
    }

    fn open_packet(&self, sid: ClientId, upgrades: bool) -> Vec<u8> {
        let config = &self.sources.config;
        let heartbeat_ms = config.sessions.heartbeat_ms;
        let handshake = Handshake {
            sid: &sid.to_string(),
            upgrades,
            ping_interval_ms: heartbeat_ms,
            ping_timeout_ms: heartbeat_ms,
            max_payload: config.limits.json_frame_bytes,
        };
        let mut packet = Vec::new();
        write_open(&mut packet, &handshake);
        packet
    }

    fn connections(&self) -> MutexGuard<'_, HashMap<ClientId, EngineHandle>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricSource for RadarServer {
    fn gather(&self, all: &mut Vec<Series>) {
        let help = "Open connections of Radar clients";
        all.push(Series::one(
            "tavern_radar_connections",
            MetricKind::Gauge,
            help,
            self.connections().len() as u64,
        ));
    }
}
