//! The commands about parties, of sessions and of apps on behalf of users.

use super::{Parties, PartyDecision};
use crate::core::command::{Caller, CommandResult, CommandStop};
use crate::core::listener::ListenerId;
use crate::core::{Core, ReplyTo};
use crate::event::{Author, Namespace};
use crate::rows::party_channel;
use std::sync::Arc;
use tavern_domain::party::{PartyCommand, PartyRequest};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::party::PartyOp;
use tavern_wire::json::reply;

impl Parties {
    /// A command of a session. Its reply comes from the store.
    pub(crate) fn op_party(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        op: &Result<PartyOp, Refusal>,
        body: &mut Vec<u8>,
    ) -> CommandResult<()> {
        let session = core.listeners.get(id).and_then(|listener| listener.session());
        let who = session.map(|session| (session.identity.clone(), session.client));
        let Some((identity, client)) = who else { return Ok(()) };
        let Some(user) = identity.user.clone() else {
            let message = "somebody without a name has no party; say hello with a token that names a user";
            let refusal = Refusal::new(Code::Unauthenticated, message);
            return Err(CommandStop::Refused(refusal.with_party("null".into())));
        };
        // Malformed commands are refused before the rate limit is looked at.
        let valid = match op {
            Ok(PartyOp::Call(call)) if !call.is_sound() => Err(Refusal::from(Code::BadRequest)),
            Ok(op) => Ok(op),
            Err(refusal) => Err(refusal.clone()),
        };
        match valid.map_err(|refusal| refusal.with_party(self.views.text(Some(&user))))? {
            PartyOp::Say(data) => {
                self.say(core, &user, data, Author { user: Some(user.clone()), client }, body)
            }
            PartyOp::Call(call) => {
                let call = PartyRequest { user: Some(user.clone()), name: identity.name, ..call.clone() };
                self.admit(core, &user, &call.command)?;
                let claim = core.replies.claim(caller.link.id);
                self.begin(core, PartyDecision::new(call, Some(claim)));
                Err(CommandStop::Submitted)
            }
        }
    }

    /// Somebody who floods is not heard for a while.
    fn admit(&mut self, core: &mut Core, user: &Arc<str>, command: &PartyCommand) -> CommandResult<()> {
        let now = core.now;
        match self.floods.blocked_ms(now, user, command) {
            None => Ok(()),
            Some(ms) => {
                let refusal = Refusal::from(Code::Blocked).retry_after(ms);
                Err(CommandStop::Refused(refusal.with_party(self.views.text(Some(user)))))
            }
        }
    }

    /// A word to everybody in the party.
    fn say(
        &mut self,
        core: &mut Core,
        user: &Arc<str>,
        data: &str,
        author: Author,
        body: &mut Vec<u8>,
    ) -> CommandResult<()> {
        let now = core.now;
        let refuse = |refusal: Refusal| Err(CommandStop::Refused(refusal));
        let most = core.node.settings.message_bytes;
        if data.len() > most {
            let message = format!("data has {} bytes, at most {most} are allowed", data.len());
            let party = self.views.text(Some(user));
            return refuse(Refusal::new(Code::TooLarge, message).with_party(party));
        }
        let Some(party) = self.views.party_of(user) else {
            return refuse(Refusal::from(Code::NotMember).with_party(self.views.text(Some(user))));
        };
        let channel = party_channel(party);
        let receivers =
            core.publish(now, Namespace::Channel, channel.as_bytes(), data.as_bytes(), true, Some(author));
        reply::published(body, receivers, None);
        Ok(())
    }

    /// A command of an app, or of a user whom an app speaks for.
    pub(crate) fn order(&mut self, core: &mut Core, call: PartyRequest, limited: bool, claim: ReplyTo) {
        if let Some(user) = call.user.as_ref().filter(|_| limited)
            && let Err(CommandStop::Refused(refusal)) = self.admit(core, user, &call.command)
        {
            return core.finish(claim, Err(refusal));
        }
        self.begin(core, PartyDecision::new(call, Some(claim)));
    }
}
