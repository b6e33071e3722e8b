//! Connections over a limit: each gets an answer in its protocol and is closed; the log gets one line in ten seconds.
//! Must hold: refused connections cost bounded time and memory, whatever they send and however many there are.

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
/// Input that is read and discarded after the answer.
const DISCARDED_BYTES: usize = 64 * 1024;
const LOG_INTERVAL: Duration = Duration::from_secs(10);

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

/// Answers the refused connections of one port.
pub struct ConnectionRefuser {
    /// The answer in the protocol of the port.
    answer: fn(ConnectionLimit) -> Vec<u8>,
    tls: Option<Arc<TlsReloader>>,
    slots: Arc<Semaphore>,
    log: RefusalLog,
}

impl ConnectionRefuser {
    pub fn new(answer: fn(ConnectionLimit) -> Vec<u8>, tls: Option<Arc<TlsReloader>>) -> ConnectionRefuser {
        let slots = Arc::new(Semaphore::new(ANSWERED_AT_ONCE));
        ConnectionRefuser { answer, tls, slots, log: RefusalLog::default() }
    }

    pub fn refuse(&mut self, socket: TcpStream, peer: SocketAddr, limit: ConnectionLimit) {
        if let Some(refused) = self.log.count(Instant::now()) {
            let (address, limit) = (peer.ip(), limit.key());
            tracing::warn!(%address, limit, refused, "connection refused: limit reached");
        }
        let Ok(slot) = self.slots.clone().try_acquire_owned() else { return };
        let (answer, tls) = ((self.answer)(limit), self.tls.as_ref().map(|tls| tls.acceptor()));
        tokio::spawn(async move {
            let exchange = async {
                match tls {
                    None => write_answer(socket, &answer).await,
                    Some(tls) => write_answer(tls.accept(socket).await?, &answer).await,
                }
            };
            let _ = tokio::time::timeout(DEADLINE, exchange).await;
            drop(slot);
        });
    }
}

/// Writes the answer, then discards input: closing with unread input resets the connection, and the peer could lose the
/// answer.
async fn write_answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> io::Result<()> {
    stream.write_all(answer).await?;
    stream.shutdown().await?;
    let (mut buffer, mut discarded) = ([0; 1024], 0);
    while discarded < DISCARDED_BYTES {
        match stream.read(&mut buffer).await? {
            0 => break,
            bytes => discarded += bytes,
        }
    }
    Ok(())
}

/// Decides which refusals are logged.
#[derive(Default)]
struct RefusalLog {
    logged_at: Option<Instant>,
    refused: u64,
}

impl RefusalLog {
    /// Counts a refusal. Returns the number since the last line when it is time for the next one.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.refused += 1;
        if self.logged_at.is_some_and(|at| now.duration_since(at) < LOG_INTERVAL) {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_once_per_interval_with_their_number() {
        let (mut log, start) = (RefusalLog::default(), Instant::now());
        assert_eq!(log.count(start), Some(1));
        assert_eq!(log.count(start + Duration::from_secs(1)), None);
        assert_eq!(log.count(start + Duration::from_secs(9)), None);
        assert_eq!(log.count(start + LOG_INTERVAL), Some(3));
    }

    #[tokio::test]
    async fn answer_arrives_although_the_peer_has_sent_input() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(&[b'x'; 4096]).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        let mut refuser = ConnectionRefuser::new(|limit| limit.key().as_bytes().to_vec(), None);
        refuser.refuse(socket, peer, ConnectionLimit::PerAddress);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "limits.connections_per_address");
    }
}
