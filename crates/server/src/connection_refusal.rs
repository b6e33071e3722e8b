//! Connections over a limit: each gets an answer in its protocol and is closed; the log gets one line in ten seconds.
//! Must hold: refused connections cost bounded time and memory, whatever they send and however many there are.

use crate::refusal_log::RefusalLog;
use crate::tls::TlsReloader;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// How long a refused connection may stay, TLS handshake included. What it sends does not extend this.
const DEADLINE: Duration = Duration::from_secs(2);
/// Refused connections that are answered at the same time; more are closed without an answer.
const ANSWERED_AT_ONCE: usize = 64;
/// How long a client may take to send its request before it is answered anyway.
const REQUEST_WAIT: Duration = Duration::from_secs(1);
/// The end of an HTTP request head.
const HEAD_END: &[u8] = b"\r\n\r\n";
/// Input that is read and discarded, before and after the answer.
const DISCARDED_BYTES: usize = 64 * 1024;

/// The limit that a connection would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimit {
    Total,
    PerAddress,
}

impl ConnectionLimit {
    /// Its configuration key.
    pub fn key(self) -> &'static str {
        match self {
            ConnectionLimit::Total => "limits.connections",
            ConnectionLimit::PerAddress => "limits.connections_per_address",
        }
    }
}

/// Who sends first on a connection of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSender {
    /// HTTP: some clients fail on an answer that arrives before they have sent their request.
    Client,
    /// Redis sends this error at once.
    Server,
}

/// Answers the refused connections of one port.
pub struct ConnectionRefuser {
    /// The answer in the protocol of the port.
    answer: fn(ConnectionLimit) -> Vec<u8>,
    first: FirstSender,
    tls: Option<Arc<TlsReloader>>,
    slots: Arc<Semaphore>,
    log: RefusalLog,
}

impl ConnectionRefuser {
    pub fn new(
        first: FirstSender,
        answer: fn(ConnectionLimit) -> Vec<u8>,
        tls: Option<Arc<TlsReloader>>,
    ) -> ConnectionRefuser {
        let slots = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
        ConnectionRefuser { answer, first, tls, slots, log: RefusalLog::default() }
    }

    pub fn refuse(&mut self, socket: TcpStream, peer: SocketAddr, limit: ConnectionLimit) {
        if let Some(refused) = self.log.count(1, Instant::now()) {
            let (address, limit) = (peer.ip(), limit.key());
            tracing::warn!(%address, limit, refused, "connection refused: limit reached");
        }
        let Ok(slot) = self.slots.clone().try_acquire_owned() else { return };
        let (answer, first) = ((self.answer)(limit), self.first);
        let tls = self.tls.as_ref().map(|tls| tls.acceptor());
        tokio::spawn(async move {
            let exchange = async {
                match tls {
                    None => answer_on(socket, first, &answer).await,
                    Some(tls) => answer_on(tls.accept(socket).await?, first, &answer).await,
                }
            };
            let _ = tokio::time::timeout(DEADLINE, exchange).await;
            drop(slot);
        });
    }
}

/// Writes the answer, then discards input: closing with unread input resets the connection, and the peer could lose the
/// answer.
async fn answer_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    first: FirstSender,
    answer: &[u8],
) -> io::Result<()> {
    if first == FirstSender::Client {
        // An answer without a request is better than none.
        let _ = tokio::time::timeout(REQUEST_WAIT, discard(&mut stream, Some(HEAD_END))).await;
    }
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    discard(&mut stream, None).await
}

/// Reads until the peer closes, or until `end` was read.
async fn discard(stream: &mut (impl AsyncRead + Unpin), end: Option<&[u8]>) -> io::Result<()> {
    let (mut buffer, mut tail, mut discarded) = ([0; 1024], Vec::new(), 0);
    while discarded < DISCARDED_BYTES {
        let bytes = stream.read(&mut buffer).await?;
        if bytes == 0 {
            break;
        }
        discarded += bytes;
        let Some(end) = end else { continue };
        tail.extend_from_slice(&buffer[..bytes]);
        if tail.windows(end.len()).any(|window| window == end) {
            break;
        }
        // The end may be split between two reads.
        tail.drain(..tail.len().saturating_sub(end.len() - 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client of a refused connection receives after it has sent these parts.
    async fn refused(first: FirstSender, parts: &[&[u8]]) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        let mut refuser = ConnectionRefuser::new(first, |limit| limit.key().as_bytes().to_vec(), None);
        refuser.refuse(socket, peer, ConnectionLimit::PerAddress);
        for part in parts {
            let early = tokio::time::timeout(Duration::from_millis(20), client.readable()).await;
            assert!(first == FirstSender::Server || early.is_err(), "answered before the request");
            client.write_all(part).await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn answer_arrives_although_the_peer_has_sent_input() {
        let answer = refused(FirstSender::Server, &[&[b'x'; 4096]]).await;
        assert_eq!(answer, "limits.connections_per_address");
    }

    #[tokio::test]
    async fn http_answer_waits_for_the_request() {
        let answer = refused(FirstSender::Client, &[b"GET / HTTP/1.1\r\nHost: x\r", b"\n\r\n"]).await;
        assert_eq!(answer, "limits.connections_per_address");
    }
}
