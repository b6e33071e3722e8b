//! One session over however many links, owned by one task: opens them, resumes, repeats what may be repeated, drops what came twice.
//! Must hold: an event is told once; a command is answered once, by the server or by the reason why nobody knows; a session that was
//! superseded never comes back by itself.

use crate::address::Address;
use crate::auth::Auth;
use crate::backoff::{Backoff, chance};
use crate::error::Ending;
use crate::event::{Event, KEPT};
use crate::frame::{Frame, Outgoing};
use crate::link::{Credential, Incoming, Link, SUPERSEDED, TOKEN_EXPIRED, Transport};
use crate::shared::{Ask, Control, Note, Shared};
use crate::wanted::Wanted;
use crate::{Error, State};
use rustls::ClientConfig;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

mod answer;
mod connect;
mod mail;

/// Commands that wait for a link or an answer.
const WAITING: usize = 16_384;
/// Frames taken from a link at once.
const BATCH: usize = 64;
/// A link that lived so long ends the backing off.
const STEADY: Duration = Duration::from_secs(5);
const BYE_PATIENCE: Duration = Duration::from_secs(2);
/// How soon to look again whether a slow reader has caught up.
const CATCH_UP: Duration = Duration::from_millis(2);

pub(crate) struct Settings {
    pub addresses: Vec<Address>,
    pub transports: Vec<Transport>,
    pub auth: Option<Auth>,
    pub statuses: bool,
    /// After so many failures to open the first session, give up.
    pub attempts: Option<u32>,
    /// Read no faster than the slowest reader of events.
    pub backpressure: bool,
    pub tls: Arc<ClientConfig>,
}

struct Command {
    id: u64,
    frame: Outgoing,
    safe: bool,
    note: Note,
    /// None: the client asks by itself.
    reply: Option<oneshot::Sender<Result<Value, Error>>>,
    tries: u32,
}

impl Command {
    fn op(&self) -> &str {
        self.frame.members["op"].as_str().unwrap_or_default()
    }

    fn is_wanted(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| !reply.is_closed())
    }

    fn answer(self, answer: Result<Value, Error>) {
        if let Some(reply) = self.reply {
            // Whoever asked may have gone.
            let _ = reply.send(answer);
        }
    }
}

pub(crate) struct Session {
    settings: Settings,
    shared: Arc<Shared>,
    asks: mpsc::Receiver<Ask>,
    credential: Arc<Credential>,
    session: Option<String>,
    /// The last event that was taken.
    seq: watch::Sender<u64>,
    acked: u64,
    heartbeat: Duration,
    ids: u64,
    waiting: VecDeque<Command>,
    pending: BTreeMap<u64, Command>,
    /// Refused for now; to be asked again at their time.
    later: Vec<(Instant, Command)>,
    wanted: Wanted,
    letter: u64,
    party_asked: bool,
    /// What another session was told of what was wanted, and has not answered yet.
    restoring: BTreeSet<u64>,
    backoff: Backoff,
    at: usize,
    way: usize,
    refusals: u32,
    worked: Vec<Transport>,
    stale: bool,
    fresh: bool,
    closing_ms: Option<u64>,
}

/// Why a link was left.
enum Left {
    Lost(Ending),
    Told(Control),
    /// All handles are gone.
    Forgotten,
}

impl Session {
    pub fn new(settings: Settings, shared: Arc<Shared>, asks: mpsc::Receiver<Ask>) -> Session {
        let ticket = shared.face().ticket.clone();
        Session {
            credential: Arc::new(Credential::new(settings.auth.as_ref())),
            settings,
            asks,
            session: ticket.as_ref().map(|(session, _)| session.clone()),
            seq: watch::channel(ticket.map_or(0, |(_, seq)| seq)).0,
            acked: 0,
            heartbeat: Duration::from_secs(15),
            ids: 0,
            waiting: VecDeque::new(),
            pending: BTreeMap::new(),
            later: Vec::new(),
            wanted: Wanted::default(),
            letter: 0,
            party_asked: false,
            restoring: BTreeSet::new(),
            backoff: Backoff::default(),
            at: 0,
            way: 0,
            refusals: 0,
            worked: Vec::new(),
            stale: false,
            fresh: false,
            closing_ms: None,
            shared,
        }
    }

    /// Until all handles are gone.
    pub async fn run(mut self, mut control: mpsc::Receiver<Control>) {
        loop {
            let opened = tokio::select! {
                told = control.recv() => match told {
                    Some(Control::Open(opened)) => opened,
                    Some(Control::Suspend(done) | Control::Close(done)) => {
                        let _ = done.send(());
                        continue;
                    }
                    Some(Control::Drop) => continue,
                    None => return,
                },
                ask = self.asks.recv() => match ask {
                    Some(ask) => {
                        let ended = self.shared.face().ended.clone().unwrap_or_else(Error::closed);
                        let _ = ask.reply.send(Err(ended));
                        continue;
                    }
                    None => return,
                },
            };
            {
                let mut face = self.shared.face();
                (face.ended, face.state) = (None, State::Connecting);
            }
            match self.live(&mut control, opened).await {
                Some((ended, keep)) => self.end(ended, keep),
                None => return,
            }
        }
    }

    /// From opening to the end, and whether what waits is kept for the next opening. None: all handles are gone.
    async fn live(
        &mut self,
        control: &mut mpsc::Receiver<Control>,
        opened: oneshot::Sender<Result<(), Error>>,
    ) -> Option<(Error, bool)> {
        let mut opened = vec![opened];
        loop {
            let connected = tokio::select! {
                connected = self.connect() => Ok(connected),
                told = control.recv() => Err(told),
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
                Err(told) => match self.leave(told?, None).await {
                    Some(left) => return Some(left),
                    None => continue,
                },
            };
            for opened in opened.drain(..) {
                let _ = opened.send(Ok(()));
            }
            let began = Instant::now();
            let ending = match self.serve(&mut link, control).await {
                Left::Lost(ending) => ending,
                Left::Forgotten => return None,
                Left::Told(told) => match self.leave(told, Some(&mut link)).await {
                    Some(left) => return Some(left),
                    None => Ending::new("dropped"),
                },
            };
            drop(link);
            if began.elapsed() > STEADY {
                self.backoff.reset();
            }
            if let Err(ended) = self.judge(&ending) {
                return Some((ended, false));
            }
            self.reconnect(ending);
            let wait = self.closing_ms.take().map(Duration::from_millis);
            let wait = wait.unwrap_or_else(|| self.backoff.next(chance(), None));
            tokio::select! {
                () = sleep(wait) => {}
                told = control.recv() => if let Some(left) = self.leave(told?, None).await {
                    return Some(left);
                },
            }
        }
    }

    /// Obeys a handle. None: only the link was to go.
    async fn leave(&mut self, told: Control, link: Option<&mut Link>) -> Option<(Error, bool)> {
        match told {
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
                    // The server notices by itself if this does not arrive.
                    let _ = timeout(BYE_PATIENCE, self.goodbye(link)).await;
                }
                self.session = None;
                self.seq.send_replace(0);
                self.end(Error::closed(), false);
                let _ = done.send(());
                Some((Error::closed(), false))
            }
        }
    }

    async fn goodbye(&mut self, link: &mut Link) {
        let id = self.next_id();
        let _ = link.outgoing.send(json!({"id": id, "op": "bye"}).into()).await;
        while let Some(incoming) = link.incoming.recv().await {
            match incoming {
                Incoming::Frame(frame) if frame.value["id"] == id => return,
                Incoming::End(_) => return,
                _ => {}
            }
        }
    }

    /// Whether the client may come back after this.
    fn judge(&mut self, ending: &Ending) -> Result<(), Error> {
        match ending.code {
            Some(SUPERSEDED) => {
                self.shared.tell(Event::Superseded);
                Err(Error::new("superseded", "the session goes on elsewhere"))
            }
            Some(TOKEN_EXPIRED) if !matches!(self.settings.auth, Some(Auth::Source(_))) => {
                Err(Error::new("unauthenticated", "the token has ended, and nothing gives another"))
            }
            Some(TOKEN_EXPIRED) => {
                self.stale = true;
                Ok(())
            }
            Some(4002..=4499) => {
                Err(Error::new("gone", format!("the server does not want this client back: {}", ending.why)))
            }
            _ => Ok(()),
        }
    }

    fn reconnect(&mut self, ending: Ending) {
        {
            let mut face = self.shared.face();
            (face.state, face.transport) = (State::Connecting, None);
        }
        if self.worked.contains(&self.settings.transports[0]) {
            // Another stood in for it: the best is the next.
            (self.way, self.refusals) = (0, 0);
        }
        self.requeue();
        self.shared.tell(Event::Reconnecting { why: ending.why });
    }

    async fn serve(&mut self, link: &mut Link, control: &mut mpsc::Receiver<Control>) -> Left {
        let mut heard = Instant::now();
        let mut beat = tokio::time::interval_at(heard + self.heartbeat, self.heartbeat);
        let mut renew = self.renewal();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let due = self.later.iter().map(|(at, _)| *at).min();
            let soon = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                () = sleep(CATCH_UP), if self.must_wait() => heard = Instant::now(),
                count = link.incoming.recv_many(&mut batch, BATCH), if !self.must_wait() => {
                    // Beside a stream, the answers to commands come by another connection.
                    let beside = |frame: &Frame| link.transport == Transport::Sse && frame.value.get("id").is_some();
                    if !batch.iter().all(|incoming| matches!(incoming, Incoming::Frame(frame) if beside(frame))) {
                        heard = Instant::now();
                    }
                    let taken = match count {
                        0 => Err(Ending::new("the link ended")),
                        _ => batch.drain(..).try_for_each(|incoming| match incoming {
                            Incoming::Frame(frame) => self.take(frame),
                            Incoming::Life => Ok(()),
                            Incoming::End(ending) => Err(ending),
                        }),
                    };
                    if let Err(ending) = taken {
                        return Left::Lost(ending);
                    }
                }
                room = link.outgoing.reserve(), if !self.waiting.is_empty() => match room {
                    Ok(room) => if let Some(frame) = self.next_frame() { room.send(frame) },
                    // The reader knows why, and what came before the end.
                    Err(_) => sleep(Duration::from_millis(50)).await,
                },
                ask = self.asks.recv(), if self.waiting.len() + self.pending.len() < WAITING => match ask {
                    Some(ask) => {
                        let mut command = self.command(&ask.op, Value::Object(ask.members), ask.safe, ask.note, Some(ask.reply));
                        command.frame.data = ask.data;
                        self.waiting.push_back(command);
                    }
                    None => return Left::Forgotten,
                },
                _ = beat.tick() => if let Err(ending) = self.beat(link.transport, heard) {
                    return Left::Lost(ending);
                },
                () = sleep_until(renew.unwrap_or(soon)), if renew.is_some() => {
                    self.stale = true;
                    match self.provide_token().await {
                        Ok(()) => {
                            let members = json!({"token": self.credential.token()});
                            let command = self.command("hello", members, true, Note::Nothing, None);
                            self.waiting.push_back(command);
                            renew = self.renewal();
                        }
                        Err(why) => return Left::Lost(Ending::new(why)),
                    }
                }
                () = sleep_until(due.unwrap_or(soon)), if due.is_some() => self.ask_again(),
                told = control.recv() => match told {
                    Some(Control::Open(done)) => {
                        let _ = done.send(Ok(()));
                    }
                    Some(told) => return Left::Told(told),
                    None => return Left::Forgotten,
                },
            }
        }
    }

    /// Whether a reader of events is so far behind that the server has to wait for it.
    fn must_wait(&self) -> bool {
        self.settings.backpressure && self.shared.events.len() > KEPT / 2
    }

    /// Acknowledges at each heartbeat, and gives up a link that was silent for two of them.
    fn beat(&mut self, transport: Transport, heard: Instant) -> Result<(), Ending> {
        if transport == Transport::Poll {
            // Each poll acknowledges, and has its own time.
            return Ok(());
        }
        if heard.elapsed() > 2 * self.heartbeat {
            return Err(Ending::new("the link is silent"));
        }
        let seq = *self.seq.borrow();
        if seq > self.acked {
            self.acked = seq;
            let command = self.command("ack", json!({"seq": seq}), true, Note::Nothing, None);
            self.waiting.push_back(command);
        } else if transport == Transport::WebSocket && heard.elapsed() > self.heartbeat.mul_f64(0.9) {
            let command = self.command("ping", json!({}), true, Note::Nothing, None);
            self.waiting.push_back(command);
        }
        Ok(())
    }

    /// Everybody who waits hears why, unless what waits is kept for the next opening.
    fn end(&mut self, why: Error, keep: bool) {
        {
            let mut face = self.shared.face();
            if face.ended.is_some() {
                return;
            }
            (face.state, face.transport, face.ended) = (State::Closed, None, Some(why.clone()));
            face.ticket = self.session.clone().map(|session| (session, *self.seq.borrow()));
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
        self.shared.tell(Event::Closed(why));
    }
}
