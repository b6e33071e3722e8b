//! Tells operators who watch this node which commands begin and what is refused. Pings and acknowledgements are left out; the
//! message of a publish is told where it is published. Tokens, session secrets and states are never told.

use crate::core::Core;
use crate::core::command::Caller;
use crate::event::Author;
use crate::node::traffic::{Traffic, TrafficKind};
use tavern_wire::error::Refusal;
use tavern_wire::json::{Op, SubscribeTarget};

/// A command begins. A hello is told when it is known whose it is.
pub(super) fn begins(core: &Core, caller: &Caller, op: &Op<'_>) {
    let later = matches!(op, Op::Hello(_) | Op::Ping | Op::Ack { .. } | Op::Publish(_));
    if core.node.traffic.is_watched() && !later {
        tell(core, caller, TrafficKind::Command { op: op.name(), target: target_of(op) });
    }
}

/// A hello was accepted.
pub(super) fn greeted(core: &Core, caller: &Caller) {
    if core.node.traffic.is_watched() {
        tell(core, caller, TrafficKind::Command { op: "hello", target: None });
    }
}

/// A command is refused. `op`: None if it is not known any more, or could not be read.
pub(super) fn refused(core: &Core, caller: &Caller, op: Option<&Op<'_>>, refusal: &Refusal) {
    if core.node.traffic.is_watched() {
        let (name, target) = (op.map(Op::name), op.and_then(target_of));
        tell(core, caller, TrafficKind::Refused { op: name, target, refusal });
    }
}

#[cold]
fn tell(core: &Core, caller: &Caller, what: TrafficKind<'_>) {
    let session = caller.listener.and_then(|id| core.session(id));
    let author =
        session.map(|session| Author { user: session.identity.user.clone(), client: session.client });
    core.node.traffic.tell(Traffic { author: author.as_ref(), what });
}

/// What a command is about: a channel, a pattern or a user.
fn target_of<'a>(op: &'a Op<'_>) -> Option<&'a str> {
    match op {
        Op::Subscribe(subscribe) => Some(name_of(&subscribe.target)),
        Op::Unsubscribe(target) => Some(name_of(target)),
        Op::Publish(publish) => Some(&publish.channel),
        Op::Join(join) => Some(&join.channel),
        Op::Update(update) => Some(&update.channel),
        Op::Leave { channel } => Some(channel),
        Op::Who(who) => Some(&who.channel),
        Op::History(history) => Some(&history.channel),
        Op::Follow { user } | Op::Unfollow { user } => Some(user),
        Op::Hello(_)
        | Op::Following(_)
        | Op::Followers(_)
        | Op::Status { .. }
        | Op::Visibility { .. }
        | Op::Party(_)
        | Op::Ack { .. }
        | Op::Bye
        | Op::Ping => None,
    }
}

fn name_of<'a>(target: &'a SubscribeTarget<'_>) -> &'a str {
    match target {
        SubscribeTarget::Channel(name) | SubscribeTarget::Pattern(name) => name,
    }
}
