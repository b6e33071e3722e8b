//! SUBSCRIBE and its variants, PUBLISH, SPUBLISH, PUBSUB.
//! Must hold: one confirmation per argument; channels and patterns share a counter, shard channels have their own;
//! a publisher that is subscribed to its own channel gets the reply first, then the message.

use super::{RedisCall, text};
use crate::resp::rights::{self, Halt};
use crate::resp::{RedisNext, RedisPeer};
use std::borrow::Cow;
use std::collections::HashSet;
use tavern_domain::{Rights, Verb, pattern};
use tavern_hub::core::rights_change::{has_lost, has_lost_pattern};
use tavern_hub::node::bus_interests::InterestGuard;
use tavern_hub::{InterestState, Link, ListenerId, Namespace, RedisPublish, Shard};
use tavern_wire::resp as reply;

/// Messages of one connection that wait for the store.
const PIPELINE_MAX: u32 = 1_024;

pub fn is_subscribed(peer: &RedisPeer, hub: &Shard) -> bool {
    peer.listener
        .and_then(|id| hub.core.listener(id))
        .is_some_and(|listener| listener.counts.iter().any(|&n| n > 0))
}

pub fn publish(call: &mut RedisCall<'_, '_>) -> RedisNext {
    publish_to(call, Namespace::Channel)
}

pub fn spublish(call: &mut RedisCall<'_, '_>) -> RedisNext {
    publish_to(call, Namespace::Shard)
}

fn publish_to(call: &mut RedisCall<'_, '_>, space: Namespace) -> RedisNext {
    if !call.in_exec
        && let Err(halt) = rights::pay(call.peer, call.context, call.spec)
    {
        return call.halt(halt);
    }
    let channel = match rights::used(call.peer, call.context, Verb::Publish, call.args.at(1)) {
        Ok(channel) => channel,
        Err(halt) => return call.halt(halt),
    };
    let payload = call.args.at(2);
    let max = call.context.server.config.limits.message_bytes;
    if payload.len() > max {
        return call.error(&format!(
            "ERR the message has {} bytes; at most {max} are allowed (limits.message_bytes)",
            payload.len()
        ));
    }
    let author = call.peer.author.as_deref().cloned();
    if space == Namespace::Channel
        && let Some(keep) = call.context.hub.core.node().history_limits(&channel)
        && let Ok(channel) = std::str::from_utf8(&channel)
    {
        return publish_stored(call, RedisPublish { channel, payload, author, keep, replies: true });
    }
    if call.peer.state.unstored > 0 {
        return RedisNext::Stall;
    }
    let receivers = call.context.hub.core.publish(call.context.now, space, &channel, payload, false, author);
    reply::int(call.out, i64::from(receivers));
    RedisNext::Go
}

/// The reply is sent when the message is stored; more commands may follow before that.
fn publish_stored(call: &mut RedisCall<'_, '_>, publish: RedisPublish<'_>) -> RedisNext {
    if call.in_exec {
        return call.error("ERR PUBLISH to a channel with history is not allowed inside MULTI");
    }
    if call.peer.state.unstored >= PIPELINE_MAX {
        return RedisNext::Stall;
    }
    let replies = !call.peer.state.is_quiet();
    call.peer.state.unstored += u32::from(replies);
    let publish = RedisPublish { replies, ..publish };
    tavern_hub::publish_stored(call.context.hub, call.context.now, call.peer.link, publish);
    RedisNext::Go
}

pub fn subscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    listen(call, Namespace::Channel)
}

pub fn psubscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    listen(call, Namespace::Pattern)
}

pub fn ssubscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    listen(call, Namespace::Shard)
}

fn listen(call: &mut RedisCall<'_, '_>, space: Namespace) -> RedisNext {
    let paid = if call.in_exec { Ok(()) } else { rights::pay(call.peer, call.context, call.spec) };
    let checked = paid.and_then(|()| rights::check(call.peer, call.context, call.spec, call.args));
    if let Err(halt) = checked.and_then(|()| leave_room(call, space)) {
        return call.halt(halt);
    }
    let node = call.context.hub.core.node().clone();
    // Held until all of them are subscribed to, so that none of the names is released before.
    let mut hold = node.bus_interests.lock();
    if let Err(halt) = carry(call, space, &mut hold) {
        return call.halt(halt);
    }
    let id = open(call);
    for name in call.rest(1) {
        if space == Namespace::Pattern {
            call.context.hub.core.subscribe(id, space, name);
            confirm(call, space, "psubscribe", Some(name));
            continue;
        }
        // The check above has allowed it: same moment, same result.
        let Ok(used) = rights::used(call.peer, call.context, Verb::Subscribe, name) else { continue };
        call.context.hub.core.subscribe(id, space, &used);
        confirm(call, space, if space == Namespace::Shard { "ssubscribe" } else { "subscribe" }, Some(&used));
    }
    show_counts(call);
    RedisNext::Go
}

/// Requests all these names on the bus. Inside `EXEC` nothing can wait for the confirmation.
fn carry(call: &mut RedisCall<'_, '_>, space: Namespace, hold: &mut InterestGuard<'_>) -> Result<(), Halt> {
    let link = (!call.in_exec).then_some((call.context.hub.core.index, call.peer.link));
    let mut waits = false;
    for name in call.rest(1) {
        let used = match space {
            Namespace::Pattern => Cow::Borrowed(name),
            _ => rights::used(call.peer, call.context, Verb::Subscribe, name)?,
        };
        match hold.request(space, &used, link) {
            InterestState::Yes => {}
            InterestState::Wait => {
                // The connection may close before the bus confirms.
                call.context.hub.core.release_later(space, (*used).into());
                waits = !call.in_exec;
            }
            InterestState::Failed => return Err(Halt::Refuse(NO_BUS.into())),
        }
    }
    if waits { Err(Halt::Stall) } else { Ok(()) }
}

const EXPENSIVE: &str =
    "ERR this pattern would make publishing too expensive; use fewer `*`, or a longer literal prefix";
const NO_BUS: &str = "TRYAGAIN the bus did not confirm the subscription; retry";

/// Checks the limits on subscriptions. API keys and dev mode have none, except for the cost of patterns.
fn leave_room(call: &RedisCall<'_, '_>, space: Namespace) -> Result<(), Halt> {
    let registry = &call.context.hub.core.node().registry;
    if space == Namespace::Pattern && !call.rest(1).all(|pattern| registry.has_room_for(pattern)) {
        return Err(Halt::Refuse(EXPENSIVE.into()));
    }
    if call.peer.identity.as_ref().is_none_or(|identity| identity.unlimited) {
        return Ok(());
    }
    let hub = &*call.context.hub;
    let max = hub.core.node().settings.channels_per_session;
    let listener = call.peer.listener.and_then(|id| hub.core.listener(id));
    let patterns = call.context.hub.core.node().settings.patterns_per_session;
    let held_patterns = listener.map_or(0, |listener| listener.counts[Namespace::Pattern as usize] as usize);
    if space == Namespace::Pattern && held_patterns + call.args.len() - 1 > patterns {
        let text =
            format!("ERR a connection may have at most {patterns} patterns (limits.patterns_per_session)");
        return Err(Halt::Refuse(text.into()));
    }
    let held = listener.map_or(0, |listener| listener.counts.iter().map(|&n| n as usize).sum::<usize>());
    if held + call.args.len() - 1 <= max {
        return Ok(());
    }
    // Only near the limit: names that are already subscribed to do not count again.
    let mut names: HashSet<&[u8]> = call.rest(1).collect();
    let there = call.peer.listener.map(|id| hub.core.subscriptions(id, space)).unwrap_or_default();
    for name in &there {
        names.remove(&**name);
    }
    if held + names.len() <= max {
        return Ok(());
    }
    Err(Halt::Refuse(
        format!("ERR a connection may have at most {max} subscriptions (limits.channels_per_session)").into(),
    ))
}

/// The listener of this connection; created by the first subscription.
fn open(call: &mut RedisCall<'_, '_>) -> ListenerId {
    if let Some(id) = call.peer.listener.filter(|id| call.context.hub.core.listener(*id).is_some()) {
        return id;
    }
    let link = Link { id: call.peer.link, format: call.peer.format() };
    let id = tavern_hub::core::redis::open(&mut call.context.hub.core, link);
    if call.peer.state.polls {
        tavern_hub::core::redis::set_pushing(&mut call.context.hub.core, id, false);
    }
    call.peer.listener = Some(id);
    id
}

pub fn unsubscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    leave(call, Namespace::Channel, "unsubscribe")
}

pub fn punsubscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    leave(call, Namespace::Pattern, "punsubscribe")
}

pub fn sunsubscribe(call: &mut RedisCall<'_, '_>) -> RedisNext {
    leave(call, Namespace::Shard, "sunsubscribe")
}

fn leave(call: &mut RedisCall<'_, '_>, space: Namespace, kind: &str) -> RedisNext {
    let id = call.peer.listener;
    if call.args.len() > 1 {
        for name in call.rest(1) {
            if let Some(id) = id {
                call.context.hub.unsubscribe(id, space, name);
            }
            confirm(call, space, kind, Some(name));
        }
    } else {
        let names = id.map(|id| call.context.hub.core.subscriptions(id, space)).unwrap_or_default();
        for name in &names {
            if let Some(id) = id {
                call.context.hub.unsubscribe(id, space, name);
            }
            confirm(call, space, kind, Some(name));
        }
        if names.is_empty() {
            confirm(call, space, kind, None);
        }
    }
    show_counts(call);
    RedisNext::Go
}

/// The connection has logged in again: subscriptions that only its former rights allowed end, as if it had ended them.
pub fn end_revoked(call: &mut RedisCall<'_, '_>, former: &Rights) {
    let (Some(id), Some(identity)) = (call.peer.listener, call.peer.identity.clone()) else { return };
    let spaces = [
        (Namespace::Channel, "unsubscribe"),
        (Namespace::Pattern, "punsubscribe"),
        (Namespace::Shard, "sunsubscribe"),
    ];
    for (space, kind) in spaces {
        for name in call.context.hub.core.subscriptions(id, space) {
            let core = &call.context.hub.core;
            let ended = match space {
                Namespace::Pattern => has_lost_pattern(core, former, &identity, &name),
                _ => has_lost(core, former, &identity, Verb::Subscribe, &name),
            };
            if ended {
                call.context.hub.unsubscribe(id, space, &name);
                confirm(call, space, kind, Some(&name));
            }
        }
    }
    show_counts(call);
}

/// Channels, patterns, shard channels.
fn counts(call: &RedisCall<'_, '_>) -> [u32; 3] {
    let listener = call.peer.listener.and_then(|id| call.context.hub.core.listener(id));
    listener.map_or([0; 3], |listener| [listener.counts[0], listener.counts[1], listener.counts[2]])
}

fn show_counts(call: &mut RedisCall<'_, '_>) {
    call.peer.info.set_counts(counts(call));
}

fn confirm(call: &mut RedisCall<'_, '_>, space: Namespace, kind: &str, name: Option<&[u8]>) {
    let [channels, patterns, shards] = counts(call);
    let count = if space == Namespace::Shard { shards } else { channels + patterns };
    let proto = call.proto();
    reply::push(call.out, 3, proto);
    reply::bulk(call.out, kind.as_bytes());
    match name {
        Some(name) => reply::bulk(call.out, name),
        None => reply::null_bulk(call.out, proto),
    }
    reply::int(call.out, i64::from(count));
}

pub fn channels(call: &mut RedisCall<'_, '_>) -> RedisNext {
    show_channels(call, Namespace::Channel)
}

pub fn shardchannels(call: &mut RedisCall<'_, '_>) -> RedisNext {
    show_channels(call, Namespace::Shard)
}

fn show_channels(call: &mut RedisCall<'_, '_>, space: Namespace) -> RedisNext {
    if call.args.len() > 3 {
        text::error(call.out, &text::wrong_subcommand("pubsub", call.args.at(1)));
        return RedisNext::Go;
    }
    let glob = (call.args.len() == 3).then(|| call.args.at(2));
    let mut names = call.context.hub.core.node().registry.listened(space);
    names.retain(|(name, _)| {
        glob.is_none_or(|glob| pattern::matches(glob, name)) && rights::may_see(call.peer, call.context, name)
    });
    reply::array(call.out, names.len());
    for (name, _) in names {
        reply::bulk(call.out, &name);
    }
    RedisNext::Go
}

pub fn numsub(call: &mut RedisCall<'_, '_>) -> RedisNext {
    show_totals(call, Namespace::Channel)
}

pub fn shardnumsub(call: &mut RedisCall<'_, '_>) -> RedisNext {
    show_totals(call, Namespace::Shard)
}

fn show_totals(call: &mut RedisCall<'_, '_>, space: Namespace) -> RedisNext {
    reply::array(call.out, (call.args.len() - 2) * 2);
    for name in call.rest(2) {
        let seen = rights::may_see(call.peer, call.context, name);
        let total = if seen { call.context.hub.core.node().registry.total(space, name) } else { 0 };
        reply::bulk(call.out, name);
        reply::int(call.out, i64::from(total));
    }
    RedisNext::Go
}

pub fn numpat(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::int(call.out, call.context.hub.core.node().registry.pattern_count() as i64);
    RedisNext::Go
}

const HELP: [&str; 14] = [
    "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
    "HELP",
    "    Prints this help.",
];

pub fn help(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::array(call.out, HELP.len());
    for line in HELP {
        reply::simple(call.out, line);
    }
    RedisNext::Go
}
