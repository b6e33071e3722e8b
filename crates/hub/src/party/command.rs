//! Party commands of sessions, and of apps on behalf of users.

use super::{Parties, PartyDecision};
use crate::core::command::{Caller, CommandEnd, CommandResult, run_again};
use crate::core::listener::ListenerId;
use crate::core::{Core, ReplyTo};
use crate::event::{Author, Namespace};
use crate::rows::party_channel;
use std::sync::Arc;
use tavern_domain::party::PartyRequest;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::party::PartyOp;
use tavern_wire::json::reply;

impl Parties {
    /// Runs a command of a session. Its reply comes from the store.
    pub(crate) fn op_party(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        op: &Result<PartyOp, Refusal>,
    ) -> CommandResult<CommandEnd> {
        let session = core.listeners.get(id).and_then(|listener| listener.session());
        let who = session.map(|session| (session.identity.clone(), session.client));
        let Some((identity, client)) = who else { return Ok(CommandEnd::done()) };
        let Some(user) = identity.user.clone() else {
            let message = "anonymous users cannot use parties; send hello with a token that names a user";
            let refusal = Refusal::new(Code::Unauthenticated, message);
            return Ok(CommandEnd::Refuse(refusal.with_party("null".into())));
        };
        // Malformed commands are refused before the rate limit is checked.
        let valid = match op {
            Ok(PartyOp::Call(call)) if !call.is_sound() => Err(Refusal::from(Code::BadRequest)),
            Ok(op) => Ok(op),
            Err(refusal) => Err(refusal.clone()),
        };
        match valid {
            Ok(PartyOp::Say(data)) => {
                let author = Author { user: Some(user.clone()), client };
                self.say(core, caller, id, &user, data, author)
            }
            Ok(PartyOp::Call(call)) => {
                let call = PartyRequest { user: Some(user), name: identity.name, ..call.clone() };
                let claim = core.replies.expect_reply(core.now, caller.link.id);
                self.service_command(core, call, true, claim);
                Ok(CommandEnd::stored())
            }
            Err(refusal) => {
                let claim = core.replies.expect_reply(core.now, caller.link.id);
                self.refuse_with_party(core, &user, refusal, claim);
                Ok(CommandEnd::stored())
            }
        }
    }

    /// Sends a message to all members of the party.
    fn say(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        user: &Arc<str>,
        data: &str,
        author: Author,
    ) -> CommandResult<CommandEnd> {
        let max = core.node.settings.message_bytes;
        if data.len() > max {
            let message = format!("data has {} bytes, at most {max} are allowed", data.len());
            let claim = core.replies.expect_reply(core.now, caller.link.id);
            self.refuse_with_party(core, user, Refusal::new(Code::TooLarge, message), claim);
            return Ok(CommandEnd::stored());
        }
        if self.views.party_of(user).is_none() {
            // They may have become a member on another node.
            let Some(snapshot) = self.snapshot(core, id, caller.link.id, false) else {
                return run_again();
            };
            if self.views.party_of(user).is_none() {
                let party = snapshot.party.unwrap_or_else(|| "null".into());
                return Ok(CommandEnd::Refuse(Refusal::from(Code::NotMember).with_party(party)));
            }
        }
        let Some(party) = self.views.party_of(user) else { return Ok(CommandEnd::done()) };
        let channel = party_channel(party);
        let receivers = core.publish(
            core.now,
            Namespace::Channel,
            channel.as_bytes(),
            data.as_bytes(),
            true,
            Some(author),
        );
        let mut body = Vec::new();
        reply::published(&mut body, receivers, None);
        Ok(CommandEnd::Reply(body))
    }

    /// Runs a command of a user or of an app. `limited`: a user who is refused too often is blocked for a while.
    pub(crate) fn service_command(
        &mut self,
        core: &mut Core,
        call: PartyRequest,
        limited: bool,
        claim: ReplyTo,
    ) {
        if let Some(user) = call.user.as_ref().filter(|_| limited)
            && let Some(ms) = self.refusal_limits.blocked_ms(core.now, user, &call.command)
        {
            let refusal = Refusal::from(Code::Blocked).retry_after(ms);
            return self.refuse_with_party(core, user, refusal, claim);
        }
        self.begin(core, PartyDecision::new(call, Some(claim)));
    }
}
