//! A command in progress: who sent it, its possible outcomes, and what every command needs: a session, a right, a reply.

use super::{CommandReply, Core, ReplyTo};
use crate::connection::{CloseReason, Link};
use crate::core::authorize::{self, Permission};
use crate::core::hello::BegunHello;
use crate::core::listener::ListenerId;
use crate::core::session::REFUSALS_MAX;
use crate::event::Namespace;
use crate::node::InterestState;
use crate::node::admission::AdmittedHello;
use std::sync::Arc;
use tavern_domain::{AddressGroup, Channel, ClientId, Identity, Verb};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::{self, BadRequest, ParsedCommand};

/// The sender of a command, and its connection.
#[derive(Clone, Debug)]
pub struct Caller {
    pub link: Link,
    /// A single HTTP request: its link ends with the reply and is never attached to a session.
    pub passing: bool,
    pub listener: Option<ListenerId>,
    /// From the URL or a header, before any hello.
    pub identity: Option<Identity>,
    /// The client's address, if the limits per address were not checked before.
    pub address: Option<AddressGroup>,
    /// Refused commands before any hello.
    pub(crate) refusals: u16,
    /// The command in progress, after `Flow::Wait`. It moves with the caller to another shard.
    pub(crate) waiting: Option<Box<WaitingCommand>>,
    /// The session it names was already looked up on the other nodes.
    pub looked_up: bool,
    pub hello: Option<Box<CallerHello>>,
    /// It fetches replies later with `Shard::next_reply`, and may send more commands before that.
    pub(crate) pipelines: bool,
}

/// What few callers have, boxed: an idle connection is small.
#[derive(Clone, Debug)]
pub enum CallerHello {
    /// The public id that the session of a gateway's client gets.
    Client(ClientId),
    /// Its hello is in progress.
    Admitted(Arc<AdmittedHello>),
}

/// A command that has no reply yet. It is kept as a parsed value.
#[derive(Clone, Debug)]
pub(crate) enum WaitingCommand {
    /// It starts when the commands that its connection has pipelined are answered.
    Unbegun(Result<ParsedCommand<'static>, BadRequest<'static>>),
    /// It has started, and continues when the right, bus confirmation, session or snapshot it waits for arrives.
    Paused(ParsedCommand<'static>),
    /// It was submitted to the store; its reply has this id.
    Submitted(Option<Box<str>>),
    /// A hello that has its session, and the id of its reply.
    Hello(Option<Box<str>>, Box<BegunHello>),
}

impl Caller {
    pub fn new(link: Link, identity: Option<Identity>) -> Caller {
        Caller {
            link,
            passing: false,
            listener: None,
            identity,
            address: None,
            refusals: 0,
            waiting: None,
            looked_up: false,
            hello: None,
            pipelines: false,
        }
    }

    /// Whether one of its commands waits: `Shard::resume` continues it.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// The session that its waiting hello resumes.
    pub(crate) fn returns_to(&self) -> Option<ListenerId> {
        match self.waiting.as_deref()? {
            WaitingCommand::Hello(_, hello) => Some(hello.listener),
            _ => None,
        }
    }

    /// Counts its commands in the limits of this address.
    pub fn from_address(self, address: Option<AddressGroup>) -> Caller {
        Caller { address, ..self }
    }

    /// Presence changes may start before earlier ones are answered.
    pub fn pipelining(self) -> Caller {
        Caller { pipelines: true, ..self }
    }

    /// One HTTP request on behalf of a session, or before there is one.
    pub fn passing(link: Link, listener: Option<ListenerId>, identity: Option<Identity>) -> Caller {
        Caller { passing: true, listener, ..Caller::new(link, identity) }
    }
}

/// What the caller must do next. The reply, if there is one, is in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    Done,
    /// Hello: the reply comes before all events of the session.
    Greeted,
    /// The command waits with its caller. Call `Shard::resume` when the link is named in `Effects::ready`.
    Wait,
    /// The reply is fetched with `Shard::next_reply` when the link is named in `Effects::ready`; only if the caller
    /// pipelines.
    Begun,
    /// Write the reply, then close.
    Close(CloseReason),
    /// The session is on another shard: move the connection there, then `Shard::resume` continues the command.
    Move(usize),
}

/// How a command ends, for now.
pub(crate) enum CommandEnd {
    /// It is answered with this body.
    Reply(Vec<u8>),
    Wait(CommandWait),
    Refuse(Refusal),
    /// Its session is on another shard.
    Move(usize),
}

/// What a command waits for.
pub(crate) enum CommandWait {
    /// It has requested something and runs again when its link is named in `Effects::ready`.
    Again,
    /// It was submitted to the store, and its reply is expected.
    Stored,
    /// The same, but more commands may follow before this reply.
    Pipelined(ReplyTo),
    /// The hello has its session and waits for the party of its user.
    Party(Box<BegunHello>),
}

impl CommandEnd {
    /// An empty reply.
    pub fn done() -> CommandEnd {
        CommandEnd::Reply(Vec::new())
    }

    pub fn stored() -> CommandEnd {
        CommandEnd::Wait(CommandWait::Stored)
    }

    pub fn pipelined(reply: ReplyTo) -> CommandEnd {
        CommandEnd::Wait(CommandWait::Pipelined(reply))
    }
}

impl From<Refusal> for CommandEnd {
    fn from(refusal: Refusal) -> CommandEnd {
        CommandEnd::Refuse(refusal)
    }
}

/// A step of a command. `Err`: the command ends before its last step, because it is refused, moves or must run again.
pub(crate) type CommandResult<T> = Result<T, CommandEnd>;

pub(crate) fn refuse<T>(code: Code, message: impl Into<std::borrow::Cow<'static, str>>) -> CommandResult<T> {
    Err(CommandEnd::Refuse(Refusal::new(code, message)))
}

/// The command runs again when what it needs has arrived.
pub(crate) fn run_again<T>() -> CommandResult<T> {
    Err(CommandEnd::Wait(CommandWait::Again))
}

/// Writes the reply to a command.
pub(crate) fn reply(
    core: &mut Core,
    caller: &mut Caller,
    id: Option<&str>,
    reply: CommandReply,
    out: &mut Vec<u8>,
) -> Flow {
    if matches!(caller.hello.as_deref(), Some(CallerHello::Admitted(_))) {
        caller.hello = None;
    }
    match reply {
        Ok(body) => {
            if let Some(session) = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut()) {
                session.clear_refusals();
            }
            json::reply_ok(out, id, if body.is_empty() { b"{}" } else { &body });
            Flow::Done
        }
        Err(refusal) => {
            json::reply_error(out, id, &refusal);
            refused(core, caller, refusal.code)
        }
    }
}

/// Counts a command for its connection, its user and its address.
pub(crate) fn take_command(core: &mut Core, caller: &Caller) -> CommandResult<()> {
    let now = core.now;
    let node = core.node.clone();
    let session = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut());
    let identity = session.as_ref().map(|session| &session.identity).or(caller.identity.as_ref());
    if identity.is_some_and(|identity| identity.unlimited) {
        return Ok(());
    }
    let user = identity.and_then(|identity| identity.user.clone());
    if let Some(session) = session {
        let taken = session.take_command(now, node.settings.commands_per_second);
        taken.map_err(|ms| {
            Refusal::new(Code::RateLimited, "this connection sends too many commands per second")
                .retry_after(ms)
        })?;
    }
    if let Some(user) = user {
        node.rates.take_user_command(now, &user)?;
    }
    if let Some(address) = caller.address.filter(|_| !caller.passing) {
        node.rates.take_address_command(now, address)?;
    }
    Ok(())
}

fn refused(core: &mut Core, caller: &mut Caller, code: Code) -> Flow {
    core.stats.refused.add(1);
    core.refused_with = Some(code);
    let session = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut());
    let abuse = match session {
        Some(session) => session.count_refusal(),
        None => {
            caller.refusals = caller.refusals.saturating_add(1);
            caller.refusals >= REFUSALS_MAX
        }
    };
    if abuse { Flow::Close(CloseReason::Abuse) } else { Flow::Done }
}
/// Subscribes once the bus has confirmed the name.
pub(crate) fn subscribe_on_bus(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    space: Namespace,
    name: &str,
) -> CommandResult<()> {
    let node = core.node.clone();
    let mut hold = node.bus_interests.lock();
    match hold.request(space, name.as_bytes(), Some((core.index, caller.link.id))) {
        InterestState::Yes => core.subscribe(id, space, name.as_bytes()),
        InterestState::Wait => {
            // The connection may close before the bus confirms.
            core.release_later(space, name.as_bytes().into());
            return run_again();
        }
        InterestState::Failed => return unavailable(),
    };
    Ok(())
}

/// The channel a session may use: the one it named, or the one the app's hook substituted.
pub(crate) fn permitted(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    verb: Verb,
    channel: &Channel<'_>,
) -> CommandResult<Arc<str>> {
    let name = std::str::from_utf8(channel.name).unwrap_or_default();
    let Some(session) = core.listeners.get(id).and_then(|listener| listener.session()) else {
        return refuse(Code::Gone, "the session has ended; send hello again");
    };
    match authorize::permit(core, &session.identity, verb, channel) {
        Permission::Yes => Ok(name.into()),
        Permission::No => not_allowed(core, id, verb, name),
        Permission::Instead(other) => match Channel::parse(&other) {
            Ok(channel) if !channel.is_reserved() => Ok(other),
            _ => refuse(Code::Internal, "the authorize hook named a channel that cannot be used"),
        },
        Permission::Ask(question) => {
            authorize::ask(core, question, caller.link.id);
            run_again()
        }
    }
}

pub(crate) fn parse_channel(name: &str) -> CommandResult<Channel<'_>> {
    Channel::parse(name).or_else(|error| refuse(Code::BadRequest, error.to_string()))
}

pub(crate) fn unavailable<T>() -> CommandResult<T> {
    let refusal = Refusal::new(Code::Unavailable, "the bus did not confirm the subscription; retry");
    Err(refusal.retry_after(RETRY_AFTER_MS).into())
}

pub(crate) fn not_allowed<T>(core: &Core, id: ListenerId, verb: Verb, name: &str) -> CommandResult<T> {
    let verb = verb.as_str();
    let identity = core.session(id).map(|session| &session.identity);
    let hint = match identity.is_some_and(|identity| identity.rights.grants.is_empty()) {
        true => format!("; the token gives no rights, add the claim \"allow\": {{\"game#*\": [{verb:?}]}}"),
        false => String::new(),
    };
    refuse(Code::NotAllowed, format!("no right to {verb} {name:?}{hint}"))
}
