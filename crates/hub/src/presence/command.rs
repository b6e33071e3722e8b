//! The commands of presence: `join`, `update`, `leave`, `who`, and watching by `subscribe {presence}`. Each waits for the
//! store: it runs once to begin, and again to find its answer.

use crate::command::{Caller, Step, Stop, parse_channel, refuse, unavailable};
use crate::event::Space;
use crate::listener::ListenerId;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::{Departure, State};
use tavern_domain::{Time, Verb};
use tavern_wire::error::Code;
use tavern_wire::json::{Join, Subscribe, Update, Who, presence::meaning};

/// Users in one answer to `who`, unless it asks for fewer.
const WHO_USERS: u64 = 100;

impl Shard {
    pub(crate) fn op_join(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        join: &Join<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = self.answer_of(caller, body) {
            return done;
        }
        let state = join.state.map(|text| self.state_of(text)).transpose()?;
        let channel = parse_channel(&join.channel)?;
        let name = self.permitted(now, caller, id, Verb::Join, &channel)?;
        let most = self.node.settings.channels_per_session;
        let session = self.listeners.get(id).and_then(|listener| listener.session());
        if session.is_some_and(|s| s.present.joined() >= most && !s.present.has(&name)) {
            return refuse(Code::TooLarge, format!("a client is present in at most {most} channels"));
        }
        let claim = self.presences.claim(caller.link.id);
        self.join(now, id, &name, state, Some(claim));
        Err(Stop::Begun(claim))
    }

    pub(crate) fn op_update(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        update: &Update<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = self.answer_of(caller, body) {
            return done;
        }
        let state = self.state_of(update.state)?;
        let channel = parse_channel(&update.channel)?;
        let name = self.permitted(now, caller, id, Verb::Join, &channel)?;
        let claim = self.presences.claim(caller.link.id);
        self.update(now, id, &name, state, claim);
        Err(Stop::Begun(claim))
    }

    /// Leaving needs no right: whoever could come may go.
    pub(crate) fn op_leave(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        channel: &str,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = self.answer_of(caller, body) {
            return done;
        }
        if parse_channel(channel)?.is_reserved() {
            return refuse(Code::NotAllowed, format!("nobody leaves {channel:?} by name; the server does"));
        }
        let claim = self.presences.claim(caller.link.id);
        self.leave(now, id, channel, Departure::Left, Some(claim));
        Err(Stop::Begun(claim))
    }

    pub(crate) fn op_who(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        who: &Who<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if let Some(done) = self.answer_of(caller, body) {
            return done;
        }
        let channel = parse_channel(&who.channel)?;
        let name = self.permitted(now, caller, id, Verb::Presence, &channel)?;
        let limit = who.limit.unwrap_or(WHO_USERS).min(u64::from(u32::MAX)) as u32;
        let claim = self.presences.claim(caller.link.id);
        let viewer = self.user_of(id);
        self.ask_who(&name, who.after.as_deref(), limit, who.counts_only, viewer, claim);
        Err(Stop::Wait)
    }

    /// `subscribe {presence:true}`: listens to the channel and watches who is there.
    pub(crate) fn op_watch(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        subscribe: &Subscribe<'_>,
        name: &Arc<str>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        if matches!(subscribe.target, tavern_wire::json::Target::Pattern(_)) {
            return refuse(Code::BadRequest, "presence is watched channel by channel; a pattern has none");
        }
        let channel = parse_channel(name)?;
        self.permitted(now, caller, id, Verb::Presence, &channel)?;
        if let Some(Err(refusal)) = self.presences.take_outcome(caller.link.id) {
            return Err(Stop::Refused(refusal));
        }
        // Carried first, read then: what happens in between is heard.
        self.carried_subscribe(caller, id, Space::Channel, name)?;
        self.carry_presence(caller, name)?;
        let Some(members) = self.members(name, id, caller.link.id) else { return Err(Stop::Wait) };
        self.subscribe(id, Space::Presence, name.as_bytes());
        self.release_news(name);
        body.extend_from_slice(b"{\"members\":");
        body.extend_from_slice(&members);
        body.push(b'}');
        Ok(())
    }

    /// The answer that this transport's command waited for.
    pub(crate) fn answer_of(&mut self, caller: &Caller, body: &mut Vec<u8>) -> Option<Step<()>> {
        let outcome = self.presences.take_outcome(caller.link.id)?;
        // Rosters are large: taken over, not copied.
        Some(outcome.map(|answer| *body = answer).map_err(Stop::Refused))
    }

    fn state_of(&self, text: &str) -> Step<State> {
        let most = self.node.settings.state_bytes;
        if text.len() > most {
            return refuse(
                Code::TooLarge,
                format!("the state has {} bytes, at most {most} are allowed", text.len()),
            );
        }
        Ok(State { text: text.into(), meaning: meaning(text) })
    }

    fn carry_presence(&mut self, caller: &Caller, name: &str) -> Step<()> {
        let node = self.node.clone();
        let link = Some((self.index, caller.link.id));
        match node.carrier.hold().carry(Space::Presence, name.as_bytes(), link) {
            crate::Carried::Yes => Ok(()),
            crate::Carried::Wait => {
                self.linger(Space::Presence, name.as_bytes().into());
                Err(Stop::Wait)
            }
            crate::Carried::Failed => unavailable(),
        }
    }
}
