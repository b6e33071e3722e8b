//! A `hello` between its start and its reply: the session that it opens or resumes, and how the connection is
//! attached.

use super::command::{Caller, CallerHello, CommandResult, refuse};
use super::listener::ListenerId;
use super::publish::heal_gap;
use super::render::session_text;
use super::{Core, Notice, detached, rights_change};
use crate::connection::{EventFormat, Link};
use tavern_domain::Identity;
use tavern_wire::error::Code;
use tavern_wire::json::reply::{self, HelloReply};

/// A hello that waits until the presence of its user is committed and their party is read. Its session exists already.
#[derive(Clone, Debug)]
pub(crate) struct BegunHello {
    pub listener: ListenerId,
    pub identity: Identity,
    pub resumption: Resumption,
    pub seq: Option<u64>,
    pub wants_statuses: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// A new session, attached to this connection.
    New,
    /// The connection keeps its session.
    Kept,
    /// The client names the session of this connection: only its cursor moves.
    Own,
    /// A single HTTP command has no connection to attach: it only checks that the session exists.
    Known,
    /// Attach this connection to the session.
    Attach,
}

/// The connection of a hello closed before it resumed its session, which can be lost from now on.
pub(crate) fn abandon(core: &mut Core, caller: &Caller) {
    let Some(id) = caller.returns_to() else { return };
    if let Some(session) = core.session_mut(id).filter(|session| session.returning == Some(caller.link.id)) {
        session.returning = None;
        core.schedule_loss(id);
    }
}

/// Attaches the connection to the session. Some(true): the client acknowledged events that the mailbox never had.
/// None: the session has ended since.
pub(crate) fn attach(core: &mut Core, caller: &mut Caller, hello: &BegunHello) -> Option<bool> {
    let id = hello.listener;
    detached::leave_logs(core, id);
    match hello.resumption {
        Resumption::New => connect(core, id, (!caller.passing).then_some(caller.link)).then_some(false),
        Resumption::Known => {
            if rights_change::is_newer(&hello.identity, &core.session(id)?.identity) {
                rights_change::renew(core, id, &hello.identity);
            }
            Some(false)
        }
        Resumption::Kept => {
            core.session(id)?;
            rights_change::renew(core, id, &hello.identity);
            Some(false)
        }
        Resumption::Own => {
            core.session(id)?;
            rights_change::renew(core, id, &hello.identity);
            let listener = core.listeners.get_mut(id)?;
            let known = hello.seq.is_none_or(|seq| listener.mailbox.rewind(seq));
            heal_gap(core, id);
            core.mark_dirty(id);
            Some(!known)
        }
        Resumption::Attach => {
            let key = core.session(id)?.key;
            let attached = core.attach(key, &hello.identity, caller.link, hello.seq)?;
            // The session that an implicit hello opened for this connection was never used.
            if let Some(unused) = caller.listener.take() {
                core.notify(Notice::SessionEnds { id: unused });
            }
            Some(attached.reset)
        }
    }
}

/// Attaches a connection, if there is one, to a session that was opened without. False: the session has ended.
fn connect(core: &mut Core, id: ListenerId, link: Option<Link>) -> bool {
    let Some(listener) = core.listeners.get_mut(id) else { return false };
    listener.link = link;
    listener.linked_us = core.event_memory.now_us();
    if let Some(session) = listener.session_mut() {
        session.polling = link.is_none_or(|link| link.format == EventFormat::Poll);
        session.returning = None;
    }
    super::attach::note_idle(core, id);
    core.mark_dirty(id);
    core.schedule_loss(id);
    true
}

/// The body of the reply.
pub(crate) fn write_hello(
    core: &Core,
    id: ListenerId,
    (resumed, reset): (bool, bool),
    party: Option<&str>,
    body: &mut Vec<u8>,
) {
    let settings = &core.node.settings;
    let Some(listener) = core.listeners.get(id) else { return };
    let Some(session) = listener.session() else { return };
    let reply = HelloReply {
        session: &session_text(session.key, &settings.node),
        client: &session.client.to_string(),
        user: session.identity.user.as_deref(),
        node: &settings.node,
        epoch: core.node.epoch().0,
        version: env!("CARGO_PKG_VERSION"),
        resumed,
        reset,
        seq: listener.mailbox.last(),
        heartbeat_ms: settings.heartbeat_ms,
        frame_bytes: settings.frame_bytes as u64,
        party,
    };
    reply::hello(body, &reply);
}

/// There is no session to resume: keeps the connection's session, with a fresh token, or opens a new one.
pub(crate) fn keep_or_open(
    core: &mut Core,
    caller: &Caller,
    identity: &Identity,
) -> CommandResult<(ListenerId, Resumption)> {
    let own = caller.listener.and_then(|id| Some((id, core.session(id)?)));
    let Some((id, session)) = own else {
        let client = match caller.hello.as_deref() {
            Some(CallerHello::Client(client)) => Some(*client),
            _ => None,
        };
        let id = core.open_session(identity.clone(), caller.address, None, client)?;
        if let Some(session) = core.session_mut(id) {
            session.polling = caller.passing;
            session.returning = Some(caller.link.id);
        }
        return Ok((id, Resumption::New));
    };
    if !session.identity.is_same_caller(identity) {
        return refuse(Code::Conflict, "this connection belongs to another user; open a new one");
    }
    Ok((id, Resumption::Kept))
}
