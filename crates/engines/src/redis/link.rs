//! One connection to a server: requests go out in the order asked and are answered in that order, many under way at once.
//! Must hold: every request is answered once, also when the connection ends; what the server announces reserves nothing.

use super::socket;
use super::value::Trouble;
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

/// Longer than the server may hold up a request; what is late here has no connection any more.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes written together.
const BYTES_TOGETHER: usize = 256 * 1024;
/// The longest answer: the largest page, each byte of it escaped, with room.
const ANSWER_BYTES: usize = 128 * 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Bytes),
    List(Vec<Reply>),
    /// In a list; an error by itself is a `Trouble`.
    Error(String),
}

type Asked = oneshot::Sender<Reply>;

pub(super) struct Link {
    /// Bounded by whoever asks: each waits for his answers.
    requests: mpsc::UnboundedSender<(Bytes, Asked)>,
    driver: JoinHandle<()>,
}

/// An answer that is under way.
pub(super) struct Pending(oneshot::Receiver<Reply>);

impl Pending {
    pub async fn answer(self) -> Result<Reply, Trouble> {
        match tokio::time::timeout(PATIENCE, self.0).await {
            Err(_) => Err(Trouble::Late),
            Ok(Err(_)) => Err(Trouble::Lost),
            Ok(Ok(Reply::Error(text))) => Err(Trouble::Refused(text)),
            Ok(Ok(reply)) => Ok(reply),
        }
    }
}

impl Link {
    pub fn new(socket: Socket) -> Link {
        let (requests, asked) = mpsc::unbounded_channel();
        let driver = tokio::spawn(async move {
            if let Err(error) = drive(socket, asked).await {
                tracing::debug!(%error, "a connection to Redis ended");
            }
        });
        Link { requests, driver }
    }

    pub fn send(&self, command: Bytes) -> Pending {
        let (asked, answer) = oneshot::channel();
        // A connection that has ended drops the question, and so answers it.
        let _ = self.requests.send((command, asked));
        Pending(answer)
    }

    pub async fn ask(&self, parts: &[&[u8]]) -> Result<Reply, Trouble> {
        let mut out = Vec::new();
        resp::command(&mut out, parts);
        self.send(out.into()).answer().await
    }

    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn drive(socket: Socket, asked: mpsc::UnboundedReceiver<(Bytes, Asked)>) -> io::Result<()> {
    let (incoming, outgoing) = tokio::io::split(socket);
    let waiting = Mutex::new(VecDeque::new());
    tokio::select! {
        said = say(outgoing, asked, &waiting) => said,
        heard = hear(incoming, &waiting) => heard,
    }
}

async fn say(
    mut socket: WriteHalf<Socket>,
    mut asked: mpsc::UnboundedReceiver<(Bytes, Asked)>,
    waiting: &Mutex<VecDeque<Asked>>,
) -> io::Result<()> {
    let mut out = Vec::new();
    while let Some((command, asker)) = asked.recv().await {
        out.clear();
        let mut next = Some((command, asker));
        while let Some((command, asker)) = next {
            out.extend_from_slice(&command);
            waiting.lock().unwrap_or_else(PoisonError::into_inner).push_back(asker);
            next = if out.len() < BYTES_TOGETHER { asked.try_recv().ok() } else { None };
        }
        let written = tokio::time::timeout(PATIENCE, async {
            socket.write_all(&out).await?;
            socket.flush().await
        });
        written.await.map_err(|_| broken("the server takes nothing"))??;
        if out.capacity() > 4 * BYTES_TOGETHER {
            out = Vec::new();
        }
    }
    Ok(())
}

async fn hear(mut socket: ReadHalf<Socket>, waiting: &Mutex<VecDeque<Asked>>) -> io::Result<()> {
    let mut input = BytesMut::new();
    loop {
        while let Some((value, used)) = socket::read(&input)? {
            let whole = input.split_to(used).freeze();
            let asker = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let asker = asker.ok_or_else(|| broken("an answer to nothing"))?;
            // Nobody waits any more for an answer that came too late.
            let _ = asker.send(reply(value, &whole));
        }
        read_more(&mut socket, &mut input, ANSWER_BYTES).await?;
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
    pub fn list(self) -> Result<Vec<Reply>, Trouble> {
        match self {
            Reply::List(parts) => Ok(parts),
            _ => Err(Trouble::Strange("an answer is no list")),
        }
    }

    pub fn text(&self) -> Result<&Bytes, Trouble> {
        match self {
            Reply::Text(text) => Ok(text),
            _ => Err(Trouble::Strange("an answer is no text")),
        }
    }

    pub fn number(&self) -> Result<u64, Trouble> {
        match self {
            Reply::Number(number) => {
                u64::try_from(*number).map_err(|_| Trouble::Strange("a number is negative"))
            }
            Reply::Text(text) => super::value::number(text),
            _ => Err(Trouble::Strange("an answer is no number")),
        }
    }
}
