//! Authorization of Redis commands: the rights of the token or key on the named channels, and the rate limit.
//! Must hold: the rights of all names are known before anything changes; a call to the authorize hook stalls the command.

use crate::config::ServerMode;
use crate::resp::command::{CommandSpec, TavernFlags};
use crate::resp::{Args, RedisContext, RedisPeer};
use std::borrow::Cow;
use tavern_domain::rate::Allowance;
use tavern_domain::{AddressGroup, Channel, Scope, Verb, limits};
use tavern_hub::{Permission, core::authorize};
use tavern_wire::error::{Code, Refusal};

/// The names among the arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedArguments {
    None,
    /// Every argument is a channel to subscribe to.
    Listened,
    /// Every argument is a pattern.
    Patterns,
    /// The first argument is a channel to publish to.
    Published,
}

/// Why a command does not run now.
#[derive(Debug, PartialEq, Eq)]
pub enum Halt {
    Refuse(Cow<'static, str>),
    /// The authorize hook was called; run it again later.
    Stall,
}

const NO_CHANNEL: &str = "NOPERM No permissions to access a channel";
const LONG_NAME: &str = "ERR a channel or pattern has at most 512 bytes";
const BAD_REDIRECT: &str = "ERR the authorize hook named a channel that cannot be used";

/// Whether it may run the commands of operators.
pub fn is_admin(peer: &RedisPeer, context: &RedisContext<'_>) -> bool {
    context.server.config.mode == ServerMode::Dev
        || peer.identity.as_ref().is_some_and(|identity| identity.scopes.has(Scope::Admin))
}

/// Whether it may see that a channel has subscribers. Clients with an API key may.
pub fn may_see(peer: &RedisPeer, context: &RedisContext<'_>, name: &[u8]) -> bool {
    if context.server.config.mode == ServerMode::Dev {
        return true;
    }
    let Some(identity) = &peer.identity else { return false };
    let Ok(channel) = Channel::parse_redis(name) else { return false };
    let may = |verb| authorize::permit(&context.hub.core, identity, verb, &channel) == Permission::Yes;
    !identity.scopes.is_empty() || may(Verb::Subscribe) || may(Verb::Publish)
}

/// Counts a command in the rate limit: once, even if it stalls in between.
pub fn pay(peer: &mut RedisPeer, context: &RedisContext<'_>, spec: &CommandSpec) -> Result<(), Halt> {
    let Some(identity) = &peer.identity else { return Ok(()) };
    let per_second = context.hub.core.node().settings.commands_per_second;
    if identity.unlimited || per_second == 0 || !spec.own.has(TavernFlags::LIMITED) {
        return Ok(());
    }
    if context.server.config.mode == ServerMode::Dev || peer.state.stalled {
        return Ok(());
    }
    let rates = &context.hub.core.node().rates;
    let connection = peer.state.bucket.take(context.now, Allowance::with_burst(per_second));
    let connection = connection.map_err(|ms| {
        Refusal::new(Code::RateLimited, "this connection sends too many commands per second").retry_after(ms)
    });
    connection
        .and_then(|()| match &identity.user {
            Some(user) => rates.take_user_command(context.now, user),
            None => Ok(()),
        })
        .and_then(|()| match address(peer, context) {
            Some(address) => rates.take_address_command(context.now, address),
            None => Ok(()),
        })
        .map_err(|refusal| Halt::Refuse(rate_error(&refusal).into()))
}

/// The address that a connection counts for; None: it comes from a proxy.
pub fn address(peer: &RedisPeer, context: &RedisContext<'_>) -> Option<AddressGroup> {
    let address = peer.info.addr.ip();
    let proxied = context.server.config.trusted_proxies.iter().any(|proxy| proxy.contains(address));
    (!proxied).then(|| AddressGroup::of(address))
}

/// The error of a rate-limited command or login.
pub fn rate_error(refusal: &Refusal) -> String {
    let ms = refusal.retry_after_ms.unwrap_or_default();
    format!("ERR rate limited: {}, retry in {ms} ms", refusal.message)
}

/// Checks every name that a command uses.
pub fn check(
    peer: &RedisPeer,
    context: &mut RedisContext<'_>,
    spec: &CommandSpec,
    args: &Args<'_>,
) -> Result<(), Halt> {
    match spec.names {
        NamedArguments::None => Ok(()),
        NamedArguments::Patterns => check_patterns(peer, context, args),
        NamedArguments::Published => used(peer, context, Verb::Publish, args.at(1)).map(|_| ()),
        NamedArguments::Listened => check_channels(peer, context, args),
    }
}

fn check_patterns(peer: &RedisPeer, context: &RedisContext<'_>, args: &Args<'_>) -> Result<(), Halt> {
    let Some(identity) = &peer.identity else { return refuse(NO_CHANNEL) };
    for pattern in args.iter().skip(1) {
        if pattern.len() > limits::REDIS_CHANNEL_BYTES {
            return refuse(LONG_NAME);
        }
        if !authorize::permit_pattern(&context.hub.core.node().settings, identity, pattern) {
            return refuse(NO_CHANNEL);
        }
    }
    Ok(())
}

fn check_channels(peer: &RedisPeer, context: &mut RedisContext<'_>, args: &Args<'_>) -> Result<(), Halt> {
    let mut stalled = false;
    for name in args.iter().skip(1) {
        match used(peer, context, Verb::Subscribe, name) {
            Ok(_) => {}
            Err(Halt::Stall) => {
                stalled = true;
                // The first run has called the hook for all of them; one pending answer is enough to be woken again.
                if peer.state.stalled {
                    break;
                }
            }
            refused => return refused.map(|_| ()),
        }
    }
    if stalled { Err(Halt::Stall) } else { Ok(()) }
}

/// The channel to use for this name: itself, or the one that the authorize hook chose instead.
pub fn used<'n>(
    peer: &RedisPeer,
    context: &mut RedisContext<'_>,
    verb: Verb,
    name: &'n [u8],
) -> Result<Cow<'n, [u8]>, Halt> {
    let Ok(channel) = Channel::parse_redis(name) else { return refuse(LONG_NAME) };
    let Some(identity) = &peer.identity else { return refuse(NO_CHANNEL) };
    match authorize::permit(&context.hub.core, identity, verb, &channel) {
        Permission::Yes => Ok(Cow::Borrowed(name)),
        Permission::No => refuse(NO_CHANNEL),
        Permission::Instead(other) => match Channel::parse(&other) {
            Ok(channel) if !channel.is_reserved() => Ok(Cow::Owned(other.as_bytes().to_vec())),
            _ => refuse(BAD_REDIRECT),
        },
        Permission::Ask(question) => {
            authorize::ask(&mut context.hub.core, question, peer.link);
            Err(Halt::Stall)
        }
    }
}

fn refuse<T>(text: &'static str) -> Result<T, Halt> {
    Err(Halt::Refuse(Cow::Borrowed(text)))
}
