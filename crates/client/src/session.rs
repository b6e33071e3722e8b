//! One session over any number of links, owned by one task: it opens links, resumes, retries safe commands, drops
//! duplicates. Must hold: every event is emitted once; every command has one answer, or an unknown outcome; a
//! superseded session never reconnects on its own.

use crate::address::ServerUrl;
use crate::auth::Auth;
use crate::bounds::{BYE_TIMEOUT, STEADY};
use crate::decisions::{AfterClose, AfterLoss, after_close, after_loss, backoff};
use crate::desired::Desired;
use crate::error::LinkEnd;
use crate::event::{Event, FailedRestore};
use crate::fault;
use crate::frame::Outgoing;
use crate::link::{Link, LinkEvent, SessionCredential, Transport};
use crate::random::chance;
use crate::shared::{ClientShared, CommandRequest, Control, OnSuccess};
use crate::{ConnectionState, Error};
use futures_util::FutureExt;
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

mod commands;
mod connect;
mod events;
mod serve;
#[cfg(test)]
mod tests;

/// The ids that this client had, of its last sessions.
const OWN_CLIENTS: usize = 8;

pub(crate) struct SessionSettings {
    pub addresses: Vec<ServerUrl>,
    pub transports: Vec<Transport>,
    pub auth: Option<Auth>,
    pub statuses: bool,
    /// The number of failures to open the first session after which it gives up.
    pub attempts: Option<u32>,
    /// Backpressure: read no faster than the slowest reader of events.
    pub backpressure: bool,
    /// Give the app the messages that this client has published itself.
    pub echo: bool,
    pub connect_timeout: Duration,
    pub tls: Arc<ClientConfig>,
    pub debug: Option<DebugLog>,
}

/// Gets a line for each step of the connection.
pub(crate) type DebugLog = Arc<dyn Fn(&str) + Send + Sync>;

impl SessionSettings {
    /// Whether there is a source of new tokens.
    fn renews(&self) -> bool {
        matches!(self.auth, Some(Auth::Source(_)))
    }

    /// Must hold: no line contains a secret.
    fn log(&self, line: impl FnOnce() -> String) {
        if let Some(debug) = &self.debug {
            debug(&line());
        }
    }
}

struct SentCommand {
    id: u64,
    frame: Outgoing,
    safe: bool,
    on_success: OnSuccess,
    /// None: the client sent it on its own.
    reply: Option<oneshot::Sender<Result<Value, Error>>>,
    /// Known to the caller.
    sent: Arc<AtomicBool>,
    retries: u32,
    /// Counted until the command ends.
    _permit: Option<OwnedSemaphorePermit>,
}

impl SentCommand {
    fn op(&self) -> &str {
        self.frame.members["op"].as_str().unwrap_or_default()
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| !reply.is_closed())
    }

    fn unknown_outcome(self) {
        let why =
            format!("the connection was lost before the reply to {}; it may have been executed", self.op());
        self.answer(Err(Error::UnknownOutcome(why)));
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
    /// There was a session: what the app had in it is restored in the next one.
    had_session: bool,
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
    /// Those who wait for the session to open.
    opening: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Restoring commands without an answer yet, and what was refused.
    restoring: BTreeMap<u64, FailedRestore>,
    failed: Vec<FailedRestore>,
    /// The public ids that this client had.
    own: Vec<String>,
    /// Channels with a change of which the other half may follow until then.
    held: BTreeMap<String, Instant>,
    /// Attempts to connect since the last steady connection.
    attempts: u32,
    address: usize,
    transport: usize,
    refusals: u32,
    worked: Vec<Transport>,
    /// The transport in use stands in for the first one, which has worked before.
    stands_in: bool,
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
            had_session: ticket.is_some(),
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
            opening: Vec::new(),
            restoring: BTreeMap::new(),
            failed: Vec::new(),
            own: Vec::new(),
            held: BTreeMap::new(),
            attempts: 0,
            address: 0,
            transport: 0,
            refusals: 0,
            worked: Vec::new(),
            stands_in: false,
            token_expired: false,
            token_is_new: false,
            closing_ms: None,
            shared,
        }
    }

    /// Runs until all handles are dropped. A panic ends the client: every pending and every later call fails.
    pub async fn supervise(mut self, mut control: mpsc::Receiver<Control>) {
        if let Err(panic) = AssertUnwindSafe(self.run(&mut control)).catch_unwind().await {
            let failed = Error::Failed(fault::cause(&*panic));
            // Even if it had ended before.
            self.shared.view().ended = None;
            self.end(failed.clone(), false);
            self.requests.close();
            while let Ok(ask) = self.requests.try_recv() {
                let _ = ask.reply.send(Err(failed.clone()));
            }
        }
    }

    async fn run(&mut self, control: &mut mpsc::Receiver<Control>) {
        loop {
            let opened = tokio::select! {
                request = control.recv() => match request {
                    Some(Control::Open(opened)) => opened,
                    Some(Control::Close(done)) => {
                        // A suspended session is given up.
                        self.end(Error::closed(), false);
                        let _ = done.send(());
                        continue;
                    }
                    Some(Control::Suspend(done)) => {
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
            self.opening.push(opened);
            {
                let mut view = self.shared.view();
                (view.ended, view.state) = (None, ConnectionState::Connecting);
            }
            match self.run_session(control).await {
                Some((ended, keep)) => self.end(ended, keep),
                None => return,
            }
        }
    }

    /// Runs a session from opening to its end; returns why it ended and whether queued commands are kept for the next opening.
    /// None: all handles are dropped.
    async fn run_session(&mut self, control: &mut mpsc::Receiver<Control>) -> Option<(Error, bool)> {
        loop {
            let connected = tokio::select! {
                connected = self.connect() => Ok(connected),
                request = control.recv() => Err(request),
            };
            let mut link = match connected {
                Ok(Ok(link)) => link,
                Ok(Err(ended)) => return Some((ended, false)),
                Err(Some(Control::Open(another))) => {
                    self.opening.push(another);
                    continue;
                }
                Err(request) => match self.leave(request?, None).await {
                    Some(left) => return Some(left),
                    None => continue,
                },
            };
            for opened in self.opening.drain(..) {
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
                self.attempts = 0;
            }
            if let Err(ended) = self.check_reconnect(&ending) {
                return Some((ended, false));
            }
            self.reconnect(ending);
            let wait = self.closing_ms.take().map(Duration::from_millis);
            let wait = wait.unwrap_or_else(|| self.next_wait(None));
            tokio::select! {
                () = sleep(wait) => {}
                request = control.recv() => if let Some(left) = self.leave(request?, None).await {
                    return Some(left);
                },
            }
        }
    }

    fn next_wait(&mut self, at_least_ms: Option<u64>) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        backoff(self.attempts, chance(), at_least_ms)
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
                let suspended = Error::Closed("this client is suspended".to_owned());
                self.end(suspended.clone(), true);
                let _ = done.send(());
                Some((suspended, true))
            }
            Control::Close(done) => {
                if let Some(link) = link {
                    // If this does not arrive, the server detects the loss itself.
                    let _ = timeout(BYE_TIMEOUT, self.send_bye(link)).await;
                }
                self.end(Error::closed(), false);
                let _ = done.send(());
                Some((Error::closed(), false))
            }
        }
    }

    async fn send_bye(&mut self, link: &mut Link) {
        let SentCommand { id, frame, .. } = self.command("bye", json!({}), false, OnSuccess::Nothing, None);
        let _ = link.outgoing.send(frame).await;
        while let Some(incoming) = link.incoming.recv().await {
            match incoming {
                LinkEvent::Frame(frame) if frame.value["id"] == id => return,
                LinkEvent::End(_) | LinkEvent::Failed(_) => return,
                _ => {}
            }
        }
    }

    /// Whether the client may reconnect after this.
    fn check_reconnect(&mut self, ending: &LinkEnd) -> Result<(), Error> {
        match after_close(ending.code, self.settings.renews(), &ending.why) {
            AfterClose::Reconnect => Ok(()),
            AfterClose::NewToken => {
                self.token_expired = true;
                Ok(())
            }
            AfterClose::Close(error) => {
                if error == Error::Superseded {
                    self.shared.emit(Event::Superseded);
                }
                Err(error)
            }
        }
    }

    fn reconnect(&mut self, ending: LinkEnd) {
        self.settings.log(|| format!("connection lost: {}", ending.why));
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

    /// Fails all waiting commands, unless they are kept for the next opening.
    fn end(&mut self, why: Error, keep: bool) {
        {
            let mut view = self.shared.view();
            if view.ended.is_some() && view.state != ConnectionState::Suspended {
                return;
            }
            view.state = if keep { ConnectionState::Suspended } else { ConnectionState::Closed };
            (view.transport, view.ended) = (None, Some(why.clone()));
            if !keep {
                // What is opened next is another session.
                self.session = None;
                self.seq.send_replace(0);
            }
            view.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
        }
        self.settings.log(|| format!("{}: {}", if keep { "suspended" } else { "closed" }, why.message()));
        self.shared.over.notify_waiters();
        for opened in self.opening.drain(..) {
            let _ = opened.send(Err(why.clone()));
        }
        if keep {
            return self.requeue();
        }
        self.party_asked = false;
        self.restoring.clear();
        self.held.clear();
        for command in std::mem::take(&mut self.pending).into_values() {
            // A client that has failed says so.
            match after_loss(command.op(), command.safe, true) {
                AfterLoss::UnknownOutcome if !matches!(why, Error::Failed(_)) => command.unknown_outcome(),
                _ => command.answer(Err(why.clone())),
            }
        }
        let later = std::mem::take(&mut self.later).into_iter().map(|(_, command)| command);
        for command in self.waiting.drain(..).chain(later) {
            command.answer(Err(why.clone()));
        }
        self.shared.emit(Event::Closed(why));
    }
}
