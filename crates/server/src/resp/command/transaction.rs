//! MULTI, EXEC, DISCARD: commands that are queued and run together. No other command of this connection's shard runs
//! between them. Must hold: a transaction with a rejected command does not run; messages that it sends to its own
//! connection follow the whole reply.

use super::{RedisCall, perform, table};
use crate::resp::rights::{self, Halt};
use crate::resp::{Args, RedisNext, RedisPeer};
use tavern_wire::resp as reply;

#[derive(Debug, Default)]
pub struct Transaction {
    queued: Vec<Vec<Vec<u8>>>,
    /// A command was rejected: `EXEC` will refuse.
    pub failed: bool,
    bytes: usize,
}

impl Transaction {
    /// Memory of the queued commands.
    pub fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// The largest transaction, with the memory of its arguments. Enough for some thousand small publishes.
const TRANSACTION_BYTES: usize = 4 << 20;
/// The memory of a queued argument beside its bytes.
const ARGUMENT_BYTES: usize = 32;

pub fn multi(call: &mut RedisCall<'_, '_>) -> RedisNext {
    if call.peer.state.transaction.is_some() {
        return call.error("ERR MULTI calls can not be nested");
    }
    call.peer.state.transaction = Some(Box::default());
    call.peer.info.set_multi(0);
    call.ok()
}

/// Keeps a command for `EXEC`.
pub fn enqueue(peer: &mut RedisPeer, args: &Args<'_>) -> Result<(), &'static str> {
    let Some(transaction) = &mut peer.state.transaction else { return Ok(()) };
    let bytes: usize = args.iter().map(|arg| arg.len() + ARGUMENT_BYTES).sum();
    if transaction.bytes + bytes > TRANSACTION_BYTES {
        return Err("ERR the transaction is too large; at most 4 MiB");
    }
    transaction.bytes += bytes;
    transaction.queued.push(args.iter().map(<[u8]>::to_vec).collect());
    peer.info.set_multi(transaction.queued.len() as i32);
    Ok(())
}

pub fn discard(peer: &mut RedisPeer) -> Option<Box<Transaction>> {
    peer.info.set_multi(-1);
    peer.state.transaction.take()
}

pub fn discard_command(call: &mut RedisCall<'_, '_>) -> RedisNext {
    match discard(call.peer) {
        Some(_) => call.ok(),
        None => call.error("ERR DISCARD without MULTI"),
    }
}

pub fn exec(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let Some(transaction) = discard(call.peer) else {
        return call.error("ERR EXEC without MULTI");
    };
    if transaction.failed {
        return call.error("EXECABORT Transaction discarded because of previous errors.");
    }
    if must_ask(call, &transaction) {
        call.peer.info.set_multi(transaction.queued.len() as i32);
        call.peer.state.transaction = Some(transaction);
        return RedisNext::Stall;
    }
    if !call.peer.state.is_quiet() {
        reply::array(call.out, transaction.queued.len());
    }
    let mut next = RedisNext::Go;
    for command in &transaction.queued {
        if run_queued(call, command) == RedisNext::Close {
            next = RedisNext::Close;
        }
    }
    next
}

/// Rights that were checked when a command was queued may have expired: check all again before the first command
/// runs.
fn must_ask(call: &mut RedisCall<'_, '_>, transaction: &Transaction) -> bool {
    let mut asks = false;
    for command in &transaction.queued {
        let args = Args::Owned(command);
        if let Ok((spec, _)) = table::resolve(&args) {
            asks |= rights::check(call.peer, call.context, spec, &args) == Err(Halt::Stall);
        }
    }
    asks
}

fn run_queued(call: &mut RedisCall<'_, '_>, command: &[Vec<u8>]) -> RedisNext {
    let args = Args::Owned(command);
    let Ok((spec, _)) = table::resolve(&args) else { return RedisNext::Go };
    let (out, peer, context) = (&mut *call.out, &mut *call.peer, &mut *call.context);
    let next = perform(&mut RedisCall { out, peer, context, args: &args, spec, in_exec: true });
    if next == RedisNext::Stall {
        // Only after an AUTH in the same transaction, whose new rights could not be checked in advance.
        if !call.peer.state.is_quiet() {
            reply::error(call.out, "ERR the authorize hook has not answered yet; retry outside of MULTI");
        }
        return RedisNext::Go;
    }
    next
}
