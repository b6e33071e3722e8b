//! Requests that come over HTTP: single commands, polls, event streams, publishing, reports.

use crate::shard::input::{
    HttpAnswer, HttpCommand, HttpOrder, HttpPoll, HttpPublish, HttpStream, MailboxReport, SessionName,
    SessionReport,
};
use crate::shard::links::{PollLink, RequestLink, Seeking, StreamLink, Target};
use crate::shard::worker::Worker;
use std::sync::atomic::Ordering;
use tavern_domain::{ClientId, Identity, SessionKey, Time};
use tavern_hub::Input;
use tavern_hub::{
    Caller, Flow, Format, Goodbye, Link, LinkId, ListenerId, Poll, PollFlags, Seeker, Sought, Space,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::{json, sse};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

/// Bytes put together for one piece of an event stream.
const PIECE_BYTES: usize = 32 * 1024;

/// The command that a channel in a URL stands for; its id is the channel, as far as an id may be long.
fn subscription(channel: &str) -> Vec<u8> {
    let mut frame = b"{\"id\":".to_vec();
    json::string(&mut frame, &channel.chars().take(48).collect::<String>());
    frame.extend_from_slice(b",\"op\":\"subscribe\",\"channel\":");
    json::string(&mut frame, channel);
    frame.push(b'}');
    frame
}

fn is_hello(frame: &[u8]) -> bool {
    json::parse_request(frame).is_ok_and(|request| matches!(request.op, json::Op::Hello(_)))
}

fn gone() -> Refusal {
    Refusal::new(Code::Gone, "the session has ended; say hello again")
}

impl Worker {
    /// Looks for a session here and on other nodes.
    pub fn seek(
        &mut self,
        named: &SessionName,
        identity: Option<&Identity>,
        gentle: bool,
        link: LinkId,
    ) -> Sought {
        let seeker = Seeker { key: named.key, node: &named.node, identity, gentle };
        self.hub.seek(self.now, &seeker, link)
    }

    pub fn new_link(&mut self) -> LinkId {
        let link = self.links.reserve();
        self.hub.release_link(link);
        link
    }

    /// The session of a waiting request was found, or was not.
    pub fn resume_seeking(&mut self, link: LinkId) {
        let Some(Target::Seeking(seeking)) = self.links.take(link) else { return };
        match *seeking {
            Seeking::Command(command) => self.begin_command(link, command),
            Seeking::Poll(poll) => self.begin_poll(link, poll),
            Seeking::Stream(stream) => self.begin_stream(link, stream),
        }
    }

    pub fn http_command(&mut self, command: HttpCommand) {
        let link = self.new_link();
        self.begin_command(link, command);
    }

    fn begin_command(&mut self, link: LinkId, command: HttpCommand) {
        let unknown = |named: &&SessionName| self.hub.find_session(named.key).is_none();
        if let Some(named) = command.session.as_ref().filter(unknown) {
            match self.seek(named, command.identity.as_ref(), !is_hello(&command.frame), link) {
                Sought::Wait => {
                    return self.links.put(link, Target::Seeking(Box::new(Seeking::Command(command))));
                }
                Sought::Elsewhere(node) => {
                    self.links.retire(link);
                    let message =
                        format!("the session has its transport on node {node:?}: send commands there");
                    let _ = command.answer.send(Err(Refusal::new(Code::Conflict, message)));
                    return;
                }
                // Hello may name a session that is gone: it gets a new one.
                Sought::Here | Sought::Nowhere => {}
            }
        }
        self.run_command(link, command);
    }

    fn run_command(&mut self, link: LinkId, command: HttpCommand) {
        let HttpCommand { frame, session, identity, answer } = command;
        let listener = session.as_ref().and_then(|named| self.hub.find_session(named.key));
        if session.is_some() && listener.is_none() && identity.is_none() {
            self.links.retire(link);
            let _ = answer.send(Err(gone()));
            return;
        }
        let own = listener.and_then(|id| self.hub.listener(id)?.session());
        if own.zip(identity.as_ref()).is_some_and(|(own, given)| own.identity.user != given.user) {
            let refusal =
                Refusal::new(Code::NotAllowed, "the session belongs to another user than the token");
            self.links.retire(link);
            let _ = answer.send(Err(refusal));
            return;
        }
        let link = Link { id: link, format: Format::Poll };
        let mut caller = Caller::passing(link, listener, identity);
        caller.sought = session.is_some();
        self.run_request(RequestLink { caller, frame, answer });
    }

    fn run_request(&mut self, mut request: RequestLink) {
        let link = request.caller.link.id;
        self.reply.clear();
        if let Some(id) = request.caller.listener {
            self.hub.heard(self.now, id);
        }
        match self.hub.command(self.now, &mut request.caller, &request.frame, &mut self.reply) {
            Flow::Wait => self.links.put(link, Target::Request(Box::new(request))),
            flow => {
                self.links.retire(link);
                if flow == Flow::Close(Goodbye::Abuse)
                    && let Some(id) = request.caller.listener
                {
                    self.hub.end(id);
                }
                let _ = request.answer.send(Ok((self.hub.refused_with, self.reply.clone())));
            }
        }
    }

    pub fn rerun_request(&mut self, link: LinkId) {
        if let Some(Target::Request(request)) = self.links.take(link) {
            self.run_request(*request);
        }
    }

    pub fn http_publish(&mut self, publish: HttpPublish) {
        let name = publish.channel.as_bytes();
        let receivers = self.hub.publish(self.now, Space::Channel, name, &publish.data, true, None);
        let _ = publish.answer.send(receivers);
    }

    pub fn http_order(&mut self, order: HttpOrder) {
        self.ordered += 1;
        self.orders.insert(self.ordered, order.answer);
        self.hub.handle(self.now, Input::Order { number: self.ordered, order: order.order });
    }

    pub fn http_poll(&mut self, poll: HttpPoll) {
        let link = self.new_link();
        self.begin_poll(link, poll);
    }

    fn begin_poll(&mut self, link: LinkId, poll: HttpPoll) {
        if let Some(named) = &poll.session
            && self.seek(named, poll.identity.as_ref(), false, link) == Sought::Wait
        {
            return self.links.put(link, Target::Seeking(Box::new(Seeking::Poll(poll))));
        }
        if !self.meet_newcomer(poll.session.as_ref(), poll.identity.as_ref(), link) {
            return self.links.put(link, Target::Seeking(Box::new(Seeking::Poll(poll))));
        }
        let HttpPoll { session, named, identity, cursor, timeout_ms, answer } = poll;
        let session = session.map(|named| named.key);
        let mut outcome = match session {
            Some(key) => self.hub.poll(self.now, key, identity.as_ref(), link, cursor, timeout_ms),
            None => Poll::Unknown,
        };
        let mut listener = session.and_then(|key| self.hub.find_session(key));
        if outcome == Poll::Unknown {
            let Some(identity) = identity else {
                self.links.retire(link);
                let _ = answer.send(Err(gone()));
                return;
            };
            // The first poll, or the first after the session was lost: a new one, whose numbers begin anew.
            listener = Some(self.hub.open_session(self.now, identity, None));
            outcome = Poll::Ready { reset: named };
        }
        match outcome {
            Poll::Parked => self.links.put(link, Target::Poll(PollLink { listener, answer: Some(answer) })),
            Poll::Ready { reset } => {
                self.links.retire(link);
                let id = listener.expect("a session that answered exists");
                let flags = PollFlags { reset, superseded: false };
                self.send_poll(id, flags, answer);
            }
            Poll::Unknown => unreachable!("a new session was made"),
        }
    }

    /// Whether the party of somebody without a session is known, so that he can be told.
    /// Whoever comes back must not be late because of the store.
    fn meet_newcomer(
        &mut self,
        named: Option<&SessionName>,
        identity: Option<&Identity>,
        link: LinkId,
    ) -> bool {
        let known = named.and_then(|named| self.hub.find_session(named.key));
        let user = identity.and_then(|identity| identity.user.clone());
        known.is_some() || self.hub.meet(self.now, user.as_ref(), link)
    }

    fn send_poll(&mut self, id: ListenerId, flags: PollFlags, answer: oneshot::Sender<HttpAnswer>) {
        let mut body = Vec::with_capacity(256);
        self.hub.render_poll(self.now, id, flags, &mut body);
        // A client that is gone gets the same events with its next poll.
        let _ = answer.send(Ok((None, body)));
    }

    /// Something has come for a parked poll, or its time is over.
    pub fn answer_poll(&mut self, link: LinkId, id: ListenerId) {
        if let Some(Target::Poll(PollLink { answer: Some(answer), .. })) = self.links.take(link) {
            self.links.retire(link);
            self.send_poll(id, PollFlags::default(), answer);
        }
    }

    pub fn end_poll(&mut self, link: LinkId, goodbye: Goodbye) {
        let Some(Target::Poll(PollLink { listener, answer: Some(answer) })) = self.links.take(link) else {
            return;
        };
        self.links.retire(link);
        match (goodbye, listener) {
            (Goodbye::Superseded, Some(id)) => {
                self.send_poll(id, PollFlags { superseded: true, ..PollFlags::default() }, answer);
            }
            (Goodbye::Closing, _) => {
                let refusal = Refusal::new(Code::Unavailable, "the server is stopping");
                let _ = answer.send(Err(refusal.retry_after(self.reconnect_after_ms())));
            }
            (Goodbye::TokenExpired, _) => {
                let _ = answer.send(Err(Refusal::new(Code::Unauthenticated, "the token has expired")));
            }
            _ => {
                let _ = answer.send(Err(gone()));
            }
        }
    }

    pub fn http_stream(&mut self, request: HttpStream) {
        let id = self.new_link();
        self.begin_stream(id, request);
    }

    fn begin_stream(&mut self, id: LinkId, request: HttpStream) {
        if let Some(named) = &request.session
            && self.seek(named, request.identity.as_ref(), false, id) == Sought::Wait
        {
            return self.links.put(id, Target::Seeking(Box::new(Seeking::Stream(request))));
        }
        if !self.meet_newcomer(request.session.as_ref(), request.identity.as_ref(), id) {
            return self.links.put(id, Target::Seeking(Box::new(Seeking::Stream(request))));
        }
        let HttpStream { session, identity, seq, channels, events, begun, wants_room } = request;
        let link = Link { id, format: Format::Sse };
        let opened = self.open_stream(session.map(|named| named.key), identity, seq, link);
        let (listener, resumed, reset) = match opened {
            Ok(opened) => opened,
            Err(refusal) => {
                self.links.retire(id);
                let _ = begun.send(Err(refusal));
                return;
            }
        };
        let mut body = Vec::new();
        self.hub.write_hello(listener, resumed, reset, &mut body);
        let mut frame = Vec::new();
        json::reply_ok(&mut frame, None, &body);
        let mut piece = Vec::new();
        sse::event(&mut piece, None, &frame);
        let _ = events.try_send(piece.into());
        let written_ms = self.since_start();
        let asked = channels.iter().map(|channel| subscription(channel)).collect();
        let stream = StreamLink { listener, asked, events, blocked: false, wants_room, written_ms };
        self.links.put(id, Target::Stream(Box::new(stream)));
        let _ = begun.send(Ok(id));
        self.subscribe_stream(id);
        self.write_stream(id);
    }

    fn open_stream(
        &mut self,
        session: Option<SessionKey>,
        identity: Option<Identity>,
        seq: Option<u64>,
        link: Link,
    ) -> Result<(ListenerId, bool, bool), Refusal> {
        if let Some(key) = session {
            let known = self.hub.find_session(key).and_then(|id| self.hub.listener(id)?.session());
            let identity = identity.clone().or_else(|| known.map(|session| session.identity.clone()));
            if let Some(identity) = identity
                && let Some(attached) = self.hub.attach(self.now, key, &identity, link, seq)
            {
                return Ok((attached.listener, true, attached.reset));
            }
        }
        match identity {
            Some(identity) => Ok((self.hub.open_session(self.now, identity, Some(link)), false, false)),
            None if session.is_some() => Err(gone()),
            None => Err(Refusal::new(Code::Unauthenticated, "a token is needed")),
        }
    }

    /// Subscribes for a client that can only open a URL, as far as nothing has to be waited for. The replies come in the
    /// stream, before all events of their channels.
    pub fn subscribe_stream(&mut self, link: LinkId) {
        loop {
            let Some(Target::Stream(stream)) = self.links.get_mut(link) else { return };
            let Some(frame) = stream.asked.pop_front() else { return };
            let mut caller = Caller::new(Link { id: link, format: Format::Sse }, None);
            caller.listener = Some(stream.listener);
            self.reply.clear();
            if self.hub.command(self.now, &mut caller, &frame, &mut self.reply) == Flow::Wait {
                stream.asked.push_front(frame);
                return;
            }
            let mut piece = Vec::new();
            sse::event(&mut piece, None, &self.reply);
            // A stream holds more pieces than a URL can ask for channels; one that is closed is found out by its next event.
            let _ = stream.events.try_send(piece.into());
        }
    }

    /// Gives a stream what is unread, as long as it has room.
    pub fn write_stream(&mut self, link: LinkId) {
        loop {
            let now_ms = self.since_start();
            let Some(Target::Stream(stream)) = self.links.get_mut(link) else { return };
            if stream.blocked {
                return;
            }
            let id = stream.listener;
            self.scratch.clear();
            let more = self.scratch.fill(&mut self.hub.core, id, link, PIECE_BYTES);
            if self.scratch.bytes.is_empty() {
                return;
            }
            match stream.events.try_send(self.scratch.bytes.clone().into()) {
                Ok(()) => {
                    stream.written_ms = now_ms;
                    let all = self.scratch.bytes.len();
                    self.scratch.settle(&mut self.hub.core, id, all);
                }
                Err(TrySendError::Full(_)) => {
                    stream.blocked = true;
                    stream.wants_room.store(true, Ordering::Release);
                    return;
                }
                Err(TrySendError::Closed(_)) => {
                    self.drop_stream(link);
                    return;
                }
            }
            if !more {
                return;
            }
        }
    }

    pub fn stream_has_room(&mut self, link: LinkId) {
        if let Some(Target::Stream(stream)) = self.links.get_mut(link) {
            stream.blocked = false;
            self.write_stream(link);
        }
    }

    pub fn drop_stream(&mut self, link: LinkId) {
        if let Some(Target::Stream(stream)) = self.links.take(link) {
            self.links.retire(link);
            self.hub.detach(self.now, stream.listener, link);
        }
    }

    pub fn end_stream(&mut self, link: LinkId, goodbye: Goodbye) {
        let spread = self.reconnect_after_ms();
        let Some(Target::Stream(stream)) = self.links.take(link) else { return };
        self.links.retire(link);
        let mut event = Vec::new();
        match goodbye {
            Goodbye::Superseded => json::superseded(&mut event),
            Goodbye::Closing => json::closing(&mut event, spread),
            _ => {
                let refusal = Refusal::new(Code::Gone, goodbye.reason());
                json::reply_error(&mut event, None, &refusal);
            }
        }
        let mut piece = Vec::new();
        sse::event(&mut piece, None, &event);
        // Dropping the sender ends the response.
        let _ = stream.events.try_send(piece.into());
    }

    /// Why a client counts as online, for people who ask.
    pub fn report(&self, client: ClientId) -> Option<SessionReport> {
        let id = tavern_hub::core::attach::find_client(&self.hub.core, client)?;
        let listener = self.hub.listener(id)?;
        let session = listener.session()?;
        let settings = &self.context.node.settings;
        let transport = listener.link.map(|link| match link.format {
            Format::WebSocket => "websocket",
            Format::Sse => "sse",
            Format::Poll => "poll",
            Format::Resp2 | Format::Resp3 => "redis",
        });
        let lost_at = session.lost_at(settings.poll_idle_ms);
        let online = transport.is_some() || self.now < lost_at;
        let expires_at = tavern_hub::core::sweep::session_expires_at(&self.hub.core, id);
        let why = match transport {
            Some(transport) => format!("a {transport} transport is attached"),
            None if online => format!(
                "it polls; the last poll or command ended {} ms ago",
                self.now.since(session.heard_at)
            ),
            None => format!(
                "its transport was lost {} ms ago; it can be resumed until {}",
                self.now.since(lost_at),
                expires_at.ms()
            ),
        };
        let names = |space| -> Vec<String> {
            let mut names: Vec<String> = self
                .hub
                .subscriptions(id, space)
                .iter()
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
            names.sort();
            names
        };
        let mailbox = &listener.mailbox;
        Some(SessionReport {
            client: session.client.to_string(),
            user: session.identity.user.as_deref().map(str::to_owned),
            name: session.identity.name.as_deref().map(str::to_owned),
            node: settings.node.clone(),
            shard: self.index,
            since: session.since.ms(),
            transport,
            online,
            why,
            heard_at: session.heard_at.ms(),
            expires_at: transport.is_none().then_some(expires_at.ms()),
            token_expires_at: (session.identity.expires != Time::NEVER)
                .then_some(session.identity.expires.ms()),
            channels: names(Space::Channel),
            patterns: names(Space::Pattern),
            mailbox: MailboxReport {
                first: mailbox.first(),
                last: mailbox.last(),
                sent: mailbox.sent(),
                events: mailbox.len(),
                bytes: mailbox.bytes(),
            },
        })
    }
}
