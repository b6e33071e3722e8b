//! A command on its way: who sent it, what its outcome can be, and what every command needs: a session, a right, a reply.

use super::{CommandReply, Core, ReplyTo};
use crate::connection::{CloseReason, Link};
use crate::core::authorize::{self, Permission};
use crate::core::listener::ListenerId;
use crate::core::session::STRIKES_MAX;
use crate::event::Namespace;
use crate::node::InterestState;
use std::sync::Arc;
use tavern_domain::{Channel, Identity, Verb};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;

/// Who sends a command, and over what.
#[derive(Clone, Debug)]
pub struct Caller {
    pub link: Link,
    /// A single HTTP request: its link ends with the answer and is never attached to a session.
    pub passing: bool,
    pub listener: Option<ListenerId>,
    /// From the URL or a header, before any hello.
    pub identity: Option<Identity>,
    /// Refused commands before any hello.
    pub(crate) strikes: u16,
    /// Its command waits: the next one is the same again.
    pub(crate) waited: bool,
    /// The session it names was looked for already.
    pub sought: bool,
    /// It takes replies later, by `Shard::next_reply`, and may send more meanwhile.
    pub(crate) pipelines: bool,
}

impl Caller {
    pub fn new(link: Link, identity: Option<Identity>) -> Caller {
        Caller {
            link,
            passing: false,
            listener: None,
            identity,
            strikes: 0,
            waited: false,
            sought: false,
            pipelines: false,
        }
    }

    /// Changes of presence may begin before earlier ones are answered.
    pub fn running_ahead(self) -> Caller {
        Caller { pipelines: true, ..self }
    }

    /// One HTTP request on behalf of a session, or of nobody yet.
    pub fn passing(link: Link, listener: Option<ListenerId>, identity: Option<Identity>) -> Caller {
        Caller { passing: true, listener, ..Caller::new(link, identity) }
    }
}

/// What happens to the caller next. The reply, if there is one, is in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    Done,
    /// Hello: the reply stands before all events of the session.
    Greeted,
    /// The app or the bus was asked; the same frame must be given again when the link is named in `Effects::ready`.
    Wait,
    /// The reply comes by `Shard::next_reply` when the link is named in `Effects::ready`; only for who runs ahead.
    Begun,
    /// Write the reply, then close.
    Close(CloseReason),
    /// The session lives on another shard: the transport must go there and say the same again.
    Move(usize),
}

pub(crate) enum CommandStop {
    Refused(Refusal),
    Wait,
    /// A change of presence is under way.
    Begun(ReplyTo),
    Move(usize),
}

impl From<Refusal> for CommandStop {
    fn from(refusal: Refusal) -> CommandStop {
        CommandStop::Refused(refusal)
    }
}

pub(crate) type CommandResult<T> = Result<T, CommandStop>;

pub(crate) fn refuse<T>(code: Code, message: impl Into<std::borrow::Cow<'static, str>>) -> CommandResult<T> {
    Err(CommandStop::Refused(Refusal::new(code, message)))
}

/// Writes the reply to a command.
pub(crate) fn reply(
    core: &mut Core,
    caller: &mut Caller,
    id: Option<&str>,
    reply: CommandReply,
    out: &mut Vec<u8>,
) -> Flow {
    match reply {
        Ok(body) => {
            if let Some(session) = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut()) {
                session.behave();
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

pub(crate) fn take_command(core: &mut Core, caller: &Caller) -> CommandResult<()> {
    let now = core.now;
    let per_second = core.node.settings.commands_per_second;
    let session = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut());
    let taken = session.map_or(Ok(()), |session| session.take_command(now, per_second));
    taken.map_err(|retry_after_ms| {
        CommandStop::Refused(Refusal::new(Code::RateLimited, "too many commands").retry_after(retry_after_ms))
    })
}

fn refused(core: &mut Core, caller: &mut Caller, code: Code) -> Flow {
    core.stats.refused.add(1);
    core.refused_with = Some(code);
    let session = caller.listener.and_then(|id| core.listeners.get_mut(id)?.session_mut());
    let abuse = match session {
        Some(session) => session.strike(),
        None => {
            caller.strikes = caller.strikes.saturating_add(1);
            caller.strikes >= STRIKES_MAX
        }
    };
    if abuse { Flow::Close(CloseReason::Abuse) } else { Flow::Done }
}
/// Begins to listen once the bus carries the name here.
pub(crate) fn carried_subscribe(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    space: Namespace,
    name: &str,
) -> CommandResult<()> {
    let node = core.node.clone();
    let mut hold = node.carrier.hold();
    match hold.carry(space, name.as_bytes(), Some((core.index, caller.link.id))) {
        InterestState::Yes => core.subscribe(id, space, name.as_bytes()),
        InterestState::Wait => {
            // Whoever waits may be gone before it is carried.
            core.linger(space, name.as_bytes().into());
            return Err(CommandStop::Wait);
        }
        InterestState::Failed => return unavailable(),
    };
    Ok(())
}

/// The channel a session may use: the one it named, or the one the app put in its place.
pub(crate) fn permitted(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    verb: Verb,
    channel: &Channel<'_>,
) -> CommandResult<Arc<str>> {
    let name = std::str::from_utf8(channel.name).unwrap_or_default();
    let Some(session) = core.listeners.get(id).and_then(|listener| listener.session()) else {
        return refuse(Code::Gone, "the session has ended; say hello again");
    };
    match authorize::permit(core, &session.identity, verb, channel) {
        Permission::Yes => Ok(name.into()),
        Permission::No => not_allowed(verb, name),
        Permission::Instead(other) => match Channel::parse(&other) {
            Ok(channel) if !channel.is_reserved() => Ok(other),
            _ => refuse(Code::Internal, "the authorize hook named a channel that cannot be used"),
        },
        Permission::Ask(question) => {
            authorize::ask(core, question, caller.link.id);
            Err(CommandStop::Wait)
        }
    }
}

pub(crate) fn parse_channel(name: &str) -> CommandResult<Channel<'_>> {
    Channel::parse(name).or_else(|error| refuse(Code::BadRequest, error.to_string()))
}

pub(crate) fn unavailable<T>() -> CommandResult<T> {
    let refusal = Refusal::new(Code::Unavailable, "the bus between nodes does not answer");
    Err(CommandStop::Refused(refusal.retry_after(RETRY_AFTER_MS)))
}

pub(crate) fn not_allowed<T>(verb: Verb, name: &str) -> CommandResult<T> {
    refuse(Code::NotAllowed, format!("no right to {} {name:?}", verb.as_str()))
}
