//! Connects to an endpoint: resolves its name, checks every address, connects to an allowed one, starts TLS.
//! Must hold: the checked address is the one that is dialled, at every dial (no DNS rebinding); every step has a timeout;
//! plain HTTP only where it is allowed.

use super::address::{Forbidden, Policy};
use super::resolve::Resolver;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tower_service::Service;

#[derive(Clone, Copy)]
pub(super) struct DialTimeouts {
    pub connect: Duration,
    /// How long sent bytes may stay unacknowledged. This detects a dropped idle connection early enough to retry on another.
    pub unacknowledged: Duration,
}

/// Addresses of one name that are tried. They share the timeout.
const ADDRESSES: usize = 4;

#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("http:// is not allowed")]
    Plain,
    #[error("the URL has no host")]
    NoHost,
    #[error("cannot look up {name}")]
    Lookup { name: String, source: io::Error },
    #[error("the lookup of {name} timed out")]
    LookupTimeout { name: String, after: Duration },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("{name} has no allowed address")]
    NoAllowedAddress { name: String, source: Forbidden },
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("the connection to {address} timed out")]
    ConnectTimeout { address: SocketAddr, after: Duration },
    #[error("TLS failed")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the TLS handshake timed out")]
    TlsTimeout { after: Duration },
}

/// A socket to a checked address.
#[derive(Clone)]
struct Dialler {
    policy: Arc<Policy>,
    resolver: Arc<dyn Resolver>,
    timeouts: DialTimeouts,
}

impl Dialler {
    async fn dial(&self, uri: &Uri) -> Result<WebhookSocket, DialError> {
        let plain = uri.scheme_str() != Some("https");
        if plain && !self.policy.allow_http {
            return Err(DialError::Plain);
        }
        let host = uri.host().ok_or(DialError::NoHost)?;
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        let until = Instant::now() + self.timeouts.connect;
        let addresses = self.addresses(host, until).await?;
        let mut failure = DialError::NoAddress(host.to_owned());
        for (tried, address) in addresses.iter().enumerate() {
            let address = SocketAddr::new(*address, port);
            // An address that does not answer must leave time for the others.
            let share = until.saturating_duration_since(Instant::now()) / (addresses.len() - tried) as u32;
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => return self.wire(socket, address),
                Ok(Err(source)) => failure = DialError::Connect { address, source },
                Err(_) => failure = DialError::ConnectTimeout { address, after: self.timeouts.connect },
            }
        }
        Err(failure)
    }

    fn wire(&self, socket: TcpStream, address: SocketAddr) -> Result<WebhookSocket, DialError> {
        let failed = |source| DialError::Connect { address, source };
        socket.set_nodelay(true).map_err(failed)?;
        #[cfg(target_os = "linux")]
        socket2::SockRef::from(&socket)
            .set_tcp_user_timeout(Some(self.timeouts.unacknowledged))
            .map_err(failed)?;
        Ok(WebhookSocket { io: TokioIo::new(socket), mark: AnsweredBefore::default() })
    }

    /// The allowed addresses of a host.
    async fn addresses(&self, host: &str, until: Instant) -> Result<Vec<IpAddr>, DialError> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(literal) = bare.parse::<IpAddr>() {
            self.policy.check(literal)?;
            return Ok(vec![literal]);
        }
        let name = || host.to_owned();
        let found = timeout_at(until, self.resolver.look_up(host)).await;
        let after = self.timeouts.connect;
        let found = found.map_err(|_| DialError::LookupTimeout { name: name(), after })?;
        let found = found.map_err(|source| DialError::Lookup { name: name(), source })?;
        let mut allowed = Vec::new();
        let mut forbidden = None;
        for address in found {
            match self.policy.check(address) {
                Ok(()) if allowed.len() < ADDRESSES => allowed.push(address),
                Ok(()) => {}
                Err(why) => forbidden = Some(why),
            }
        }
        match forbidden {
            _ if !allowed.is_empty() => Ok(allowed),
            Some(source) => Err(DialError::NoAllowedAddress { name: name(), source }),
            None => Err(DialError::NoAddress(name())),
        }
    }
}

type Dialling<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl Service<Uri> for Dialler {
    type Response = WebhookSocket;
    type Error = DialError;
    type Future = Dialling<WebhookSocket, DialError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialler = self.clone();
        Box::pin(async move { dialler.dial(&uri).await })
    }
}

/// The connector of the HTTP client: dials, and starts TLS for https.
#[derive(Clone)]
pub(super) struct Connector {
    https: HttpsConnector<Dialler>,
    timeout: Duration,
}

impl Connector {
    pub fn new(
        policy: Policy,
        resolver: Arc<dyn Resolver>,
        tls: ClientConfig,
        timeouts: DialTimeouts,
    ) -> Connector {
        let dialler = Dialler { policy: Arc::new(policy), resolver, timeouts };
        let builder = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls);
        let https = builder.https_or_http().enable_all_versions().wrap_connector(dialler);
        Connector { https, timeout: timeouts.connect }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<WebhookSocket>;
    type Error = DialError;
    type Future = Dialling<MaybeHttpsStream<WebhookSocket>, DialError>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        // The dial has its own timeout; the handshake gets at least as much.
        let after = self.timeout * 2;
        let connecting = timeout(after, self.https.call(uri));
        Box::pin(async move {
            let connected = connecting.await.map_err(|_| DialError::TlsTimeout { after })?;
            connected.map_err(|error| match error.downcast::<DialError>() {
                Ok(dial) => *dial,
                Err(other) => DialError::Tls(other),
            })
        })
    }
}

/// A connected socket. Clones of its mark go with every answer and error of the connection.
pub(super) struct WebhookSocket {
    io: TokioIo<TcpStream>,
    mark: AnsweredBefore,
}

/// Whether this connection has answered before: if so, an end without an answer means that the endpoint closed it as idle.
#[derive(Clone, Default)]
pub(super) struct AnsweredBefore(Arc<AtomicBool>);

impl AnsweredBefore {
    pub fn answered(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn has_answered(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Connection for WebhookSocket {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.mark.clone())
    }
}

impl Read for WebhookSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for WebhookSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }
}
