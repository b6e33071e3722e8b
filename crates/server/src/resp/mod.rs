//! The Redis protocol over one connection: bytes into commands, replies in order. The hub decides.
//! Must hold: commands of a connection run in order; a reply follows the messages before it.

use crate::auth::{AuthError, Authenticator};
use crate::config::Config;
use crate::connections::Connections;
use crate::resp::clients::{ClientInfo, Clients};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use tavern_domain::{Identity, Time};
use tavern_hub::{Author, EventFormat, LinkId, ListenerId, Scratch, Shard, next_redis_reply};
use tavern_wire::resp::{Limits, Parsed, Parser, Proto};

pub mod clients;
mod command;
mod rights;

/// The state of one Redis connection beside its socket.
pub struct RedisPeer {
    pub link: LinkId,
    pub parser: Parser,
    /// Created by the first subscription.
    pub listener: Option<ListenerId>,
    pub proto: Proto,
    /// None until `AUTH` in serve mode.
    pub identity: Option<Identity>,
    /// The sender of what it publishes; None without a user token.
    pub author: Option<Box<Author>>,
    /// When it authenticated.
    pub entered_at: Time,
    pub info: Arc<ClientInfo>,
    pub state: command::PeerState,
    /// The command that waits, parsed; its bytes are the first of the input.
    stalled: Option<Box<StalledCommand>>,
    /// The result of an API key lookup for `AUTH`.
    pub login: Option<Box<Result<Identity, AuthError>>>,
    /// A `TAVERN.WAIT` that waits, and until when.
    pub waiting_until: Option<Time>,
}

/// A command that could not run yet.
struct StalledCommand {
    bytes: usize,
    /// Where its arguments are in the input.
    ranges: Vec<Range<usize>>,
    /// The arguments of a command without ranges, from a plain line.
    inline: Option<Vec<Vec<u8>>>,
}

impl StalledCommand {
    /// Memory besides the input.
    fn held_bytes(&self) -> usize {
        let inline: usize =
            self.inline.iter().flatten().map(|arg| size_of::<Vec<u8>>() + arg.capacity()).sum();
        self.ranges.capacity() * size_of::<Range<usize>>() + inline
    }
}

/// What the shard does next with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisNext {
    Go,
    /// The command could not run yet: it runs again when the connection is woken, before the input behind it.
    Stall,
    /// The client has to read its replies before more commands run.
    Full,
    /// Write the pending replies, then close.
    Close,
}

/// State that all Redis connections of this node share.
pub struct RespServer {
    pub config: Arc<Config>,
    pub authenticator: Arc<Authenticator>,
    pub clients: Clients,
    pub connections: Arc<Connections>,
    pub shards: Arc<dyn OtherShards>,
    pub runtime: tokio::runtime::Handle,
    pub started: Instant,
}

/// How a command reaches a connection that may be on another shard. The client's number guards against a reused link.
pub trait OtherShards: Send + Sync {
    /// An `AUTH` with an API key was looked up.
    fn log_in(&self, shard: usize, link: LinkId, client: u64, outcome: Result<Identity, AuthError>);
    fn kill(&self, shard: usize, link: LinkId, client: u64);
}

/// The parts of the shard that a command uses.
pub struct RedisContext<'a> {
    pub now: Time,
    pub hub: &'a mut Shard,
    pub scratch: &'a mut Scratch,
    pub server: &'a Arc<RespServer>,
    /// The reused list of argument ranges.
    pub ranges: &'a mut Vec<Range<usize>>,
    /// Unread replies above which no more commands run.
    pub unread_bytes: usize,
}

impl RedisPeer {
    pub fn new(link: LinkId, identity: Option<Identity>, info: Arc<ClientInfo>) -> RedisPeer {
        RedisPeer {
            link,
            parser: Parser::default(),
            listener: None,
            proto: Proto::Resp2,
            identity,
            author: None,
            entered_at: Time(0),
            info,
            state: command::PeerState::default(),
            stalled: None,
            login: None,
            waiting_until: None,
        }
    }

    /// Memory of unfinished commands: the ranges of one that waits, the commands of a transaction.
    pub fn held_bytes(&self) -> usize {
        let stalled = self.stalled.as_ref().map_or(0, |command| command.held_bytes());
        self.state.held_bytes() + stalled
    }

    pub fn format(&self) -> EventFormat {
        match self.proto {
            Proto::Resp2 => EventFormat::Resp2,
            Proto::Resp3 => EventFormat::Resp3,
        }
    }
}

/// Runs all complete commands; returns how many bytes they used. A command that must wait is not consumed.
pub fn consume(
    out: &mut Vec<u8>,
    peer: &mut RedisPeer,
    context: &mut RedisContext<'_>,
    input: &[u8],
) -> (usize, RedisNext) {
    let mut at = 0;
    let mut ranges = std::mem::take(context.ranges);
    let next = loop {
        if out.len() > context.unread_bytes {
            break RedisNext::Full;
        }
        let input = &input[at..];
        let next = if let Some(command) = peer.stalled.take() {
            let next = command::run(out, peer, context, &args_of(input, &command.ranges, &command.inline));
            match next {
                RedisNext::Stall => peer.stalled = Some(command),
                _ => at += command.bytes,
            }
            next
        } else {
            let limits = limits(peer, context);
            let (bytes, inline) = match peer.parser.parse(input, &limits, &mut ranges) {
                Ok(Parsed::Need) => break RedisNext::Go,
                Ok(Parsed::Command { consumed }) => (consumed, None),
                Ok(Parsed::Inline { consumed, args }) => (consumed, Some(args)),
                Err(error) => {
                    tavern_wire::resp::error(out, &error.to_string());
                    at += input.len();
                    break RedisNext::Close;
                }
            };
            let next = command::run(out, peer, context, &args_of(input, &ranges, &inline));
            match next {
                // The list is shared by all connections and may be large: only what there is is kept.
                RedisNext::Stall => {
                    peer.stalled = Some(Box::new(StalledCommand { bytes, ranges: ranges.clone(), inline }));
                }
                _ => at += bytes,
            }
            next
        };
        if next != RedisNext::Go {
            break next;
        }
    };
    *context.ranges = ranges;
    if next == RedisNext::Close {
        leave(peer, context);
    }
    (at, next)
}

fn args_of<'a>(input: &'a [u8], ranges: &'a [Range<usize>], inline: &'a Option<Vec<Vec<u8>>>) -> Args<'a> {
    match inline {
        Some(args) => Args::Owned(args),
        None => Args::Ranges { input, ranges },
    }
}

/// Writes the replies that have arrived from the store.
pub fn append_replies(out: &mut Vec<u8>, peer: &mut RedisPeer, hub: &mut Shard) {
    while peer.state.unstored > 0 && next_redis_reply(hub, peer.link, out) {
        peer.state.unstored -= 1;
    }
}

/// A closed client is not counted any more, even while its socket lingers.
fn leave(peer: &mut RedisPeer, context: &mut RedisContext<'_>) {
    if let Some(id) = peer.listener.take() {
        context.hub.end(id);
    }
    context.server.clients.leave(peer.info.id);
}

/// A message of up to twice the limit is read and refused, and the connection stays open; a larger one closes it.
const ARG_BYTES_LEAST: usize = 64 * 1024;
/// A whole command before login: an `AUTH` with the longest token and a name fits.
const UNAUTHENTICATED_BYTES: usize = 64 * 1024;

fn limits(peer: &RedisPeer, context: &RedisContext<'_>) -> Limits {
    let max = &context.server.config.limits;
    let arg = max.message_bytes.max(ARG_BYTES_LEAST).saturating_mul(2);
    Limits {
        arg_bytes: arg,
        args: 1024 * 1024,
        total_bytes: match peer.identity {
            Some(_) => max.partial_total_bytes.min(arg.max(1 << 20).saturating_mul(4)),
            None => UNAUTHENTICATED_BYTES,
        },
        inline_bytes: 64 * 1024,
        unauthenticated: peer.identity.is_none(),
    }
}

/// The arguments of a command, borrowed or owned.
pub enum Args<'a> {
    Ranges { input: &'a [u8], ranges: &'a [Range<usize>] },
    Owned(&'a [Vec<u8>]),
}

impl<'a> Args<'a> {
    pub fn len(&self) -> usize {
        match self {
            Args::Ranges { ranges, .. } => ranges.len(),
            Args::Owned(args) => args.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The argument at an index that exists.
    pub fn at(&self, index: usize) -> &'a [u8] {
        match self {
            Args::Ranges { input, ranges } => &input[ranges[index].clone()],
            Args::Owned(args) => &args[index],
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(|index| self.at(index))
    }
}

/// Writes the queued messages before a reply.
pub fn append_messages(out: &mut Vec<u8>, peer: &RedisPeer, hub: &mut Shard, scratch: &mut Scratch) {
    let Some(id) = peer.listener else { return };
    let Some(listener) = hub.core.listener(id) else { return };
    if !listener.mailbox.has_unread() || !listener.wants_writing() || peer.waiting_until.is_some() {
        return;
    }
    scratch.clear();
    scratch.fill(&mut hub.core, id, peer.link, usize::MAX);
    let all = scratch.bytes.len();
    scratch.settle(&mut hub.core, id, all);
    out.extend_from_slice(&scratch.bytes);
}
