//! Single requests over HTTP: commands, publishing, commands of apps. A request whose session is looked up on other
//! nodes, or whose command waits, is kept under a link.

use crate::shard::input::{HttpCommand, HttpPublish, HttpServiceCommand, SessionName};
use crate::shard::links::{LinkTarget, RequestLink, WaitingForSession};
use crate::shard::state::ShardState;
use crate::shard::{polls, streams};
use crate::topics::TopicRequest;
use std::collections::HashMap;
use tavern_hub::core::attach::acting_identity;
use tavern_hub::topics::TopicReply;
use tavern_hub::{Caller, CloseReason, EventFormat, Flow, Link, LinkId, LookupResult, Namespace, ShardEvent};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::{self, BadRequest, ParsedCommand};
use tokio::sync::oneshot;

/// The receiver of the reply to a command of an app.
type ServiceAnswer = oneshot::Sender<Result<Vec<u8>, Refusal>>;

/// The receiver of the reply to a command about topics.
type TopicAnswer = oneshot::Sender<Result<TopicReply, Refusal>>;

#[derive(Default)]
pub struct HttpRequests {
    /// Waiting commands of apps, by number.
    orders: HashMap<u64, ServiceAnswer>,
    last_order: u64,
    /// Waiting commands about topics, by number.
    topics: HashMap<u64, TopicAnswer>,
    last_topic: u64,
}

pub fn session_ended() -> Refusal {
    Refusal::new(Code::Gone, "the session has ended; send hello again")
}

/// The session secret alone is not enough for a session that was opened with a token or an API key.
pub fn unproved() -> Refusal {
    let message = "this session needs the token or API key that opened it: Authorization: Bearer TOKEN";
    Refusal::new(Code::Unauthenticated, message)
}

impl HttpRequests {
    pub fn command(&mut self, state: &mut ShardState, command: HttpCommand) {
        let link = state.new_link();
        begin_command(state, link, command);
    }

    /// The lookup of a waiting request's session has ended.
    pub fn resume_seeking(&mut self, state: &mut ShardState, link: LinkId) {
        let Some(LinkTarget::Seeking(seeking)) = state.links.take(link) else { return };
        match *seeking {
            WaitingForSession::Command(command) => begin_command(state, link, command),
            WaitingForSession::Poll(poll) => polls::begin(state, link, poll),
            WaitingForSession::Stream(stream) => streams::begin(state, link, stream),
        }
    }

    /// A waiting command can continue.
    pub fn resume(&mut self, state: &mut ShardState, link: LinkId) {
        if let Some(LinkTarget::Request(request)) = state.links.take(link) {
            go_on(state, *request);
        }
    }

    pub fn publish(&mut self, state: &mut ShardState, publish: HttpPublish) {
        let name = publish.channel.as_bytes();
        let (core, now) = (&mut state.hub.core, state.now);
        let receivers = match publish.history {
            None => core.publish(now, Namespace::Channel, name, &publish.data, true, None),
            Some(stamp) => core.publish_stored(now, name, &publish.data, stamp),
        };
        let _ = publish.answer.send(receivers);
    }

    pub fn order(&mut self, state: &mut ShardState, order: HttpServiceCommand) {
        self.last_order += 1;
        self.orders.insert(self.last_order, order.answer);
        state.hub.handle(state.now, ShardEvent::Service { number: self.last_order, order: order.order });
    }

    pub fn topic(&mut self, state: &mut ShardState, request: TopicRequest) {
        self.last_topic += 1;
        let (number, TopicRequest { caller, command, answer }) = (self.last_topic, request);
        self.topics.insert(number, answer);
        state.hub.handle(state.now, ShardEvent::Topic { number, caller, command });
    }

    /// The client may have disconnected; its command still runs.
    pub fn answer_topic(&mut self, number: u64, reply: Result<TopicReply, Refusal>) {
        if let Some(answer) = self.topics.remove(&number) {
            let _ = answer.send(reply);
        }
    }

    /// The client may have disconnected; its command still runs.
    pub fn answer_order(&mut self, number: u64, outcome: Result<Vec<u8>, Refusal>) {
        if let Some(answer) = self.orders.remove(&number) {
            let _ = answer.send(outcome);
        }
    }
}

fn is_hello(command: &HttpCommand) -> bool {
    command.command.as_ref().is_ok_and(|parsed| matches!(parsed.op, json::Op::Hello(_)))
}

fn begin_command(state: &mut ShardState, link: LinkId, command: HttpCommand) {
    let unknown = |name: &&SessionName| state.hub.core.find_session(name.key).is_none();
    if let Some(name) = command.session.as_ref().filter(unknown) {
        match state.look_up(name, command.identity.as_ref(), !is_hello(&command), link) {
            LookupResult::Wait => {
                return state
                    .links
                    .put(link, LinkTarget::Seeking(Box::new(WaitingForSession::Command(command))));
            }
            LookupResult::AttachedTo(node) => {
                state.links.retire(link);
                let message = format!("the session is connected to node {node:?}; send commands there");
                let _ = command.answer.send(Err(Refusal::new(Code::Conflict, message)));
                return;
            }
            LookupResult::Ended if !is_hello(&command) => {
                state.links.retire(link);
                let _ = command.answer.send(Err(session_ended()));
                return;
            }
            // Hello may name a session that has ended: it gets a new one.
            LookupResult::Here | LookupResult::NotFound | LookupResult::Ended => {}
        }
    }
    match request_of(state, link, command) {
        Ok((request, command)) => run(state, request, command),
        Err((answer, refusal)) => {
            state.links.retire(link);
            let _ = answer.send(Err(refusal));
        }
    }
}

type ParsedRequest = Result<ParsedCommand<'static>, BadRequest<'static>>;
type RefusedRequest = (oneshot::Sender<crate::shard::input::CommandAnswer>, Refusal);

/// The command with the session it runs in, unless there is none or it belongs to another user.
fn request_of(
    state: &ShardState,
    link: LinkId,
    command: HttpCommand,
) -> Result<(RequestLink, ParsedRequest), RefusedRequest> {
    let HttpCommand { command, session, identity, address, answer } = command;
    let listener = session.as_ref().and_then(|name| state.hub.core.find_session(name.key));
    if session.is_some() && listener.is_none() && identity.is_none() {
        return Err((answer, session_ended()));
    }
    if let Some(id) = listener
        && acting_identity(&state.hub.core, id, identity.as_ref()).is_none()
    {
        let message = "the session belongs to another user; use a token of that user";
        let other = Refusal::new(Code::NotAllowed, message);
        return Err((answer, if identity.is_some() { other } else { unproved() }));
    }
    let link = Link { id: link, format: EventFormat::Poll };
    let mut caller = Caller::passing(link, listener, identity).from_address(address);
    caller.looked_up = session.is_some();
    Ok((RequestLink { caller, answer }, command))
}

fn run(state: &mut ShardState, mut request: RequestLink, command: ParsedRequest) {
    state.reply.clear();
    if let Some(id) = request.caller.listener {
        state.hub.core.note_activity(state.now, id);
    }
    let flow = state.hub.parsed_command(state.now, &mut request.caller, command, &mut state.reply);
    finish(state, request, flow);
}

fn go_on(state: &mut ShardState, mut request: RequestLink) {
    state.reply.clear();
    let flow = state.hub.resume(state.now, &mut request.caller, &mut state.reply);
    finish(state, request, flow);
}

/// Answers a request, or keeps it while its command waits.
fn finish(state: &mut ShardState, request: RequestLink, flow: Flow) {
    let link = request.caller.link.id;
    if flow == Flow::Wait {
        return state.links.put(link, LinkTarget::Request(Box::new(request)));
    }
    state.links.retire(link);
    if flow == Flow::Close(CloseReason::Abuse)
        && let Some(id) = request.caller.listener
    {
        state.hub.end(id);
    }
    let _ = request.answer.send(Ok((state.hub.core.refused_with, state.reply.clone())));
}
