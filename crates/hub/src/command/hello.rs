//! `hello`: who a client is, and the session it comes back to or begins.

use super::{Caller, Step, Stop, refuse};
use crate::handover::{Seeker, Sought};
use crate::listener::ListenerId;
use crate::render::{read_session, write_session};
use crate::shard::Shard;
use tavern_domain::{Identity, SessionKey, Time};
use tavern_wire::error::Code;
use tavern_wire::json::{self, Hello};

impl Shard {
    pub(super) fn hello(
        &mut self,
        now: Time,
        caller: &mut Caller,
        hello: &Hello<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        let own = caller.listener.and_then(|id| self.listeners.get(id)?.session());
        let identity = match &hello.token {
            Some(token) => self.node.gate.verify(token, now)?,
            None => match (own, &caller.identity) {
                (Some(session), _) => session.identity.clone(),
                (None, Some(identity)) => identity.clone(),
                (None, None) => return refuse(Code::Unauthenticated, "hello needs a token"),
            },
        };
        if let Some((key, _)) = hello.session.as_deref().and_then(read_session)
            && key.shard(self.node.settings.shards) != self.index
        {
            return Err(Stop::Move(key.shard(self.node.settings.shards)));
        }
        let mut resumed = None;
        if let Some(text) = &hello.session {
            resumed = self.resume(now, caller, &identity, text, hello.seq)?;
        }
        // Whoever comes back in time must not be late because of the store.
        if resumed.is_none() && !self.meet(now, identity.user.as_ref(), caller.link.id) {
            return Err(Stop::Wait);
        }
        let (id, reset) = match resumed {
            Some(attached) => attached,
            None => (self.keep_or_open(now, caller, identity)?, false),
        };
        caller.listener = Some(id);
        if hello.status {
            self.want_statuses(now, id);
        }
        self.write_hello(id, resumed.is_some(), reset, body);
        Ok(())
    }

    /// Tries to come back to the session that `text` names.
    fn resume(
        &mut self,
        now: Time,
        caller: &Caller,
        identity: &Identity,
        text: &str,
        seq: Option<u64>,
    ) -> Step<Option<(ListenerId, bool)>> {
        let Some((key, node)) = read_session(text) else { return Ok(None) };
        if !caller.sought {
            let seeker = Seeker { key, node, identity: Some(identity), gentle: false };
            if self.seek(now, &seeker, caller.link.id) == Sought::Wait {
                return Err(Stop::Wait);
            }
        }
        let known = self.find_session(key);
        if known.is_some() && known == caller.listener {
            return Ok(self.rewind_own(key, identity, seq));
        }
        if caller.passing {
            // A single command has no transport to attach; it may still ask whether the session lives.
            let same = |id: &ListenerId| {
                self.listeners
                    .get(*id)
                    .and_then(|l| l.session())
                    .is_some_and(|s| s.identity.user == identity.user)
            };
            return Ok(known.filter(same).map(|id| (id, false)));
        }
        let Some(attached) = self.attach(now, key, identity, caller.link, seq) else { return Ok(None) };
        // The session that an implicit hello made for this transport was never used.
        if let Some(unused) = caller.listener {
            self.end(unused);
        }
        Ok(Some((attached.listener, attached.reset)))
    }

    /// A hello that names the session this transport already has: only its cursor moves.
    fn rewind_own(
        &mut self,
        key: SessionKey,
        identity: &Identity,
        seq: Option<u64>,
    ) -> Option<(ListenerId, bool)> {
        let id = self.find_session(key)?;
        let listener = self.listeners.get_mut(id)?;
        let session = listener.session_mut()?;
        if session.identity.user != identity.user {
            return None;
        }
        session.identity = identity.clone();
        let known = seq.is_none_or(|seq| listener.mailbox.rewind(seq));
        self.mark_dirty(id);
        Some((id, !known))
    }

    /// Without a session to come back to: the one this transport has, with a fresh token, or a new one.
    fn keep_or_open(&mut self, now: Time, caller: &Caller, identity: Identity) -> Step<ListenerId> {
        let Some(id) = caller.listener.filter(|id| self.listeners.get(*id).is_some()) else {
            let link = (!caller.passing).then_some(caller.link);
            return Ok(self.open_session(now, identity, link));
        };
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            if session.identity.user != identity.user {
                return refuse(Code::Conflict, "this transport belongs to another user; open a new one");
            }
            session.identity = identity;
        }
        Ok(id)
    }

    /// The answer to hello, also sent as the first frame when the token came with the connection.
    pub fn write_hello(&self, id: ListenerId, resumed: bool, reset: bool, body: &mut Vec<u8>) {
        let settings = &self.node.settings;
        let Some(listener) = self.listeners.get(id) else { return };
        let Some(session) = listener.session() else { return };
        body.extend_from_slice(b"{\"session\":\"");
        write_session(body, session.key, &settings.node);
        body.extend_from_slice(format!("\",\"client\":\"{}\",\"user\":", session.client).as_bytes());
        match &session.identity.user {
            Some(user) => json::string(body, user),
            None => body.extend_from_slice(b"null"),
        }
        body.extend_from_slice(b",\"node\":");
        json::string(body, &settings.node);
        let rest = format!(
            ",\"epoch\":{},\"resumed\":{resumed}{},\"seq\":{},\"heartbeat_ms\":{}",
            self.node.epoch().0,
            if reset { ",\"reset\":true" } else { "" },
            listener.mailbox.last(),
            settings.heartbeat_ms,
        );
        body.extend_from_slice(rest.as_bytes());
        self.write_party(session.identity.user.as_deref(), body);
        body.push(b'}');
    }
}
