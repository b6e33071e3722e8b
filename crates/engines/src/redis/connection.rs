//! One connection to a server: requests are pipelined, and answered in order. Must hold: every request is answered once, also
//! when the connection ends; a length that the server announces allocates nothing.

use super::error::RedisError;
use super::socket;
use crate::remote::{Socket, broken, read_more};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tavern_wire::resp::{self, Value};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Longer than the server may take for a request: a connection that is late here is given up.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes in one write.
const WRITE_BYTES: usize = 256 * 1024;
/// The longest reply: the largest page, each byte of it escaped, with room.
const REPLY_BYTES: usize = 128 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Bytes),
    List(Vec<Reply>),
    /// Inside a list; an error by itself is a `RedisError`.
    Error(String),
}

type Waiter = oneshot::Sender<Reply>;

pub(super) struct Connection {
    /// Bounded by the callers, who wait for their replies.
    requests: mpsc::UnboundedSender<(Bytes, Waiter)>,
    driver: JoinHandle<()>,
}

/// A reply that has not come yet.
pub(super) struct Pending(oneshot::Receiver<Reply>);

impl Pending {
    pub async fn reply(self) -> Result<Reply, RedisError> {
        match tokio::time::timeout(TIMEOUT, self.0).await {
            Err(_) => Err(RedisError::Timeout),
            Ok(Err(_)) => Err(RedisError::Lost),
            Ok(Ok(Reply::Error(text))) => Err(RedisError::Refused(text)),
            Ok(Ok(reply)) => Ok(reply),
        }
    }
}

impl Connection {
    pub fn new(socket: Socket) -> Connection {
        let (requests, asked) = mpsc::unbounded_channel();
        let driver = tokio::spawn(async move {
            if let Err(error) = drive(socket, asked).await {
                tracing::debug!(%error, "redis connection ended");
            }
        });
        Connection { requests, driver }
    }

    pub fn send(&self, command: Bytes) -> Pending {
        let (waiter, reply) = oneshot::channel();
        // A connection that has ended drops the sender, which answers the request.
        let _ = self.requests.send((command, waiter));
        Pending(reply)
    }

    pub async fn ask(&self, parts: &[&[u8]]) -> Result<Reply, RedisError> {
        let mut out = Vec::new();
        resp::command(&mut out, parts);
        self.send(out.into()).reply().await
    }

    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive(socket: Socket, asked: mpsc::UnboundedReceiver<(Bytes, Waiter)>) -> io::Result<()> {
    let (incoming, outgoing) = tokio::io::split(socket);
    let waiting = Mutex::new(VecDeque::new());
    tokio::select! {
        sent = send_all(outgoing, asked, &waiting) => sent,
        received = receive_all(incoming, &waiting) => received,
    }
}

async fn send_all(
    mut socket: WriteHalf<Socket>,
    mut asked: mpsc::UnboundedReceiver<(Bytes, Waiter)>,
    waiting: &Mutex<VecDeque<Waiter>>,
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

async fn receive_all(mut socket: ReadHalf<Socket>, waiting: &Mutex<VecDeque<Waiter>>) -> io::Result<()> {
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

fn reply(value: Value, whole: &Bytes) -> Reply {
    match value {
        Value::Null => Reply::Nothing,
        Value::Int(number) => Reply::Number(number),
        Value::Simple(place) | Value::Bulk(place) | Value::Scalar(place) => Reply::Text(whole.slice(place)),
        Value::Error(place) => Reply::Error(broken(&String::from_utf8_lossy(&whole[place])).to_string()),
        Value::List(parts) => Reply::List(parts.into_iter().map(|part| reply(part, whole)).collect()),
    }
}

impl Reply {
    pub fn list(self) -> Result<Vec<Reply>, RedisError> {
        match self {
            Reply::List(parts) => Ok(parts),
            _ => Err(RedisError::Unexpected("a reply is not a list")),
        }
    }

    pub fn text(&self) -> Result<&Bytes, RedisError> {
        match self {
            Reply::Text(text) => Ok(text),
            _ => Err(RedisError::Unexpected("a reply is not text")),
        }
    }

    pub fn number(&self) -> Result<u64, RedisError> {
        match self {
            Reply::Number(number) => {
                u64::try_from(*number).map_err(|_| RedisError::Unexpected("a number is negative"))
            }
            Reply::Text(text) => super::value::number(text),
            _ => Err(RedisError::Unexpected("a reply is not a number")),
        }
    }
}
