//! A link to a server over WebSocket, SSE or long-poll: tasks behind two queues, one for frames and one for commands.
//! Must hold: a link is opened once; its last item is why it ended; its tasks end with it; every queue is bounded.

mod frames;
mod http;
mod poll;
mod sse;
pub(crate) mod stream;
mod websocket;

#[cfg(test)]
pub(crate) use websocket::accept_of;

use crate::address::ServerUrl;
use crate::auth::Auth;
use crate::error::{Error, LinkEnd, OpenError};
use crate::fault;
use crate::frame::{Outgoing, ServerFrame};
use futures_util::FutureExt;
use rustls::ClientConfig;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Frames between a link's tasks and the session.
const INCOMING: usize = 256;
const OUTGOING: usize = 64;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const SUPERSEDED: u16 = 4000;
pub(crate) const TOKEN_EXPIRED: u16 = 4001;

/// How a client connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// One WebSocket.
    WebSocket,
    /// Server-sent events, with commands as single requests.
    Sse,
    /// Long-polls, with commands as single requests.
    Poll,
}

impl Transport {
    /// All transports, the preferred one first.
    pub const ALL: [Transport; 3] = [Transport::WebSocket, Transport::Sse, Transport::Poll];

    /// The name of the transport.
    pub fn as_str(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::Sse => "sse",
            Transport::Poll => "poll",
        }
    }
}

#[derive(Debug)]
pub(crate) enum LinkEvent {
    Frame(ServerFrame),
    /// The server is alive: a ping or a part of a frame.
    Alive,
    End(LinkEnd),
    /// A task of the link panicked, with this message.
    Failed(String),
}

/// An open link.
pub(crate) struct Link {
    pub transport: Transport,
    pub incoming: mpsc::Receiver<LinkEvent>,
    pub outgoing: mpsc::Sender<Outgoing>,
    // Dropped with the link, and its tasks with it.
    _tasks: JoinSet<()>,
}

/// The credential of a session; its token may be renewed.
#[derive(Default)]
pub(crate) struct SessionCredential {
    pub user: Option<String>,
    pub key: Option<String>,
    token: Mutex<Option<String>>,
}

impl SessionCredential {
    pub fn new(auth: Option<&Auth>) -> SessionCredential {
        let (mut user, mut key, mut token) = (None, None, None);
        match auth {
            Some(Auth::User(name)) => user = Some(name.clone()),
            Some(Auth::Key(text)) => key = Some(text.clone()),
            Some(Auth::Token(text)) => token = Some(text.clone()),
            Some(Auth::Source(_)) | None => {}
        }
        SessionCredential { user, key, token: Mutex::new(token) }
    }

    pub fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The bearer of an `Authorization` header.
    pub fn bearer(&self) -> Option<String> {
        self.key.clone().or_else(|| self.token())
    }

    pub fn replace(&self, token: String) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        self.user.iter().map(|user| ("user", user.clone())).collect()
    }
}

/// The parameters for opening a link.
#[derive(Clone)]
pub(crate) struct LinkRequest {
    pub address: ServerUrl,
    pub tls: Arc<ClientConfig>,
    pub credential: Arc<SessionCredential>,
    /// The session to resume, after the event of this number.
    pub resume: Option<(String, u64)>,
    pub statuses: bool,
    /// The last event that the session has processed.
    pub taken: watch::Receiver<u64>,
    /// How long opening may take, up to the reply to hello.
    pub timeout: Duration,
    /// A server has accepted a connection.
    pub reached: Arc<AtomicBool>,
}

/// Opens a link and sends hello; returns the answer and the link.
pub(crate) async fn open(transport: Transport, request: LinkRequest) -> Result<(Value, Link), OpenError> {
    let (limit, reached) = (request.timeout, request.reached.clone());
    let opening = async {
        match transport {
            Transport::WebSocket => websocket::open(request).await,
            Transport::Sse => sse::open(request).await,
            Transport::Poll => poll::open(request).await,
        }
    };
    match tokio::time::timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_) if reached.load(Ordering::Relaxed) => Err(OpenError::blocked("no answer to hello in time")),
        Err(_) => Err(OpenError::Lost("no connection in time".into())),
    }
}

/// Starts a task of a link. A panic in it is the last event of the link.
fn spawn(
    tasks: &mut JoinSet<()>,
    events: &mpsc::Sender<LinkEvent>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let events = events.clone();
    tasks.spawn(async move {
        if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
            let _ = events.send(LinkEvent::Failed(fault::cause(&*panic))).await;
        }
    });
}

/// The content of an ok reply to hello, or its error.
fn checked(answer: &Value) -> Result<Value, OpenError> {
    match answer.get("ok") {
        Some(ok) if ok["session"].is_string() => Ok(ok.clone()),
        _ if answer.get("error").is_none() => Err(OpenError::blocked("the answer to hello is not Tavern's")),
        _ => Err(OpenError::Refused(Error::from_wire(answer.get("error")))),
    }
}

/// Why an HTTP answer is not the expected one: a refusal of the server, or an answer of a proxy.
fn refusal(status: u16, body: &[u8]) -> OpenError {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    match answer.as_ref().and_then(|answer| answer.get("error")) {
        Some(error) => OpenError::Refused(Error::from_wire(Some(error))),
        None => OpenError::blocked(format!("something else than Tavern answered, with status {status}")),
    }
}
