//! One session over any number of links, owned by one task: it opens links, resumes, retries safe commands, drops
//! duplicates. Must hold: every event is emitted once; every command has one answer, or an unknown outcome; a
//! superseded session never reconnects on its own.

use crate::address::ServerUrl;
use crate::auth::Auth;
use crate::backoff::{Backoff, chance};
use crate::desired::Desired;
use crate::error::LinkEnd;
use crate::event::{Event, KEPT};
use crate::frame::{Outgoing, ServerFrame};
use crate::link::{Link, LinkEvent, SUPERSEDED, SessionCredential, TOKEN_EXPIRED, Transport};
use crate::shared::{ClientShared, CommandRequest, Control, OnSuccess};
use crate::{ConnectionState, Error};
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

mod commands;
mod connect;
mod events;

/// Commands that wait for a link or an answer.
const WAITING: usize = 16_384;
/// Frames taken from a link at once.
const BATCH: usize = 64;
/// A link that lasted this long resets the backoff.
const STEADY: Duration = Duration::from_secs(5);
const BYE_TIMEOUT: Duration = Duration::from_secs(2);
/// How often to check whether a slow reader has caught up (backpressure).
const CATCH_UP: Duration = Duration::from_millis(2);

pub(crate) struct SessionSettings {
    pub addresses: Vec<ServerUrl>,
    pub transports: Vec<Transport>,
    pub auth: Option<Auth>,
    pub statuses: bool,
    /// The number of failures to open the first session after which it gives up.
    pub attempts: Option<u32>,
    /// Backpressure: read no faster than the slowest reader of events.
    pub backpressure: bool,
    pub tls: Arc<ClientConfig>,
}

struct SentCommand {
    id: u64,
    frame: Outgoing,
    safe: bool,
    on_success: OnSuccess,
    /// None: the client sent it on its own.
    reply: Option<oneshot::Sender<Result<Value, Error>>>,
    tries: u32,
}

impl SentCommand {
    fn op(&self) -> &str {
        self.frame.members["op"].as_str().unwrap_or_default()
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| !reply.is_closed())
    }

    fn answer(self, answer: Result<Value, Error>) {
        if let Some(reply) = self.reply {
            // The caller may have been dropped.
            let _ = reply.send(answer);
        }
    }
}

pub(crate) struct ClientSession {
    settings: SessionSettings,
    shared: Arc<ClientShared>,
    requests: mpsc::Receiver<CommandRequest>,
    credential: Arc<SessionCredential>,
    session: Option<String>,
    /// The last event that was processed.
    seq: watch::Sender<u64>,
    acked: u64,
    /// The longest frame that the server takes.
    frame_bytes: usize,
    heartbeat: Duration,
    ids: u64,
    waiting: VecDeque<SentCommand>,
    pending: BTreeMap<u64, SentCommand>,
    /// Commands to retry, with the time.
    later: Vec<(Instant, SentCommand)>,
    desired: Desired,
    /// The number of the last inbox message that was processed.
    message_id: u64,
    party_asked: bool,
    /// Restoring commands without an answer yet.
    restoring: BTreeSet<u64>,
    backoff: Backoff,
    address: usize,
    transport: usize,
    refusals: u32,
    worked: Vec<Transport>,
    token_expired: bool,
    token_is_new: bool,
    closing_ms: Option<u64>,
}

/// Why a link is no longer served.
enum LinkExit {
    Lost(LinkEnd),
    Requested(Control),
    /// All handles are dropped.
    Dropped,
}

impl ClientSession {
    pub fn new(
        settings: SessionSettings,
        shared: Arc<ClientShared>,
        requests: mpsc::Receiver<CommandRequest>,
    ) -> ClientSession {
        let ticket = shared.view().ticket.clone();
        ClientSession {
            credential: Arc::new(SessionCredential::new(settings.auth.as_ref())),
            settings,
            requests,
            session: ticket.as_ref().map(|(session, _)| session.clone()),
            seq: watch::channel(ticket.map_or(0, |(_, seq)| seq)).0,
            acked: 0,
            frame_bytes: usize::MAX,
            heartbeat: Duration::from_secs(15),
            ids: 0,
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
            later: Vec::new(),
            desired: Desired::default(),
            message_id: 0,
            party_asked: false,
            restoring: BTreeSet::new(),
            backoff: Backoff::default(),
            address: 0,
            transport: 0,
            refusals: 0,
            worked: Vec::new(),
            token_expired: false,
            token_is_new: false,
            closing_ms: None,
            shared,
        }
    }

    /// Runs until all handles are dropped.
    pub async fn run(mut self, mut control: mpsc::Receiver<Control>) {
        loop {
            let opened = tokio::select! {
                request = control.recv() => match request {
                    Some(Control::Open(opened)) => opened,
                    Some(Control::Suspend(done) | Control::Close(done)) => {
                        let _ = done.send(());
                        continue;
                    }
                    Some(Control::Drop) => continue,
                    None => return,
                },
                ask = self.requests.recv() => match ask {
                    Some(ask) => {
                        let ended = self.shared.view().ended.clone().unwrap_or_else(Error::closed);
                        let _ = ask.reply.send(Err(ended));
                        continue;
                    }
                    None => return,
                },
            };
            {
                let mut view = self.shared.view();
                (view.ended, view.state) = (None, ConnectionState::Connecting);
            }
            match self.run_session(&mut control, opened).await {
                Some((ended, keep)) => self.end(ended, keep),
                None => return,
            }
        }
    }

    /// Runs a session from opening to its end; returns why it ended and whether queued commands are kept for the next opening.
    /// None: all handles are dropped.
    async fn run_session(
        &mut self,
        control: &mut mpsc::Receiver<Control>,
        opened: oneshot::Sender<Result<(), Error>>,
    ) -> Option<(Error, bool)> {
        let mut opened = vec![opened];
        loop {
            let connected = tokio::select! {
                connected = self.connect() => Ok(connected),
                request = control.recv() => Err(request),
            };
            let mut link = match connected {
                Ok(Ok(link)) => link,
                Ok(Err(ended)) => {
                    for opened in opened.drain(..) {
                        let _ = opened.send(Err(ended.clone()));
                    }
                    return Some((ended, false));
                }
                Err(Some(Control::Open(another))) => {
                    opened.push(another);
                    continue;
                }
                Err(request) => match self.leave(request?, None).await {
                    Some(left) => return Some(left),
                    None => continue,
                },
            };
            for opened in opened.drain(..) {
                let _ = opened.send(Ok(()));
            }
            let began = Instant::now();
            let ending = match self.serve(&mut link, control).await {
                LinkExit::Lost(ending) => ending,
                LinkExit::Dropped => return None,
                LinkExit::Requested(request) => match self.leave(request, Some(&mut link)).await {
                    Some(left) => return Some(left),
                    None => LinkEnd::new("dropped"),
                },
            };
            drop(link);
            if began.elapsed() > STEADY {
                self.backoff.reset();
            }
            if let Err(ended) = self.check_reconnect(&ending) {
                return Some((ended, false));
            }
            self.reconnect(ending);
            let wait = self.closing_ms.take().map(Duration::from_millis);
            let wait = wait.unwrap_or_else(|| self.backoff.next(chance(), None));
            tokio::select! {
                () = sleep(wait) => {}
                request = control.recv() => if let Some(left) = self.leave(request?, None).await {
                    return Some(left);
                },
            }
        }
    }

    /// Executes a request of a handle. None: only the link ends.
    async fn leave(&mut self, request: Control, link: Option<&mut Link>) -> Option<(Error, bool)> {
        match request {
            Control::Drop => None,
            Control::Open(done) => {
                let _ = done.send(Ok(()));
                None
            }
            Control::Suspend(done) => {
                let suspended = Error::new("closed", "this client is suspended");
                self.end(suspended.clone(), true);
                let _ = done.send(());
                Some((suspended, true))
            }
            Control::Close(done) => {
                if let Some(link) = link {
                    // If this does not arrive, the server detects the loss itself.
                    let _ = timeout(BYE_TIMEOUT, self.send_bye(link)).await;
                }
                self.session = None;
                self.seq.send_replace(0);
                self.end(Error::closed(), false);
                let _ = done.send(());
                Some((Error::closed(), false))
            }
        }
    }

    async fn send_bye(&mut self, link: &mut Link) {
        let id = self.next_id();
        let _ = link.outgoing.send(json!({"id": id, "op": "bye"}).into()).await;
        while let Some(incoming) = link.incoming.recv().await {
            match incoming {
                LinkEvent::Frame(frame) if frame.value["id"] == id => return,
                LinkEvent::End(_) => return,
                _ => {}
            }
        }
    }

    /// Whether the client may reconnect after this.
    fn check_reconnect(&mut self, ending: &LinkEnd) -> Result<(), Error> {
        match ending.code {
            Some(SUPERSEDED) => {
                self.shared.emit(Event::Superseded);
                Err(Error::new("superseded", "another client took over the session"))
            }
            Some(TOKEN_EXPIRED) if !matches!(self.settings.auth, Some(Auth::Source(_))) => Err(Error::new(
                "unauthenticated",
                "the token has expired, and there is no source for a new one",
            )),
            Some(TOKEN_EXPIRED) => {
                self.token_expired = true;
                Ok(())
            }
            Some(4002..=4499) => Err(Error::new(
                "gone",
                format!("the server ended the session and refuses a new connection: {}", ending.why),
            )),
            _ => Ok(()),
        }
    }

    fn reconnect(&mut self, ending: LinkEnd) {
        {
            let mut view = self.shared.view();
            (view.state, view.transport) = (ConnectionState::Connecting, None);
        }
        if self.worked.contains(&self.settings.transports[0]) {
            // Go back to the preferred transport.
            (self.transport, self.refusals) = (0, 0);
        }
        self.requeue();
        self.shared.emit(Event::Reconnecting { why: ending.why });
    }

    async fn serve(&mut self, link: &mut Link, control: &mut mpsc::Receiver<Control>) -> LinkExit {
        let mut last_received = Instant::now();
        let mut beat = tokio::time::interval_at(last_received + self.heartbeat, self.heartbeat);
        let mut renew = self.renewal();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let due = self.later.iter().map(|(at, _)| *at).min();
            let soon = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                () = sleep(CATCH_UP), if self.must_wait() => last_received = Instant::now(),
                count = link.incoming.recv_many(&mut batch, BATCH), if !self.must_wait() => {
                    // With SSE the answers to commands use another connection, and say nothing about the stream.
                    let beside = |frame: &ServerFrame| link.transport == Transport::Sse && frame.value.get("id").is_some();
                    if !batch.iter().all(|incoming| matches!(incoming, LinkEvent::Frame(frame) if beside(frame))) {
                        last_received = Instant::now();
                    }
                    let taken = match count {
                        0 => Err(LinkEnd::new("the connection ended")),
                        _ => batch.drain(..).try_for_each(|incoming| match incoming {
                            LinkEvent::Frame(frame) => self.take(frame),
                            LinkEvent::Alive => Ok(()),
                            LinkEvent::End(ending) => Err(ending),
                        }),
                    };
                    if let Err(ending) = taken {
                        return LinkExit::Lost(ending);
                    }
                }
                room = link.outgoing.reserve(), if !self.waiting.is_empty() => match room {
                    Ok(room) => if let Some(frame) = self.next_frame() { room.send(frame) },
                    // The reader reports why.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                },
                ask = self.requests.recv(), if self.waiting.len() + self.pending.len() < WAITING => match ask {
                    Some(ask) => {
                        let mut command = self.command(&ask.op, Value::Object(ask.members), ask.safe, ask.on_success, Some(ask.reply));
                        command.frame.data = ask.data;
                        self.waiting.push_back(command);
                    }
                    None => return LinkExit::Dropped,
                },
                _ = beat.tick() => if let Err(ending) = self.heartbeat_due(link.transport, last_received) {
                    return LinkExit::Lost(ending);
                },
                () = sleep_until(renew.unwrap_or(soon)), if renew.is_some() => {
                    self.token_expired = true;
                    match self.provide_token().await {
                        Ok(()) => {
                            let members = json!({"token": self.credential.token()});
                            let command = self.command("hello", members, true, OnSuccess::Nothing, None);
                            self.waiting.push_back(command);
                            renew = self.renewal();
                        }
                        Err(why) => return LinkExit::Lost(LinkEnd::new(why)),
                    }
                }
                () = sleep_until(due.unwrap_or(soon)), if due.is_some() => self.ask_again(),
                request = control.recv() => match request {
                    Some(Control::Open(done)) => {
                        let _ = done.send(Ok(()));
                    }
                    Some(request) => return LinkExit::Requested(request),
                    None => return LinkExit::Dropped,
                },
            }
        }
    }

    /// Whether a reader of events is so far behind that reading from the server must pause.
    fn must_wait(&self) -> bool {
        self.settings.backpressure && self.shared.events.len() > KEPT / 2
    }

    /// Acknowledges at each heartbeat; fails when the link was silent for two of them.
    fn heartbeat_due(&mut self, transport: Transport, last_received: Instant) -> Result<(), LinkEnd> {
        if transport == Transport::Poll {
            // Each poll acknowledges, and has its own timeout.
            return Ok(());
        }
        if last_received.elapsed() > 2 * self.heartbeat {
            return Err(LinkEnd::new("the server sent nothing for two heartbeats"));
        }
        let seq = *self.seq.borrow();
        if seq > self.acked {
            self.acked = seq;
            let command = self.command("ack", json!({"seq": seq}), true, OnSuccess::Nothing, None);
            self.waiting.push_back(command);
        } else if transport == Transport::WebSocket && last_received.elapsed() > self.heartbeat.mul_f64(0.9) {
            let command = self.command("ping", json!({}), true, OnSuccess::Nothing, None);
            self.waiting.push_back(command);
        }
        Ok(())
    }

    /// Fails all waiting commands, unless they are kept for the next opening.
    fn end(&mut self, why: Error, keep: bool) {
        {
            let mut view = self.shared.view();
            if view.ended.is_some() {
                return;
            }
            (view.state, view.transport, view.ended) = (ConnectionState::Closed, None, Some(why.clone()));
            view.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
        }
        if keep {
            return self.requeue();
        }
        self.party_asked = false;
        self.restoring.clear();
        let later = std::mem::take(&mut self.later).into_iter().map(|(_, command)| command);
        for command in
            std::mem::take(&mut self.pending).into_values().chain(self.waiting.drain(..)).chain(later)
        {
            command.answer(Err(why.clone()));
        }
        self.shared.emit(Event::Closed(why));
    }
}
