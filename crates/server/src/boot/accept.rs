//! The two acceptors: each new connection goes to HTTP or straight to a shard.

use crate::auth;
use crate::config::Mode;
use crate::door::{self, Seat};
use crate::http::{self, Edge};
use crate::resp::Peer;
use crate::services::Services;
use crate::shard::conn::{Conn, Speaks};
use crate::shard::mail::{Arrival, Mail};
use crate::tls::Reloading;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::{Identity, Scopes, Time};
use tavern_hub::LinkId;
use tokio::net::{TcpListener, TcpStream};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

pub async fn accept_http(services: Arc<Services>, tls: Option<Arc<Reloading>>, listener: TcpListener) {
    let counts = services.doors.clone();
    let proxies = services.config.trusted_proxies.clone();
    let edge = Edge { services, tls };
    door::accept(listener, counts, proxies, |socket, peer, seat| {
        tokio::spawn(http::serve(edge.clone(), socket, peer, seat));
    })
    .await;
}

pub async fn accept_redis(services: Arc<Services>, tls: Option<Arc<Reloading>>, listener: TcpListener) {
    let counts = services.doors.clone();
    door::accept(listener, counts, Vec::new(), |socket, peer, seat| match &tls {
        None => hand_to_shard(&services, socket, None, peer, seat),
        Some(tls) => {
            let (services, acceptor) = (services.clone(), tls.acceptor());
            tokio::spawn(async move {
                let handshake = acceptor.accept(socket);
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await {
                    let (socket, tls) = stream.into_inner();
                    hand_to_shard(&services, socket, Some(Box::new(tls)), peer, seat);
                }
            });
        }
    })
    .await;
}

/// A Redis connection goes straight to a shard. In dev mode it may do everything; else it has to log in.
fn hand_to_shard(
    services: &Services,
    socket: TcpStream,
    tls: Option<Box<rustls::ServerConnection>>,
    peer: SocketAddr,
    seat: Seat,
) {
    let local = socket.local_addr().unwrap_or(peer);
    let Ok(socket) = socket.into_std() else { return };
    let socket = mio::net::TcpStream::from_std(socket);
    let shard = services.next_shard();
    let info = services.clients.register(shard, LinkId(0), peer, local, services.now());
    let client = info.id;
    let identity = (services.config.mode == Mode::Dev).then(|| Identity {
        user: None,
        name: None,
        rights: auth::all_rights(),
        expires: Time::NEVER,
        unlimited: true,
        scopes: Scopes::ALL,
        key: None,
    });
    let speaks = Speaks::Redis(Box::new(Peer::new(LinkId(0), identity, info)));
    let conn = Conn::new(socket, tls, speaks, seat);
    let arrival = Arrival { conn, input: Vec::new(), commands: Vec::new(), hello: None };
    if services.inboxes[shard].put(Mail::Arrival(Box::new(arrival))).is_err() {
        services.clients.leave(client);
        tracing::warn!(shard, "connection refused: shard inbox full");
    }
}
