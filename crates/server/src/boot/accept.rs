//! The two acceptors: each new connection is passed to HTTP or directly to a shard.

use crate::auth;
use crate::clock::NodeClock;
use crate::config::ServerMode;
use crate::connection_refusal::{ConnectionLimit, ConnectionRefuser, FirstSender};
use crate::connections::{self, ConnectionSlot};
use crate::http::{self, HttpApi, HttpServer, ListenerSide};
use crate::resp::{RedisPeer, RespServer};
use crate::shard::Shards;
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::{NewSocket, ShardInput};
use crate::tls::TlsReloader;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::{Identity, Scopes, Time};
use tavern_hub::LinkId;
use tavern_store::Clock;
use tavern_wire::error::{Code, Refusal};
use tokio::net::{TcpListener, TcpStream};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

pub struct HttpAcceptor {
    pub api: Arc<HttpApi>,
    pub side: ListenerSide,
    pub tls: Option<Arc<TlsReloader>>,
}

impl HttpAcceptor {
    pub async fn run(self, listener: TcpListener) {
        let counts = self.api.connections.clone();
        let proxies = self.api.config.trusted_proxies.clone();
        let refuser = ConnectionRefuser::new(FirstSender::Client, http_refusal, self.tls.clone());
        let server = HttpServer { api: self.api, side: self.side, tls: self.tls };
        connections::accept(listener, counts, proxies, refuser, |socket, peer, slot| {
            tokio::spawn(http::serve(server.clone(), socket, peer, slot));
        })
        .await;
    }
}

pub struct RedisAcceptor {
    pub resp: Arc<RespServer>,
    pub shards: Shards,
    pub clock: Arc<NodeClock>,
    pub tls: Option<Arc<TlsReloader>>,
}

impl RedisAcceptor {
    pub async fn run(self: Arc<RedisAcceptor>, listener: TcpListener) {
        let counts = self.resp.connections.clone();
        let proxies = self.resp.config.trusted_proxies.clone();
        let refuser = ConnectionRefuser::new(FirstSender::Server, redis_refusal, self.tls.clone());
        connections::accept(listener, counts, proxies, refuser, |socket, peer, slot| match &self.tls {
            None => self.hand_over(socket, None, peer, slot),
            Some(tls) => {
                let (acceptor, redis) = (tls.acceptor(), self.clone());
                tokio::spawn(async move {
                    let handshake = acceptor.accept(socket);
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await {
                        let (socket, tls) = stream.into_inner();
                        redis.hand_over(socket, Some(Box::new(tls)), peer, slot);
                    }
                });
            }
        })
        .await;
    }

    /// Passes a connection to a shard. In dev mode it has every right; otherwise it must authenticate.
    fn hand_over(
        &self,
        socket: TcpStream,
        tls: Option<Box<rustls::ServerConnection>>,
        peer: SocketAddr,
        slot: ConnectionSlot,
    ) {
        let local = socket.local_addr().unwrap_or(peer);
        let Ok(socket) = socket.into_std() else { return };
        let socket = mio::net::TcpStream::from_std(socket);
        let shard = self.shards.next();
        let info = self.resp.clients.register(shard, LinkId(0), peer, local, self.clock.now());
        let client = info.id;
        let identity = (self.resp.config.mode == ServerMode::Dev).then(|| Identity {
            user: None,
            name: None,
            rights: auth::all_rights(),
            expires: Time::NEVER,
            issued_s: 0,
            unlimited: true,
            scopes: Scopes::ALL,
            key: None,
        });
        let protocol = SocketProtocol::Redis(Box::new(RedisPeer::new(LinkId(0), identity, info)));
        let conn = Conn::new(socket, tls, protocol, slot);
        let arrival = NewSocket { conn, input: Vec::new(), commands: Vec::new(), hello: None };
        if self.shards.put(shard, ShardInput::Arrival(Box::new(arrival))).is_err() {
            self.resp.clients.leave(client);
            tracing::warn!(shard, "connection refused: shard queue full");
        }
    }
}

/// How long an HTTP client is asked to wait after a refused connection.
const RETRY_MS: u64 = 5_000;

/// A complete HTTP response, for a connection whose request is not read.
fn http_refusal(limit: ConnectionLimit) -> Vec<u8> {
    let (reason, code, message) = match limit {
        ConnectionLimit::Total => {
            ("Service Unavailable", Code::Unavailable, "the server has reached its limit of connections")
        }
        ConnectionLimit::PerAddress => {
            ("Too Many Requests", Code::RateLimited, "too many connections from this address")
        }
    };
    let mut body = Vec::new();
    tavern_wire::json::reply_error(&mut body, None, &Refusal::new(code, message).retry_after(RETRY_MS));
    let head = format!(
        "HTTP/1.1 {} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nretry-after: {}\r\nconnection: close\r\n\r\n",
        code.http_status(),
        body.len(),
        RETRY_MS / 1000,
    );
    [head.into_bytes(), body].concat()
}

/// The error that Redis itself sends.
fn redis_refusal(_: ConnectionLimit) -> Vec<u8> {
    b"-ERR max number of clients reached\r\n".to_vec()
}
