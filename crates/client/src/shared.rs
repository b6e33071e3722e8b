//! What the handles of a client and its session both see: who one is, the live maps, the party; and how the handles ask.
//! Must hold: locks are held for moments and never across an await.

use crate::event::{Event, Received};
use crate::link::Transport;
use crate::roster::Roster;
use crate::{Error, State};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// What a handle can see of the session.
#[derive(Debug)]
pub(crate) struct Face {
    pub state: State,
    pub transport: Option<Transport>,
    pub user: Option<String>,
    pub client: Option<String>,
    pub node: Option<String>,
    pub ticket: Option<(String, u64)>,
    /// Why commands are refused now.
    pub ended: Option<Error>,
}

/// A live map and a number that grows when it changes.
#[derive(Debug)]
pub(crate) struct Live {
    pub roster: Arc<Mutex<Roster>>,
    pub changes: watch::Sender<u64>,
}

pub(crate) struct Shared {
    pub events: broadcast::Sender<Received>,
    pub party: watch::Sender<Option<Value>>,
    face: Mutex<Face>,
    lives: Mutex<HashMap<String, Arc<Live>>>,
    /// Where the app's hook put us instead of the channel that was asked for.
    actual: Mutex<HashMap<String, String>>,
}

impl Shared {
    pub fn new(ticket: Option<(String, u64)>) -> Shared {
        let ended = Some(Error::new("closed", "not connected"));
        let (state, transport) = (State::Closed, None);
        Shared {
            events: broadcast::channel(crate::event::KEPT).0,
            party: watch::channel(None).0,
            face: Mutex::new(Face { state, transport, user: None, client: None, node: None, ticket, ended }),
            lives: Mutex::default(),
            actual: Mutex::default(),
        }
    }

    pub fn face(&self) -> MutexGuard<'_, Face> {
        lock(&self.face)
    }

    pub fn live(&self, channel: &str) -> Arc<Live> {
        let new = || Arc::new(Live { roster: Arc::default(), changes: watch::channel(0).0 });
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

    /// What was asked for, of the channel an event names.
    pub fn asked(&self, actual: &str) -> String {
        let redirected = lock(&self.actual);
        redirected.iter().find(|(_, to)| *to == actual).map_or(actual, |(asked, _)| asked.as_str()).to_owned()
    }

    pub fn tell(&self, event: Event) {
        // Nobody may be listening.
        let _ = self.events.send(Received { event, json: None });
    }

    /// Tells an event of the server, with the text it came as.
    pub fn tell_received(&self, event: Event, json: &Arc<str>) {
        let _ = self.events.send(Received { event, json: Some(json.clone()) });
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the session must remember when a command has succeeded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Note {
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
    /// A party command; `get` when its answer is the snapshot itself.
    Party {
        changes: bool,
    },
}

pub(crate) struct Ask {
    pub op: String,
    pub members: Map<String, Value>,
    /// Goes with the members, as it was written.
    pub data: Option<Arc<RawValue>>,
    /// May be carried out twice without harm.
    pub safe: bool,
    pub note: Note,
    pub reply: oneshot::Sender<Result<Value, Error>>,
}

pub(crate) enum Control {
    Open(oneshot::Sender<Result<(), Error>>),
    Suspend(oneshot::Sender<()>),
    Close(oneshot::Sender<()>),
    /// Ends the transport as the network would.
    Drop,
}

/// A way to ask; when the last is gone the session is left to its grace.
#[derive(Clone)]
pub(crate) struct Handle {
    pub shared: Arc<Shared>,
    pub asks: mpsc::Sender<Ask>,
    pub control: mpsc::Sender<Control>,
}

impl Handle {
    pub async fn ask(&self, op: &str, members: Value, safe: bool, note: Note) -> Result<Value, Error> {
        self.ask_with(op, members, None, safe, note).await
    }

    pub async fn ask_with(
        &self,
        op: &str,
        members: Value,
        data: Option<Arc<RawValue>>,
        safe: bool,
        note: Note,
    ) -> Result<Value, Error> {
        if let Some(ended) = self.shared.face().ended.clone() {
            return Err(ended);
        }
        let Value::Object(members) = members else {
            return Err(Error::new("bad_request", "members are an object"));
        };
        let (reply, answer) = oneshot::channel();
        let ask = Ask { op: op.to_owned(), members, data, safe, note, reply };
        let asking = async {
            self.asks.send(ask).await.map_err(|_| Error::closed())?;
            answer
                .await
                .unwrap_or_else(|_| Err(self.shared.face().ended.clone().unwrap_or_else(Error::closed)))
        };
        let late =
            || Error::new("timeout", format!("no answer to {op} within {} s", COMMAND_PATIENCE.as_secs()));
        tokio::time::timeout(COMMAND_PATIENCE, asking).await.unwrap_or_else(|_| Err(late()))
    }

    pub async fn control<T>(&self, what: impl FnOnce(oneshot::Sender<T>) -> Control) -> Option<T> {
        let (done, over) = oneshot::channel();
        self.control.send(what(done)).await.ok()?;
        over.await.ok()
    }
}
