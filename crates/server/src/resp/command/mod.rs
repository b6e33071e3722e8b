//! The commands of the Redis protocol: one file per family, every command a function of the same shape. This file
//! decides, in the order Redis does, whether a command runs, is queued or is rejected.
//! Must hold: a reply follows the messages before it; a command that stalls has changed nothing.

mod catalog;
mod client;
mod config;
mod connection;
mod kill;
mod pubsub;
mod server;
mod spec;
mod table;
mod tavern;
mod text;
mod transaction;

use crate::resp::rights::{self, Halt};
use crate::resp::{Args, RedisContext, RedisNext, RedisPeer, append_messages};
use std::borrow::Cow;
use tavern_domain::rate::Bucket;
use tavern_wire::resp::{self as reply, Proto};

pub use spec::{CommandSpec, TavernFlags};
#[cfg(test)]
pub use table::code_of;
pub use table::name_of;

/// State of a connection between commands. Allocates nothing until a transaction starts.
#[derive(Debug, Default)]
pub struct PeerState {
    transaction: Option<Box<transaction::Transaction>>,
    replies: ReplyMode,
    /// After `TAVERN.MODE poll`: nothing is pushed.
    pub polls: bool,
    /// The command ran before and stalled: it is already counted, and the authorize hook is already called.
    pub stalled: bool,
    /// An API key is being looked up.
    pub asked_login: bool,
    /// Messages to channels with history that are not stored yet: only more of them may follow before their replies.
    pub unstored: u32,
    pub bucket: Bucket,
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ReplyMode {
    off: bool,
    /// This command is not answered.
    skip: bool,
    /// The next one is not.
    skip_next: bool,
}

impl PeerState {
    fn is_quiet(&self) -> bool {
        self.replies.off || self.replies.skip
    }

    /// Memory of the queued commands.
    pub fn held_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.held_bytes())
    }

    /// No transaction and no `CLIENT REPLY` mode.
    fn is_plain(&self) -> bool {
        self.transaction.is_none() && self.replies == ReplyMode::default()
    }
}

/// One command being run: its client, its arguments, and where its reply goes.
struct RedisCall<'a, 'd> {
    out: &'a mut Vec<u8>,
    peer: &'a mut RedisPeer,
    context: &'a mut RedisContext<'d>,
    args: &'a Args<'a>,
    spec: &'static CommandSpec,
    /// Inside `EXEC`: it cannot wait, and it was counted when it was queued.
    in_exec: bool,
}

type CommandFn = fn(&mut RedisCall<'_, '_>) -> RedisNext;

/// Runs one command.
pub fn run(
    out: &mut Vec<u8>,
    peer: &mut RedisPeer,
    context: &mut RedisContext<'_>,
    args: &Args<'_>,
) -> RedisNext {
    // Most commands are publishes: check for them first.
    if args.len() == 3
        && args.at(0).eq_ignore_ascii_case(b"publish")
        && peer.state.is_plain()
        && is_current(peer, context)
        && (peer.listener.is_none() || peer.proto == Proto::Resp3)
    {
        let spec = &table::PUBLISH;
        peer.info.touch(context.now, table::PUBLISH_CODE);
        append_messages(out, peer, context.hub, context.scratch);
        let next = pubsub::publish(&mut RedisCall { out, peer, context, args, spec, in_exec: false });
        peer.state.stalled = next == RedisNext::Stall;
        return next;
    }
    if args.is_empty() {
        return RedisNext::Go;
    }
    if text::is_http(args) {
        text::warn_of_http();
        out.extend_from_slice(text::HTTP_ANSWER);
        return RedisNext::Close;
    }
    if peer.state.unstored > 0 {
        return RedisNext::Stall;
    }
    append_messages(out, peer, context.hub, context.scratch);
    let (shard, _) = peer.info.place();
    context.hub.core.node().stats[shard].commands.add(1);
    let next = dispatch(out, peer, context, args);
    peer.state.stalled = next == RedisNext::Stall;
    if next != RedisNext::Stall {
        let replies = &mut peer.state.replies;
        replies.skip = std::mem::take(&mut replies.skip_next);
    }
    next
}

/// The client is logged in and its token has not expired.
fn is_current(peer: &RedisPeer, context: &RedisContext<'_>) -> bool {
    peer.identity.as_ref().is_some_and(|identity| context.now < identity.expires)
}

fn dispatch(
    out: &mut Vec<u8>,
    peer: &mut RedisPeer,
    context: &mut RedisContext<'_>,
    args: &Args<'_>,
) -> RedisNext {
    let mark = out.len();
    let (spec, code) = match table::resolve(args) {
        Ok(found) => found,
        Err((spec, error)) => {
            peer.info.touch(context.now, 0);
            let refused = spec.is_none() && is_confined(peer, context);
            match text::known_elsewhere(args.at(0)).filter(|_| refused) {
                Some(name) => reject(out, peer, spec, confined(name).as_bytes()),
                None => reject(out, peer, spec, &error),
            }
            return hush(out, peer, mark);
        }
    };
    peer.info.touch(context.now, code);
    if let Err(error) = admit(peer, context, spec) {
        reject(out, peer, Some(spec), error.as_bytes());
        let expired = peer.identity.is_some() && !is_current(peer, context);
        hush(out, peer, mark);
        return if expired { RedisNext::Close } else { RedisNext::Go };
    }
    if peer.state.transaction.is_some() && !spec.own.has(TavernFlags::NOT_QUEUED) {
        return queue(out, peer, context, spec, args);
    }
    perform(&mut RedisCall { out, peer, context, args, spec, in_exec: false })
}

/// Runs a command that may run. Its reply is dropped if the client wants none; pushes are kept.
fn perform(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let mark = call.out.len();
    let next = (call.spec.run)(call);
    let pushed = call.spec.own.has(TavernFlags::PUSHES) && call.out.get(mark) != Some(&b'-');
    if !pushed {
        hush(call.out, call.peer, mark);
    }
    next
}

fn queue(
    out: &mut Vec<u8>,
    peer: &mut RedisPeer,
    context: &mut RedisContext<'_>,
    spec: &'static CommandSpec,
    args: &Args<'_>,
) -> RedisNext {
    let mark = out.len();
    let foreseen = rights::pay(peer, context, spec).and_then(|()| rights::check(peer, context, spec, args));
    match foreseen {
        Ok(()) => match transaction::enqueue(peer, args) {
            Ok(()) => reply::simple(out, "QUEUED"),
            Err(error) => reject(out, peer, Some(spec), error.as_bytes()),
        },
        Err(Halt::Stall) => return RedisNext::Stall,
        Err(Halt::Refuse(error)) => reject(out, peer, Some(spec), error.as_bytes()),
    }
    hush(out, peer, mark)
}

/// Whether this client may run this command at all, now.
fn admit(peer: &RedisPeer, context: &RedisContext<'_>, spec: &CommandSpec) -> Result<(), Cow<'static, str>> {
    if !spec.flags.has(spec::Flags::NO_AUTH) {
        if !is_current(peer, context) {
            return Err("NOAUTH Authentication required.".into());
        }
        if spec.own.has(TavernFlags::NEEDS_ADMIN) && !rights::is_admin(peer, context) {
            let user = peer.info.user();
            return Err(
                format!("NOPERM User {user} has no permissions to run the '{}' command", spec.name).into()
            );
        }
    }
    if !spec.own.has(TavernFlags::WHILE_SUBSCRIBED) && is_confined(peer, context) {
        return Err(confined(spec.name).into());
    }
    Ok(())
}

/// In RESP2 a subscribed client cannot distinguish replies from messages, so it may not run every command.
fn is_confined(peer: &RedisPeer, context: &RedisContext<'_>) -> bool {
    peer.proto == Proto::Resp2 && !peer.state.polls && pubsub::is_subscribed(peer, context.hub)
}

fn confined(name: &str) -> String {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this \
         context"
    )
}

/// Refuses a command before it ran. If it was part of a transaction, that transaction cannot run any more.
fn reject(out: &mut Vec<u8>, peer: &mut RedisPeer, spec: Option<&CommandSpec>, error: &[u8]) {
    if spec.is_some_and(|spec| spec.name == "exec") {
        let reason = error.strip_prefix(b"ERR ").unwrap_or(error);
        text::error(out, &[b"EXECABORT Transaction discarded because of: ", reason].concat());
        transaction::discard(peer);
        return;
    }
    if let Some(transaction) = &mut peer.state.transaction {
        transaction.failed = true;
    }
    text::error(out, error);
}

fn hush(out: &mut Vec<u8>, peer: &RedisPeer, mark: usize) -> RedisNext {
    if peer.state.is_quiet() {
        out.truncate(mark);
    }
    RedisNext::Go
}

impl<'a> RedisCall<'a, '_> {
    fn ok(&mut self) -> RedisNext {
        reply::simple(self.out, "OK");
        RedisNext::Go
    }

    fn error(&mut self, text: &str) -> RedisNext {
        reply::error(self.out, text);
        RedisNext::Go
    }

    fn halt(&mut self, halt: Halt) -> RedisNext {
        match halt {
            Halt::Stall => RedisNext::Stall,
            Halt::Refuse(text) => self.error(&text),
        }
    }

    /// The arguments after the command, or after its subcommand.
    fn rest(&self, from: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let args = self.args;
        (from..args.len()).map(move |index| args.at(index))
    }

    fn is(&self, index: usize, word: &str) -> bool {
        index < self.args.len() && self.args.at(index).eq_ignore_ascii_case(word.as_bytes())
    }

    fn proto(&self) -> Proto {
        self.peer.proto
    }
}

#[cfg(test)]
mod tests;
