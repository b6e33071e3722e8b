//! `hello`: the identity of a client, and the session it resumes or opens. When the reply is sent, the presence of
//! the user is committed and visible on every node, unless the store does not answer in time.

use super::Shard;
use super::connections::snapshot;
use crate::core::command::{Caller, CallerHello, CommandEnd, CommandResult, CommandWait, refuse, run_again};
use crate::core::hello::{BegunHello, Resumption, attach, keep_or_open, write_hello};
use crate::core::listener::ListenerId;
use crate::core::render::read_session;
use crate::core::{CommandReply, Core, Notice};
use crate::migration::{LookupResult, Migration, SessionLookup};
use tavern_domain::Identity;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::HelloRequest;

impl Shard {
    pub(super) fn hello(
        &mut self,
        caller: &mut Caller,
        hello: &HelloRequest<'_>,
    ) -> CommandResult<CommandEnd> {
        let own = caller.listener.and_then(|id| self.core.listeners.get(id)?.session());
        let identity = match &hello.token {
            Some(token) => log_in(&self.core, caller, token)?,
            None => match (own, &caller.identity) {
                (Some(session), _) => session.identity.clone(),
                (None, Some(identity)) => identity.clone(),
                (None, None) => return refuse(Code::Unauthenticated, "hello needs a token"),
            },
        };
        // A connection that has a session only renews it. Clients of gateways have their public id in `hello`.
        if own.is_none() && caller.hello.is_none() {
            let admitted = self.admit(self.core.now, Some(&identity))?;
            caller.hello = admitted.map(|hello| Box::new(CallerHello::Admitted(hello)));
        }
        if let Some((key, _)) = hello.session.as_deref().and_then(read_session)
            && key.shard(self.core.node.settings.shards) != self.core.index
        {
            return Ok(CommandEnd::Move(key.shard(self.core.node.settings.shards)));
        }
        let resumed = match &hello.session {
            Some(text) => find_resumable(&mut self.core, &mut self.migration, caller, &identity, text)?,
            None => None,
        };
        let (listener, resumption) = match resumed {
            Some(found) => found,
            None => keep_or_open(&mut self.core, caller, &identity)?,
        };
        match resumption {
            Resumption::New => caller.listener = Some(listener),
            Resumption::Attach => {
                // It must not be lost while its hello waits for the store.
                if let Some(session) = self.core.session_mut(listener) {
                    session.returning = Some(caller.link.id);
                }
                self.core.notify(Notice::SessionReturns { id: listener });
            }
            Resumption::Kept | Resumption::Own | Resumption::Known => {}
        }
        // Features know the session before its snapshot is requested.
        self.route();
        let (seq, wants_statuses) = (hello.seq, hello.status);
        let begun = BegunHello { listener, identity, resumption, seq, wants_statuses };
        Ok(match self.finish_hello(caller, &begun) {
            None => CommandEnd::Wait(CommandWait::Party(Box::new(begun))),
            Some(Ok(body)) => CommandEnd::Reply(body),
            Some(Err(refusal)) => CommandEnd::Refuse(refusal),
        })
    }

    /// Attaches the session and returns the reply, once the party of the user is loaded or cannot be loaded. None: it
    /// waits.
    pub(super) fn finish_hello(&mut self, caller: &mut Caller, hello: &BegunHello) -> Option<CommandReply> {
        let Shard { core, presence, party, .. } = self;
        let snapshot = snapshot(core, presence, party, hello.listener, caller.link.id)?;
        let Some(reset) = attach(&mut self.core, caller, hello) else {
            return Some(Err(Refusal::new(Code::Gone, "the session has ended; send hello again")));
        };
        caller.listener = Some(hello.listener);
        self.route();
        if hello.wants_statuses {
            self.people.want_statuses(&mut self.core, hello.listener);
        }
        let resumed = !matches!(hello.resumption, Resumption::New | Resumption::Kept);
        let mut body = Vec::new();
        write_hello(&self.core, hello.listener, (resumed, reset), snapshot.party.as_deref(), &mut body);
        Some(Ok(body))
    }
}

/// Verifies a token. Failed logins are rate-limited; API keys are not.
fn log_in(core: &Core, caller: &Caller, token: &str) -> CommandResult<Identity> {
    let verified = core.node.token_verifier.verify(token, core.now);
    let unlimited = verified.as_ref().is_ok_and(|identity| identity.unlimited);
    if let Some(address) = caller.address.filter(|_| !unlimited) {
        core.node.rates.take_hello(core.now, address)?;
    }
    Ok(verified?)
}

/// The session that `text` names, if the client may resume it.
fn find_resumable(
    core: &mut Core,
    migration: &mut Migration,
    caller: &Caller,
    identity: &Identity,
    text: &str,
) -> CommandResult<Option<(ListenerId, Resumption)>> {
    let Some((key, node)) = read_session(text) else { return Ok(None) };
    if !caller.looked_up {
        let lookup = SessionLookup { key, node, identity: Some(identity), detached_only: false };
        if migration.look_up(core, &lookup, caller.link.id) == LookupResult::Wait {
            return run_again();
        }
    }
    let Some(id) = core.find_session(key) else { return Ok(None) };
    if !core.may_resume(id, identity) {
        return Ok(None);
    }
    let resumption = match (Some(id) == caller.listener, caller.passing) {
        (true, _) => Resumption::Own,
        (false, true) => Resumption::Known,
        (false, false) => Resumption::Attach,
    };
    Ok(Some((id, resumption)))
}
