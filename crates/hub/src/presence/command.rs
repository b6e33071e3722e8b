//! The commands of presence: `join`, `update`, `leave`, `who`, and watching by `subscribe {presence}`. Each waits for the
//! store.

use super::Presence;
use crate::core::Core;
use crate::core::command::{
    Caller, CommandEnd, CommandResult, parse_channel, permitted, refuse, run_again, subscribe_on_bus,
    unavailable,
};
use crate::core::listener::ListenerId;
use crate::event::Namespace;
use crate::node::InterestState;
use std::sync::Arc;
use tavern_domain::Verb;
use tavern_domain::presence::{ClientState, OfflineReason};
use tavern_wire::error::Code;
use tavern_wire::json::{JoinRequest, SubscribeRequest, UpdateRequest, WhoRequest, presence::state_digest};

impl Presence {
    pub(crate) fn op_join(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        join: &JoinRequest<'_>,
    ) -> CommandResult<CommandEnd> {
        let state = join.state.as_deref().map(|text| state_of(core, text)).transpose()?;
        let channel = parse_channel(&join.channel)?;
        let name = permitted(core, caller, id, Verb::Join, &channel)?;
        let (_, max) = core.node.settings.channels_of(caller.link.format);
        let session = core.listeners.get(id).and_then(|listener| listener.session());
        if session.is_some_and(|s| s.present.joined() >= max && !s.present.has(&name)) {
            return refuse(Code::TooLarge, format!("a client may be present in at most {max} channels"));
        }
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        self.join(core, id, &name, state, Some(claim));
        Ok(CommandEnd::pipelined(claim))
    }

    pub(crate) fn op_update(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        update: &UpdateRequest<'_>,
    ) -> CommandResult<CommandEnd> {
        let state = state_of(core, &update.state)?;
        let channel = parse_channel(&update.channel)?;
        let name = permitted(core, caller, id, Verb::Join, &channel)?;
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        self.update(core, id, &name, state, claim);
        Ok(CommandEnd::pipelined(claim))
    }

    /// Leaving needs no right.
    pub(crate) fn op_leave(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        channel: &str,
    ) -> CommandResult<CommandEnd> {
        if parse_channel(channel)?.is_reserved() {
            return refuse(
                Code::NotAllowed,
                format!("{channel:?} cannot be left: only the server removes users from it"),
            );
        }
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        self.leave(core, id, channel, OfflineReason::Left, Some(claim));
        Ok(CommandEnd::pipelined(claim))
    }

    pub(crate) fn op_who(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        who: &WhoRequest<'_>,
    ) -> CommandResult<CommandEnd> {
        let channel = parse_channel(&who.channel)?;
        let name = permitted(core, caller, id, Verb::Presence, &channel)?;
        let claim = core.replies.expect_reply(core.now, caller.link.id);
        let viewer = core.user_of(id);
        self.rooms.ask_who(core, &name, who, viewer, claim);
        Ok(CommandEnd::stored())
    }

    /// `subscribe {presence:true}`: subscribes to the channel and watches its presence.
    pub(crate) fn op_watch(
        &mut self,
        core: &mut Core,
        caller: &Caller,
        id: ListenerId,
        subscribe: &SubscribeRequest<'_>,
        name: &Arc<str>,
        body: &mut Vec<u8>,
    ) -> CommandResult<()> {
        if matches!(subscribe.target, tavern_wire::json::SubscribeTarget::Pattern(_)) {
            return refuse(
                Code::BadRequest,
                "presence is per channel; subscribe to a channel instead of a pattern",
            );
        }
        let channel = parse_channel(name)?;
        permitted(core, caller, id, Verb::Presence, &channel)?;
        // Subscribe before reading, so that changes in between are received.
        subscribe_on_bus(core, caller, id, Namespace::Channel, name)?;
        carry_presence(core, caller, name)?;
        let Some(members) = self.rooms.members(core, name, id, caller.link.id) else {
            return run_again();
        };
        core.subscribe(id, Namespace::Presence, name.as_bytes());
        self.rooms.end_interest(core, name);
        tavern_wire::json::reply::members(body, &members);
        Ok(())
    }
}

fn state_of(core: &Core, text: &str) -> CommandResult<ClientState> {
    let max = core.node.settings.state_bytes;
    if text.len() > max {
        return refuse(
            Code::TooLarge,
            format!("the state has {} bytes, at most {max} are allowed", text.len()),
        );
    }
    Ok(ClientState { text: text.into(), digest: state_digest(text) })
}

fn carry_presence(core: &mut Core, caller: &Caller, name: &str) -> CommandResult<()> {
    let node = core.node.clone();
    let link = Some((core.index, caller.link.id));
    match node.bus_interests.lock().request(Namespace::Presence, name.as_bytes(), link) {
        InterestState::Yes => Ok(()),
        InterestState::Wait => {
            core.release_later(Namespace::Presence, name.as_bytes().into());
            run_again()
        }
        InterestState::Failed => unavailable(),
    }
}
