//! The commands about channels: `subscribe`, `publish` and `history`.

use super::Shard;
use crate::core::Core;
use crate::core::authorize;
use crate::core::command::{
    Caller, CommandEnd, CommandResult, not_allowed, parse_channel, permitted, refuse, subscribe_on_bus,
};
use crate::core::listener::ListenerId;
use crate::core::session::Session;
use crate::event::{Author, Namespace};
use crate::history::{self, HistoryPublish, MessageAuthor, PublisherReply, Subscribed};
use std::sync::Arc;
use tavern_domain::{Verb, limits};
use tavern_store::{HistorySender, NewHistoryMessage};
use tavern_wire::error::Code;
use tavern_wire::json::history::SubscribedAt;
use tavern_wire::json::{self, HistoryRequest, PublishRequest, SubscribeRequest, SubscribeTarget};

pub(super) fn op_subscribe(
    shard: &mut Shard,
    caller: &Caller,
    id: ListenerId,
    subscribe: &SubscribeRequest<'_>,
) -> CommandResult<CommandEnd> {
    let (space, name) = subscribe_target(&mut shard.core, caller, id, subscribe)?;
    let core = &mut shard.core;
    let (key, max) = core.node.settings.channels_of(caller.link.format);
    let held = core.listeners.get(id).map_or(0, |listener| listener.subscriptions.len());
    let there = core.routing.find(space, name.as_bytes()).is_some_and(|place| {
        core.listeners.get(id).is_some_and(|listener| listener.subscriptions.contains_key(&place))
    });
    if held >= max && !there {
        return refuse(
            Code::TooLarge,
            format!("a session may subscribe to at most {max} channels and patterns ({key})"),
        );
    }
    if space == Namespace::Pattern && !there {
        let max = core.node.settings.patterns_per_session;
        let held = core.listeners.get(id).map_or(0, |listener| listener.counts[space as usize]);
        if held as usize >= max {
            let message =
                format!("a session may subscribe to at most {max} patterns (limits.patterns_per_session)");
            return refuse(Code::TooLarge, message);
        }
        if !core.node.registry.has_room_for(name.as_bytes()) {
            let message =
                "this pattern would make publishing too expensive; use fewer `*`, or a longer literal prefix";
            return refuse(Code::TooLarge, message);
        }
    }
    let limits = (space == Namespace::Channel).then(|| core.node.history_limits(name.as_bytes())).flatten();
    let recovers = subscribe.since.is_some() || subscribe.last.is_some();
    if recovers && space != Namespace::Channel {
        return refuse(Code::BadRequest, "a pattern has no history; subscribe to a channel");
    }
    if space == Namespace::Channel && limits.is_none() && subscribe.last.is_some_and(|last| last > 1) {
        let message = "this kind of channel has no history (kinds.NAME.history_messages): `last` gives a retained \
            message at most, so it may be 0 or 1";
        return refuse(Code::BadRequest, message);
    }
    // Without history there may be a retained message, which every subscriber may have.
    let retained = subscribe.last.and_then(|_| core.node.retained_limits(name.as_bytes()));
    if recovers && (limits.is_some() || retained.is_none() || subscribe.since.is_some()) {
        history::readable(core, caller, id, &name)?;
    }
    let kept = limits.or(retained);
    if kept.is_some() {
        core.node.note_retained();
    }
    if !there && (kept.is_some() || !subscribe.presence) {
        subscribe_on_bus(core, caller, id, space, &name)?;
    }
    let position = match kept {
        Some(kept) => Some(shard.history.op_subscribe(core, caller, id, &name, subscribe, &kept)?),
        None => None,
    };
    let position = position.filter(|_| limits.is_some());
    let mut body = Vec::new();
    if subscribe.presence {
        shard.presence.op_watch(core, caller, id, subscribe, &name, &mut body)?;
    }
    shard.history.answer_written(core, caller.link.id);
    write_subscribed(subscribe, &name, position, &mut body);
    Ok(CommandEnd::Reply(body))
}

fn subscribe_target(
    core: &mut Core,
    caller: &Caller,
    id: ListenerId,
    subscribe: &SubscribeRequest<'_>,
) -> CommandResult<(Namespace, Arc<str>)> {
    match &subscribe.target {
        SubscribeTarget::Channel(name) => {
            let channel = parse_channel(name)?;
            Ok((Namespace::Channel, permitted(core, caller, id, Verb::Subscribe, &channel)?))
        }
        SubscribeTarget::Pattern(pattern) => {
            if pattern.is_empty() || pattern.len() > limits::CHANNEL_BYTES {
                return refuse(Code::BadRequest, "a pattern must have 1 to 255 bytes");
            }
            let session = core.listeners.get(id).and_then(|listener| listener.session());
            let settings = &core.node.settings;
            let permits = |identity| authorize::permit_pattern(settings, identity, pattern.as_bytes());
            if !session.is_some_and(|session| permits(&session.identity)) {
                return not_allowed(core, id, Verb::Subscribe, pattern);
            }
            Ok((Namespace::Pattern, pattern.as_ref().into()))
        }
    }
}

pub(super) fn op_publish(
    shard: &mut Shard,
    caller: &Caller,
    id: ListenerId,
    publish: &PublishRequest<'_>,
) -> CommandResult<CommandEnd> {
    let core = &mut shard.core;
    let max = core.node.settings.message_bytes;
    if publish.data.len() > max {
        return refuse(
            Code::TooLarge,
            format!("data has {} bytes, at most {max} are allowed", publish.data.len()),
        );
    }
    let channel = parse_channel(&publish.channel)?;
    let name = permitted(core, caller, id, Verb::Publish, &channel)?;
    let author = core
        .session(id)
        .map(|session| Author { user: session.identity.user.clone(), client: session.client });
    let other = (*name != *publish.channel).then_some(&name);
    let limits = core.node.history_limits(name.as_bytes());
    let kept = match publish.retain && limits.is_none() {
        true => core.node.retained_limits(name.as_bytes()),
        false => limits,
    };
    if publish.retain && kept.is_none() {
        return refuse(Code::BadRequest, "channels of the server keep no message: publish without `retain`");
    }
    if let Some(keep) = kept {
        core.node.note_retained();
        let message_id = match (&publish.message_id, core.session(id)) {
            (Some(given), Some(session)) => Some(history::message_id(author_of(session), given)),
            _ => None,
        };
        let message = NewHistoryMessage {
            channel: name.clone(),
            id: message_id,
            sender: author.map(|Author { user, client }| HistorySender { user, client }),
            json: true,
            body: publish.data.as_bytes().into(),
            keep,
        };
        let to = core.replies.expect_reply(core.now, caller.link.id);
        let reply = PublisherReply::Json { other_channel: other.cloned(), is_numbered: limits.is_some() };
        shard.history.publish(core, HistoryPublish { message, to, reply });
        return Ok(CommandEnd::pipelined(to));
    }
    let data = publish.data.as_bytes();
    let receivers = core.publish(core.now, Namespace::Channel, name.as_bytes(), data, true, author);
    let mut body = Vec::new();
    json::reply::published(&mut body, receivers, other.map(|name| &**name));
    Ok(CommandEnd::Reply(body))
}

pub(super) fn op_history(
    shard: &mut Shard,
    caller: &Caller,
    id: ListenerId,
    request: &HistoryRequest<'_>,
) -> CommandResult<CommandEnd> {
    parse_channel(&request.channel)?;
    let limits = history::readable(&mut shard.core, caller, id, &request.channel)?;
    let channel: Arc<str> = request.channel.as_ref().into();
    shard.history.op_history(&mut shard.core, caller, request, &channel, &limits);
    Ok(CommandEnd::stored())
}

/// Whose message ids a session gives: they outlive it, unless it has neither a user nor an API key.
fn author_of(session: &Session) -> MessageAuthor<'_> {
    match (&session.identity.user, &session.identity.key) {
        (Some(user), _) => MessageAuthor::User(user),
        (None, Some(key)) => MessageAuthor::Key(Some(key)),
        (None, None) => MessageAuthor::Client(session.client),
    }
}

/// The position in the history, and the substituted channel if it differs from the requested one.
fn write_subscribed(
    subscribe: &SubscribeRequest<'_>,
    name: &str,
    position: Option<Subscribed>,
    body: &mut Vec<u8>,
) {
    let other_channel = match &subscribe.target {
        SubscribeTarget::Channel(asked) if asked != name => Some(name),
        _ => None,
    };
    let Some(Subscribed { position, recovered }) = position else {
        if let Some(name) = other_channel.filter(|_| !subscribe.presence) {
            json::reply::channel(body, name);
        }
        return;
    };
    let mut reply = Vec::new();
    json::history::subscribed(&mut reply, &SubscribedAt { other_channel, position, recovered });
    if body.pop().is_some() {
        body.push(b',');
        body.extend_from_slice(&reply[1..]);
    } else {
        *body = reply;
    }
}
