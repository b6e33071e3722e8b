//! What one shard does about an order: to the sessions of a user that it has. Sessions that are on their way to another node
//! are left alone: the node that gets them ends them, because it remembers the order.

use crate::connection::CloseReason;
use crate::core::listener::ListenerId;
use crate::core::session::Session;
use crate::core::{Core, Notice};
use crate::event::Namespace;
use crate::node::InterestState;
use std::sync::Arc;
use tavern_wire::bus::control::{ControlAction, ControlReply, ControlRequest, Disconnect, UserSession};
use tavern_wire::json;

/// None: it is not done yet, and is asked again.
pub(super) fn carry_out(core: &mut Core, request: &ControlRequest) -> Option<ControlReply> {
    let user = &request.user;
    let mut reply = ControlReply {
        number: request.number,
        to_shard: request.shard,
        shard: core.index as u32,
        shards: core.node.settings.shards as u32,
        count: 0,
        failed: 0,
        sessions: Vec::new(),
    };
    match &request.action {
        ControlAction::Sessions => {
            reply.sessions = core.users.sessions(user).iter().filter_map(|id| describe(core, *id)).collect();
            reply.count = reply.sessions.len() as u32;
        }
        ControlAction::Disconnect(order) => reply.count = disconnect(core, user, order),
        ControlAction::Subscribe(channel) => {
            let (count, failed) = subscribe(core, user, channel)?;
            (reply.count, reply.failed) = (count, failed);
        }
        ControlAction::Unsubscribe(channel) => reply.count = unsubscribe(core, user, channel),
        ControlAction::Ban(ban) => {
            core.node.blocks.ban(user.clone(), ban.clone());
            reply.count = end_all(core, user, &CloseReason::banned(ban), |_| true);
        }
        ControlAction::Unban => core.node.blocks.unban(user),
    }
    Some(reply)
}

fn disconnect(core: &mut Core, user: &Arc<str>, order: &Disconnect) -> u32 {
    let reason = CloseReason::disconnected(order);
    let concerned = |session: &Session| session.since <= order.at && !order.except.contains(&session.client);
    if !order.allow_resume {
        core.node.blocks.disconnect(core.now, user.clone(), order.clone());
        return end_all(core, user, &reason, concerned);
    }
    let mut count = 0;
    for id in core.users.sessions(user).to_vec() {
        let link = core.listener(id).and_then(|listener| listener.link);
        if let Some(link) = link.filter(|_| core.session(id).is_some_and(concerned)) {
            core.effects.closes.push((link.id, reason.clone()));
            core.detach(id, link.id);
            count += 1;
        }
    }
    count
}

fn end_all(
    core: &mut Core,
    user: &Arc<str>,
    reason: &CloseReason,
    concerned: impl Fn(&Session) -> bool,
) -> u32 {
    let mut count = 0;
    for id in core.users.sessions(user).to_vec() {
        let Some(session) = core.session(id).filter(|session| concerned(session)) else { continue };
        if !session.frozen {
            core.notify(Notice::SessionBlocked { id, reason: reason.clone() });
        }
        count += 1;
    }
    count
}

/// How many are subscribed, and how many are not because of a limit. None: the bus has not confirmed it yet.
fn subscribe(core: &mut Core, user: &Arc<str>, channel: &Arc<str>) -> Option<(u32, u32)> {
    let (mut count, mut failed) = (0, 0);
    let sessions = core.users.sessions(user).to_vec();
    if sessions.is_empty() {
        return Some((0, 0));
    }
    let (node, space, name) = (core.node.clone(), Namespace::Channel, channel.as_bytes());
    let mut hold = node.bus_interests.lock();
    match hold.request(space, name, None) {
        InterestState::Yes => {}
        InterestState::Wait => {
            core.release_later(space, name.into());
            return None;
        }
        InterestState::Failed => return Some((0, sessions.len() as u32)),
    }
    for id in sessions {
        let Some(listener) = core.listener(id) else { continue };
        let is_frozen = listener.session().is_some_and(|session| session.frozen);
        let there = core.routing.find(space, name).is_some_and(|at| listener.subscriptions.contains_key(&at));
        let has_room = listener.subscriptions.len() < core.node.settings.channels_per_session;
        if !there && (is_frozen || !has_room) {
            failed += 1;
            continue;
        }
        if core.subscribe(id, space, name) {
            core.put_json(id, json::subscribed_tail(channel).into());
        }
        count += 1;
    }
    Some((count, failed))
}

fn unsubscribe(core: &mut Core, user: &Arc<str>, channel: &Arc<str>) -> u32 {
    let mut count = 0;
    for id in core.users.sessions(user).to_vec() {
        core.unsubscribe(id, Namespace::Presence, channel.as_bytes());
        if core.unsubscribe(id, Namespace::Channel, channel.as_bytes()) {
            core.put_json(id, json::unsubscribed_tail(channel).into());
            count += 1;
        }
    }
    count
}

fn describe(core: &Core, id: ListenerId) -> Option<UserSession> {
    let listener = core.listener(id)?;
    let session = listener.session()?;
    let transport = listener.link.map(|link| link.format.transport());
    Some(UserSession {
        client: session.client,
        since: session.since,
        transport: transport.map(Arc::from),
        heard_at: session.active_at,
        channels: listener.counts[Namespace::Channel as usize],
        moving: session.frozen,
    })
}
