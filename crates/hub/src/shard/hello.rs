//! `hello`: who a client is, and the session it comes back to or begins.

use super::Shard;
use crate::core::command::{Caller, CommandResult, CommandStop, refuse};
use crate::core::listener::ListenerId;
use crate::core::render::{read_session, session_text};
use crate::core::{Core, Notice};
use crate::migration::{LookupResult, Migration, SessionLookup};
use tavern_domain::{Identity, SessionKey};
use tavern_wire::error::Code;
use tavern_wire::json::HelloRequest;
use tavern_wire::json::reply::{self, HelloReply};

impl Shard {
    pub(super) fn hello(
        &mut self,
        caller: &mut Caller,
        hello: &HelloRequest<'_>,
        body: &mut Vec<u8>,
    ) -> CommandResult<()> {
        let own = caller.listener.and_then(|id| self.core.listeners.get(id)?.session());
        let identity = match &hello.token {
            Some(token) => self.core.node.gate.verify(token, self.core.now)?,
            None => match (own, &caller.identity) {
                (Some(session), _) => session.identity.clone(),
                (None, Some(identity)) => identity.clone(),
                (None, None) => return refuse(Code::Unauthenticated, "hello needs a token"),
            },
        };
        if let Some((key, _)) = hello.session.as_deref().and_then(read_session)
            && key.shard(self.core.node.settings.shards) != self.core.index
        {
            return Err(CommandStop::Move(key.shard(self.core.node.settings.shards)));
        }
        let mut resumed = None;
        if let Some(text) = &hello.session {
            resumed = resume(&mut self.core, &mut self.migration, caller, &identity, text, hello.seq)?;
        }
        // Whoever comes back in time must not be late because of the store.
        if resumed.is_none() && !self.party.meet(&mut self.core, identity.user.as_ref(), caller.link.id) {
            return Err(CommandStop::Pause);
        }
        let (id, reset) = match resumed {
            Some(attached) => attached,
            None => (keep_or_open(&mut self.core, caller, identity)?, false),
        };
        caller.listener = Some(id);
        // Features know the session before it asks them for something.
        self.route();
        if hello.status {
            self.people.want_statuses(&mut self.core, id);
        }
        self.write_hello(id, resumed.is_some(), reset, body);
        Ok(())
    }

    /// The answer to hello, also sent as the first frame when the token came with the connection.
    pub fn write_hello(&self, id: ListenerId, resumed: bool, reset: bool, body: &mut Vec<u8>) {
        let settings = &self.core.node.settings;
        let Some(listener) = self.core.listeners.get(id) else { return };
        let Some(session) = listener.session() else { return };
        let reply = HelloReply {
            session: &session_text(session.key, &settings.node),
            client: &session.client.to_string(),
            user: session.identity.user.as_deref(),
            node: &settings.node,
            epoch: self.core.node.epoch().0,
            resumed,
            reset,
            seq: listener.mailbox.last(),
            heartbeat_ms: settings.heartbeat_ms,
            party: self.party.party_snapshot(session.identity.user.as_deref()),
        };
        reply::hello(body, &reply);
    }
}

/// Tries to come back to the session that `text` names.
fn resume(
    core: &mut Core,
    migration: &mut Migration,
    caller: &Caller,
    identity: &Identity,
    text: &str,
    seq: Option<u64>,
) -> CommandResult<Option<(ListenerId, bool)>> {
    let Some((key, node)) = read_session(text) else { return Ok(None) };
    if !caller.sought {
        let lookup = SessionLookup { key, node, identity: Some(identity), detached_only: false };
        if migration.look_up(core, &lookup, caller.link.id) == LookupResult::Wait {
            return Err(CommandStop::Pause);
        }
    }
    let known = core.find_session(key);
    if known.is_some() && known == caller.listener {
        return Ok(rewind_own(core, key, identity, seq));
    }
    if caller.passing {
        // A single command has no transport to attach; it may still ask whether the session lives.
        let same = |id: &ListenerId| {
            core.listeners
                .get(*id)
                .and_then(|l| l.session())
                .is_some_and(|s| s.identity.user == identity.user)
        };
        return Ok(known.filter(same).map(|id| (id, false)));
    }
    let Some(attached) = core.attach(key, identity, caller.link, seq) else { return Ok(None) };
    // The session that an implicit hello made for this transport was never used.
    if let Some(unused) = caller.listener {
        core.notify(Notice::SessionEnds { id: unused });
    }
    Ok(Some((attached.listener, attached.reset)))
}

/// A hello that names the session this transport already has: only its cursor moves.
fn rewind_own(
    core: &mut Core,
    key: SessionKey,
    identity: &Identity,
    seq: Option<u64>,
) -> Option<(ListenerId, bool)> {
    let id = core.find_session(key)?;
    let listener = core.listeners.get_mut(id)?;
    let session = listener.session_mut()?;
    if session.identity.user != identity.user {
        return None;
    }
    session.identity = identity.clone();
    let known = seq.is_none_or(|seq| listener.mailbox.rewind(seq));
    core.mark_dirty(id);
    Some((id, !known))
}

/// Without a session to come back to: the one this transport has, with a fresh token, or a new one.
fn keep_or_open(core: &mut Core, caller: &Caller, identity: Identity) -> CommandResult<ListenerId> {
    let Some(id) = caller.listener.filter(|id| core.listeners.get(*id).is_some()) else {
        let link = (!caller.passing).then_some(caller.link);
        return Ok(core.open_session(identity, link));
    };
    if let Some(session) = core.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
        if session.identity.user != identity.user {
            return refuse(Code::Conflict, "this transport belongs to another user; open a new one");
        }
        session.identity = identity;
    }
    Ok(id)
}
