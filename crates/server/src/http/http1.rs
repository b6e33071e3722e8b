//! HTTP/1.1: hyper serves the requests of a connection until one moves the socket to a shard, as a WebSocket or with a
//! poll.
//! Must hold: a socket moves only when hyper has nothing left to write to it, and with everything that was read from it.

use super::poll;
use super::server::{HttpConnection, HttpTlsStream, respond};
use bytes::{Buf, Bytes};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Request heads larger than this are refused; hyper refuses more than 100 headers by itself.
pub(super) const HEAD_BYTES: usize = 16 * 1024;

/// A plain connection: first the bytes that a shard has read from it, then those of the socket.
pub struct PlainIo {
    socket: TcpStream,
    read_before: Bytes,
    /// The socket has not accepted the last bytes: hyper still has them.
    is_blocked: Arc<AtomicBool>,
}

impl PlainIo {
    pub fn new(socket: TcpStream, read_before: Vec<u8>) -> PlainIo {
        PlainIo { socket, read_before: read_before.into(), is_blocked: Arc::default() }
    }

    /// The socket, and everything that was read from it but not used.
    pub fn into_socket(self, read_by_hyper: &[u8]) -> io::Result<(mio::net::TcpStream, Vec<u8>)> {
        let (socket, input) = self.into_parts(read_by_hyper);
        Ok((mio::net::TcpStream::from_std(socket.into_std()?), input))
    }

    /// The same for one that stays where it is.
    pub fn into_parts(self, read_by_hyper: &[u8]) -> (TcpStream, Vec<u8>) {
        let input = [read_by_hyper, &self.read_before[..]].concat();
        (self.socket, input)
    }
}

impl AsyncRead for PlainIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read_before.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let count = self.read_before.len().min(buffer.remaining());
        buffer.put_slice(&self.read_before[..count]);
        self.read_before.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PlainIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.is_blocked.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.is_blocked.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

fn builder(connection: &HttpConnection) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(connection.api.config.limits.http_header_ms))
        .max_buf_size(HEAD_BYTES)
        .half_close(false);
    builder
}

/// Serves a plain connection until it ends or a poll takes its socket to a shard.
pub async fn serve_plain(io: PlainIo, connection: Arc<HttpConnection>) {
    let (served, is_blocked) = (connection.clone(), io.is_blocked.clone());
    let service = service_fn(move |request| respond(served.clone(), request));
    let mut serving = builder(&connection).serve_connection(TokioIo::new(io), service).with_upgrades();
    let watched = connection.clone();
    let mut closing = pin!(watched.must_close());
    let mut is_closing = false;
    loop {
        let offered = poll_fn(|context| match Pin::new(&mut serving).poll(context) {
            Poll::Ready(ended) => {
                trace(ended);
                Poll::Ready(None)
            }
            Poll::Pending => match connection.take_offer() {
                Some(offer) => Poll::Ready(Some(offer)),
                None => Poll::Pending,
            },
        });
        let offered = tokio::select! {
            // A request that has arrived is read before its connection is closed.
            biased;
            offered = offered => offered,
            () = connection.replies.must_end() => None,
            () = closing.as_mut(), if !is_closing => {
                is_closing = true;
                Pin::new(&mut serving).graceful_shutdown();
                continue;
            }
        };
        let Some(offer) = offered else { return };
        if !is_blocked.load(Ordering::Relaxed) {
            let Some(parts) = serving.into_parts() else { return };
            return poll::hand_over(connection, parts.io.into_inner(), &parts.read_buf, offer);
        }
        // The answer to an earlier request is not written.
        poll::submit(&connection.api, offer);
    }
}

/// Serves a TLS connection.
pub async fn serve_tls(socket: HttpTlsStream, connection: Arc<HttpConnection>) {
    let served = connection.clone();
    let service = service_fn(move |request| respond(served.clone(), request));
    let mut serving =
        pin!(builder(&connection).serve_connection(TokioIo::new(socket), service).with_upgrades());
    tokio::select! {
        biased;
        ended = serving.as_mut() => return trace(ended),
        () = connection.replies.must_end() => return,
        () = connection.must_close() => {}
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        ended = serving => trace(ended),
        () = connection.replies.must_end() => {}
    }
}

fn trace(ended: Result<(), hyper::Error>) {
    if let Err(error) = ended {
        tracing::trace!(%error, "HTTP connection failed");
    }
}
