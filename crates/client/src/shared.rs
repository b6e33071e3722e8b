//! State that the handles of a client share with its session task, and the requests between them.
//! Must hold: locks are held briefly and never across an await.

use crate::event::{Event, Received};
use crate::history::HistoryCursor;
use crate::link::Transport;
use crate::presence_map::PresenceMap;
use crate::{ConnectionState, Error};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The session as handles see it.
#[derive(Debug)]
pub(crate) struct SessionView {
    pub state: ConnectionState,
    pub transport: Option<Transport>,
    pub user: Option<String>,
    pub client: Option<String>,
    pub node: Option<String>,
    pub ticket: Option<(String, u64)>,
    /// Why commands fail now.
    pub ended: Option<Error>,
}

/// A live map and a counter of its changes.
#[derive(Debug)]
pub(crate) struct Live {
    pub map: Arc<Mutex<PresenceMap>>,
    pub changes: watch::Sender<u64>,
}

pub(crate) struct ClientShared {
    pub events: broadcast::Sender<Received>,
    pub party: watch::Sender<Option<Value>>,
    view: Mutex<SessionView>,
    lives: Mutex<HashMap<String, Arc<Live>>>,
    /// Channels that the authorize hook has redirected, by the requested name.
    actual: Mutex<HashMap<String, String>>,
    /// Where this client is in the channels that keep history, by the requested name.
    cursors: Mutex<HashMap<String, HistoryCursor>>,
}

impl ClientShared {
    pub fn new(ticket: Option<(String, u64)>) -> ClientShared {
        let ended = Some(Error::new("closed", "not connected"));
        let (state, transport) = (ConnectionState::Closed, None);
        ClientShared {
            events: broadcast::channel(crate::event::KEPT).0,
            party: watch::channel(None).0,
            view: Mutex::new(SessionView {
                state,
                transport,
                user: None,
                client: None,
                node: None,
                ticket,
                ended,
            }),
            lives: Mutex::default(),
            actual: Mutex::default(),
            cursors: Mutex::default(),
        }
    }

    pub fn view(&self) -> MutexGuard<'_, SessionView> {
        lock(&self.view)
    }

    pub fn live(&self, channel: &str) -> Arc<Live> {
        let new = || Arc::new(Live { map: Arc::default(), changes: watch::channel(0).0 });
        lock(&self.lives).entry(channel.to_owned()).or_insert_with(new).clone()
    }

    pub fn lives(&self) -> Vec<(String, Arc<Live>)> {
        lock(&self.lives).iter().map(|(name, live)| (name.clone(), live.clone())).collect()
    }

    pub fn actual(&self, channel: &str) -> String {
        lock(&self.actual).get(channel).map_or(channel, String::as_str).to_owned()
    }

    pub fn redirect(&self, asked: &str, actual: &str) {
        lock(&self.actual).insert(asked.to_owned(), actual.to_owned());
    }

    /// The requested name of the channel that an event names.
    pub fn asked(&self, actual: &str) -> String {
        let redirected = lock(&self.actual);
        redirected.iter().find(|(_, to)| *to == actual).map_or(actual, |(asked, _)| asked.as_str()).to_owned()
    }

    /// Reads or changes where this client is in a channel.
    pub fn with_cursor<T>(&self, channel: &str, change: impl FnOnce(&mut HistoryCursor) -> T) -> T {
        change(lock(&self.cursors).entry(channel.to_owned()).or_default())
    }

    pub fn forget_cursor(&self, channel: &str) {
        lock(&self.cursors).remove(channel);
    }

    pub fn emit(&self, event: Event) {
        // Without receivers the event is dropped.
        let _ = self.events.send(Received { event, json: None });
    }

    /// Emits an event of the server with its JSON.
    pub fn emit_received(&self, event: Event, json: &Arc<str>) {
        let _ = self.events.send(Received { event, json: Some(json.clone()) });
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the session does when a command succeeds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OnSuccess {
    Nothing,
    Subscribe {
        channel: String,
        watch: bool,
    },
    Unsubscribe {
        channel: String,
    },
    Pattern {
        pattern: String,
        wanted: bool,
    },
    Join {
        channel: String,
        state: Option<Value>,
    },
    Update {
        channel: String,
        state: Value,
    },
    Leave {
        channel: String,
    },
    /// Reads the party's snapshot if the command changes it.
    Party {
        changes: bool,
    },
}

pub(crate) struct CommandRequest {
    pub op: String,
    pub members: Map<String, Value>,
    /// The `data` member, sent byte for byte.
    pub data: Option<Arc<RawValue>>,
    /// Idempotent: may be executed twice.
    pub safe: bool,
    pub on_success: OnSuccess,
    pub reply: oneshot::Sender<Result<Value, Error>>,
}

pub(crate) enum Control {
    Open(oneshot::Sender<Result<(), Error>>),
    Suspend(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
    /// Drops the link as a network failure would.
    Drop,
}

/// A handle of the session; when the last is dropped, the session ends after its grace period.
#[derive(Clone)]
pub(crate) struct Handle {
    pub shared: Arc<ClientShared>,
    pub requests: mpsc::Sender<CommandRequest>,
    pub control: mpsc::Sender<Control>,
}

impl Handle {
    pub async fn ask(
        &self,
        op: &str,
        members: Value,
        safe: bool,
        on_success: OnSuccess,
    ) -> Result<Value, Error> {
        self.ask_with(op, members, None, safe, on_success).await
    }

    pub async fn ask_with(
        &self,
        op: &str,
        members: Value,
        data: Option<Arc<RawValue>>,
        safe: bool,
        on_success: OnSuccess,
    ) -> Result<Value, Error> {
        if let Some(ended) = self.shared.view().ended.clone() {
            return Err(ended);
        }
        let Value::Object(members) = members else {
            return Err(Error::new("bad_request", "the members of a command must be an object"));
        };
        let (reply, answer) = oneshot::channel();
        let ask = CommandRequest { op: op.to_owned(), members, data, safe, on_success, reply };
        let asking = async {
            self.requests.send(ask).await.map_err(|_| Error::closed())?;
            answer
                .await
                .unwrap_or_else(|_| Err(self.shared.view().ended.clone().unwrap_or_else(Error::closed)))
        };
        let late =
            || Error::new("timeout", format!("no answer to {op} within {} s", COMMAND_TIMEOUT.as_secs()));
        tokio::time::timeout(COMMAND_TIMEOUT, asking).await.unwrap_or_else(|_| Err(late()))
    }

    pub async fn control<T>(&self, what: impl FnOnce(oneshot::Sender<T>) -> Control) -> Option<T> {
        let (done, over) = oneshot::channel();
        self.control.send(what(done)).await.ok()?;
        over.await.ok()
    }
}
