//! State that the handles of a client share with its session task, and the requests between them.
//! Must hold: locks are held briefly and never across an await.

use crate::bounds::{KEPT, WAITING};
use crate::event::{Event, Received};
use crate::history::HistoryCursor;
use crate::link::Transport;
use crate::party_snapshot::PartySnapshot;
use crate::presence::Status;
use crate::presence_map::PresenceMap;
use crate::{ConnectionState, Error};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, broadcast, mpsc, oneshot, watch};

/// How long a call waits for the cause when the session has ended around it.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// Why the last attempt to connect failed.
    pub last_failure: Option<String>,
}

/// A live map and a counter of its changes.
#[derive(Debug)]
pub(crate) struct Live {
    pub map: Arc<Mutex<PresenceMap>>,
    pub changes: watch::Sender<u64>,
}

pub(crate) struct ClientShared {
    pub events: broadcast::Sender<Received>,
    pub party: watch::Sender<Option<PartySnapshot>>,
    /// The statuses of followed users that are known so far, by user.
    pub statuses: watch::Sender<BTreeMap<String, Status>>,
    pub command_timeout: Duration,
    /// Woken when `ended` is set.
    pub over: Notify,
    room: Arc<Semaphore>,
    view: Mutex<SessionView>,
    lives: Mutex<HashMap<String, Arc<Live>>>,
    /// Channels that the authorize hook has redirected, by the requested name.
    actual: Mutex<HashMap<String, String>>,
    /// Where this client is in the channels that keep history, by the requested name.
    cursors: Mutex<HashMap<String, HistoryCursor>>,
}

impl ClientShared {
    pub fn new(ticket: Option<(String, u64)>, command_timeout: Duration) -> ClientShared {
        let ended = Some(Error::Closed("this client is not connected".to_owned()));
        let (state, transport) = (ConnectionState::Idle, None);
        ClientShared {
            events: broadcast::channel(KEPT).0,
            party: watch::channel(None).0,
            statuses: watch::channel(BTreeMap::new()).0,
            command_timeout,
            over: Notify::new(),
            room: Arc::new(Semaphore::new(WAITING)),
            view: Mutex::new(SessionView {
                state,
                transport,
                user: None,
                client: None,
                node: None,
                ticket,
                ended,
                last_failure: None,
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

    /// The map of a channel that the app has asked for.
    pub fn known_live(&self, channel: &str) -> Option<Arc<Live>> {
        lock(&self.lives).get(channel).cloned()
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

    /// Emits an event whose content has its own type. An unexpected shape is reported and does not end the session.
    pub fn take_parsed<T: DeserializeOwned>(
        &self,
        content: Value,
        json: &Arc<str>,
        event: impl FnOnce(T) -> Event,
    ) {
        match serde_json::from_value(content) {
            Ok(content) => self.emit_received(event(content), json),
            Err(error) => self.emit(Event::Error { error: Error::unexpected(error), retry_in: None }),
        }
    }

    /// Tells that the presence map of a channel has changed.
    pub fn announce(&self, channel: &str) {
        if let Some(live) = self.known_live(channel) {
            live.changes.send_modify(|changes| *changes += 1);
            self.emit(Event::Presence { channel: channel.to_owned() });
        }
    }

    pub fn take_party_json(&self, party: &Value) {
        match serde_json::from_value(party.clone()) {
            Ok(party) => self.take_party(party),
            Err(error) => self.emit(Event::Error { error: Error::unexpected(error), retry_in: None }),
        }
    }

    /// Takes a snapshot, unless it is older than the events received since.
    pub fn take_party(&self, party: Option<PartySnapshot>) {
        self.party.send_if_modified(|current| {
            let older = match (&party, &*current) {
                (Some(new), Some(old)) => new.party_id == old.party_id && new.version < old.version,
                _ => false,
            };
            let changed = !older && *current != party;
            if changed {
                *current = party;
            }
            changed
        });
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
    Unfollow {
        user: String,
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
    /// It was given to a connection, and may have been executed.
    pub sent: Arc<AtomicBool>,
    pub reply: oneshot::Sender<Result<Value, Error>>,
    pub permit: OwnedSemaphorePermit,
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
            return Err(Error::Invalid("the members of a command must be an object".to_owned()));
        };
        let permit = self.shared.room.clone().try_acquire_owned().map_err(|_| Error::Busy)?;
        let (reply, answer) = oneshot::channel();
        let sent = Arc::new(AtomicBool::new(false));
        let ask = CommandRequest {
            op: op.to_owned(),
            members,
            data,
            safe,
            on_success,
            sent: sent.clone(),
            reply,
            permit,
        };
        if self.requests.try_send(ask).is_err() {
            return Err(self.why_ended().await);
        }
        match tokio::time::timeout(self.shared.command_timeout, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(self.why_ended().await),
            Err(_) => Err(self.late(op, safe, sent.load(Ordering::Relaxed))),
        }
    }

    fn late(&self, op: &str, safe: bool, sent: bool) -> Error {
        let within = format!("no reply to {op} within {:?}", self.shared.command_timeout);
        match self.shared.view().last_failure.clone() {
            _ if sent && !safe => Error::UnknownOutcome(format!("{within}; it may have been executed")),
            Some(why) => Error::Timeout(format!("{within}: {why}")),
            None => Error::Timeout(within),
        }
    }

    /// Why the session does not answer any more.
    pub async fn why_ended(&self) -> Error {
        let over = self.shared.over.notified();
        tokio::pin!(over);
        // From here on no wake-up is missed.
        over.as_mut().enable();
        if self.shared.view().ended.is_none() {
            let _ = tokio::time::timeout(CAUSE_TIMEOUT, over).await;
        }
        self.shared.view().ended.clone().unwrap_or_else(Error::closed)
    }

    pub async fn control<T>(&self, what: impl FnOnce(oneshot::Sender<T>) -> Control) -> Option<T> {
        let (done, over) = oneshot::channel();
        self.control.send(what(done)).await.ok()?;
        over.await.ok()
    }
}
