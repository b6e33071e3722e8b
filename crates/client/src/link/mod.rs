//! A way to a server: WebSocket, SSE or long-poll, each as tasks behind two queues. Frames come out of one, commands go into the other.
//! Must hold: a link lives once; its last word is why it ended; its tasks end with it; every queue is bounded.

mod http;
mod poll;
mod sse;
pub(crate) mod stream;
mod websocket;

use crate::address::Address;
use crate::auth::Auth;
use crate::error::{Ending, Error, OpenError};
use crate::frame::{Frame, Outgoing};
use rustls::ClientConfig;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Frames between a link's tasks and the session.
const INCOMING: usize = 256;
const OUTGOING: usize = 64;
const OPEN_PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// The largest message that a server can be configured for, with room for what stands around it.
const MESSAGE_BYTES: usize = 66 << 20;

pub(crate) const SUPERSEDED: u16 = 4000;
pub(crate) const TOKEN_EXPIRED: u16 = 4001;

/// A way to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    WebSocket,
    Sse,
    Poll,
}

impl Transport {
    pub const ALL: [Transport; 3] = [Transport::WebSocket, Transport::Sse, Transport::Poll];

    pub fn as_str(self) -> &'static str {
        match self {
            Transport::WebSocket => "websocket",
            Transport::Sse => "sse",
            Transport::Poll => "poll",
        }
    }
}

#[derive(Debug)]
pub(crate) enum Incoming {
    Frame(Frame),
    /// The server gave a sign of life.
    Life,
    End(Ending),
}

/// An open link.
pub(crate) struct Link {
    pub transport: Transport,
    pub incoming: mpsc::Receiver<Incoming>,
    pub outgoing: mpsc::Sender<Outgoing>,
    // Dropped with the link, and its tasks with it.
    _tasks: JoinSet<()>,
}

/// Who is asking; the token may be another one later.
#[derive(Default)]
pub(crate) struct Credential {
    pub user: Option<String>,
    pub key: Option<String>,
    token: Mutex<Option<String>>,
}

impl Credential {
    pub fn new(auth: Option<&Auth>) -> Credential {
        let (mut user, mut key, mut token) = (None, None, None);
        match auth {
            Some(Auth::User(name)) => user = Some(name.clone()),
            Some(Auth::Key(text)) => key = Some(text.clone()),
            Some(Auth::Token(text)) => token = Some(text.clone()),
            Some(Auth::Source(_)) | None => {}
        }
        Credential { user, key, token: Mutex::new(token) }
    }

    pub fn token(&self) -> Option<String> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What an `Authorization` header carries.
    pub fn bearer(&self) -> Option<String> {
        self.key.clone().or_else(|| self.token())
    }

    /// Whether the server knows from the request itself who is asking, and says hello without being asked.
    fn is_in_request(&self) -> bool {
        self.user.is_some() || self.key.is_some()
    }

    pub fn replace(&self, token: String) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token);
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        self.user.iter().map(|user| ("user", user.clone())).collect()
    }
}

/// What is needed to open a link.
pub(crate) struct Door {
    pub address: Address,
    pub tls: Arc<ClientConfig>,
    pub credential: Arc<Credential>,
    /// The session to go on with, after its event of this number.
    pub resume: Option<(String, u64)>,
    pub statuses: bool,
    /// The last event that the session has taken.
    pub taken: watch::Receiver<u64>,
}

impl Door {
    /// The query of a request that says hello by itself.
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = self.credential.query();
        if let Some((session, seq)) = &self.resume {
            query.extend([("session", session.clone()), ("seq", seq.to_string())]);
        }
        query
    }
}

/// Opens a link and says hello; gives the answer to that and the link.
pub(crate) async fn open(transport: Transport, door: Door) -> Result<(Value, Link), OpenError> {
    let opening = async {
        match transport {
            Transport::WebSocket => websocket::open(door).await,
            Transport::Sse => sse::open(door).await,
            Transport::Poll => poll::open(door).await,
        }
    };
    match tokio::time::timeout(OPEN_PATIENCE, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(OpenError::Lost("no answer to hello in time".into())),
    }
}

/// The ok of a reply, or its error.
fn checked(answer: &Value) -> Result<Value, OpenError> {
    match answer.get("ok") {
        Some(ok) if ok["session"].is_string() => Ok(ok.clone()),
        _ => Err(OpenError::Refused(Error::from_wire(answer.get("error")))),
    }
}

/// What an HTTP answer that is not the expected one means: the server's own refusal, or somebody between us and it.
fn refusal(status: u16, body: &[u8]) -> OpenError {
    let answer: Option<Value> = serde_json::from_slice(body).ok();
    match answer.as_ref().and_then(|answer| answer.get("error")) {
        Some(error) => OpenError::Refused(Error::from_wire(Some(error))),
        None if status >= 500 => OpenError::Lost(format!("answered {status}")),
        None => OpenError::Blocked(format!("answered {status}")),
    }
}
