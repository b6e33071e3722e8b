//! One connection to a server: requests are pipelined, and answered in order. Must hold: every request is answered once, also
//! when the connection ends; a length that the server announces allocates nothing.

use super::error::RedisError;
use super::socket;
use crate::remote::{BusSocket, broken, read_more};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tavern_wire::resp::{self, RespValue};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Longer than the server may take for a request: a connection that exceeds it is closed.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes in one write.
const WRITE_BYTES: usize = 256 * 1024;
/// The longest reply: the largest page with each byte escaped, and some margin.
const REPLY_BYTES: usize = 128 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RedisReply {
    Nothing,
    Number(i64),
    Text(Bytes),
    List(Vec<RedisReply>),
    /// Inside a list; a top-level error is a `RedisError`.
    Error(String),
}

type ReplySender = oneshot::Sender<RedisReply>;

pub(super) struct RedisConnection {
    /// Bounded by the callers, who wait for their replies.
    requests: mpsc::UnboundedSender<(Bytes, ReplySender)>,
    driver: JoinHandle<()>,
}

/// A reply that has not arrived yet.
pub(super) struct PendingReply(oneshot::Receiver<RedisReply>);

impl PendingReply {
    pub async fn reply(self) -> Result<RedisReply, RedisError> {
        match tokio::time::timeout(TIMEOUT, self.0).await {
            Err(_) => Err(RedisError::Timeout),
            Ok(Err(_)) => Err(RedisError::Lost),
            Ok(Ok(RedisReply::Error(text))) => Err(RedisError::Refused(text)),
            Ok(Ok(reply)) => Ok(reply),
        }
    }
}

impl RedisConnection {
    pub fn new(socket: BusSocket) -> RedisConnection {
        let (requests, asked) = mpsc::unbounded_channel();
        let driver = tokio::spawn(async move {
            if let Err(error) = drive(socket, asked).await {
                tracing::debug!(%error, "redis connection ended");
            }
        });
        RedisConnection { requests, driver }
    }

    pub fn send(&self, command: Bytes) -> PendingReply {
        let (waiter, reply) = oneshot::channel();
        // If the connection has ended, dropping the sender answers the request.
        let _ = self.requests.send((command, waiter));
        PendingReply(reply)
    }

    pub async fn ask(&self, parts: &[&[u8]]) -> Result<RedisReply, RedisError> {
        let mut out = Vec::new();
        resp::command(&mut out, parts);
        self.send(out.into()).reply().await
    }

    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

impl Drop for RedisConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive(socket: BusSocket, asked: mpsc::UnboundedReceiver<(Bytes, ReplySender)>) -> io::Result<()> {
    let (incoming, outgoing) = tokio::io::split(socket);
    let waiting = Mutex::new(VecDeque::new());
    tokio::select! {
        sent = send_all(outgoing, asked, &waiting) => sent,
        received = receive_all(incoming, &waiting) => received,
    }
}

async fn send_all(
    mut socket: WriteHalf<BusSocket>,
    mut asked: mpsc::UnboundedReceiver<(Bytes, ReplySender)>,
    waiting: &Mutex<VecDeque<ReplySender>>,
) -> io::Result<()> {
    let mut out = Vec::new();
    while let Some((command, waiter)) = asked.recv().await {
        out.clear();
        let mut next = Some((command, waiter));
        while let Some((command, waiter)) = next {
            out.extend_from_slice(&command);
            waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(waiter);
            next = if out.len() < WRITE_BYTES { asked.try_recv().ok() } else { None };
        }
        let written = tokio::time::timeout(TIMEOUT, async {
            socket.write_all(&out).await?;
            socket.flush().await
        });
        written.await.map_err(|_| broken("the server does not read"))??;
        if out.capacity() > 4 * WRITE_BYTES {
            out = Vec::new();
        }
    }
    Ok(())
}

async fn receive_all(
    mut socket: ReadHalf<BusSocket>,
    waiting: &Mutex<VecDeque<ReplySender>>,
) -> io::Result<()> {
    let mut input = BytesMut::new();
    loop {
        while let Some((value, used)) = socket::read(&input)? {
            let whole = input.split_to(used).freeze();
            let waiter = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let waiter = waiter.ok_or_else(|| broken("a reply without a request"))?;
            // The caller of a late reply has stopped waiting.
            let _ = waiter.send(reply(value, &whole));
        }
        read_more(&mut socket, &mut input, REPLY_BYTES).await?;
    }
}

fn reply(value: RespValue, whole: &Bytes) -> RedisReply {
    match value {
        RespValue::Null => RedisReply::Nothing,
        RespValue::Int(number) => RedisReply::Number(number),
        RespValue::Simple(place) | RespValue::Bulk(place) | RespValue::Scalar(place) => {
            RedisReply::Text(whole.slice(place))
        }
        RespValue::Error(place) => {
            RedisReply::Error(broken(&String::from_utf8_lossy(&whole[place])).to_string())
        }
        RespValue::List(parts) => {
            RedisReply::List(parts.into_iter().map(|part| reply(part, whole)).collect())
        }
    }
}

impl RedisReply {
    pub fn list(self) -> Result<Vec<RedisReply>, RedisError> {
        match self {
            RedisReply::List(parts) => Ok(parts),
            _ => Err(RedisError::Unexpected("a reply is not a list")),
        }
    }

    pub fn text(&self) -> Result<&Bytes, RedisError> {
        match self {
            RedisReply::Text(text) => Ok(text),
            _ => Err(RedisError::Unexpected("a reply is not text")),
        }
    }

    pub fn number(&self) -> Result<u64, RedisError> {
        match self {
            RedisReply::Number(number) => {
                u64::try_from(*number).map_err(|_| RedisError::Unexpected("a number is negative"))
            }
            RedisReply::Text(text) => super::value::number(text),
            _ => Err(RedisError::Unexpected("a reply is not a number")),
        }
    }
}
