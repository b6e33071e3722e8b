//! The commands of the JSON protocol, each routed to its feature. A refusal is a reply, not an error.
//! The same code serves WebSocket, SSE, long-poll and single HTTP commands; it knows only the caller's link.

use super::channel_command::{op_history, op_publish, op_subscribe};
use super::{Shard, traffic};
use crate::connection::CloseReason;
use crate::core::command::{
    Caller, CommandEnd, CommandResult, CommandWait, Flow, WaitingCommand, refuse, reply, take_command,
};
use crate::core::listener::ListenerId;
use crate::core::{Core, Notice, PIPELINE_MAX, detached, has_read};
use crate::event::Namespace;
use crate::inbox::Inbox;
use tavern_domain::Time;
use tavern_domain::presence::OfflineReason;
use tavern_wire::error::Code;
use tavern_wire::json::{self, BadRequest, Op, ParsedCommand, SubscribeRequest, SubscribeTarget};

impl Shard {
    /// Runs one command. The reply is appended to `out`.
    pub fn command(&mut self, now: Time, caller: &mut Caller, frame: &[u8], out: &mut Vec<u8>) -> Flow {
        self.parsed_command(now, caller, json::parse_request(frame), out)
    }

    /// Runs one command that is already parsed, or replies why it could not be parsed.
    pub fn parsed_command(
        &mut self,
        now: Time,
        caller: &mut Caller,
        parsed: Result<ParsedCommand<'_>, BadRequest<'_>>,
        out: &mut Vec<u8>,
    ) -> Flow {
        self.core.now = now;
        let core = &mut self.core;
        let may_begin = match &parsed {
            Ok(command) => may_begin(core, caller, command),
            Err(_) => is_first(core, caller),
        };
        if !may_begin {
            let kept = parsed.map(ParsedCommand::into_owned).map_err(BadRequest::into_owned);
            caller.waiting = Some(Box::new(WaitingCommand::Unbegun(kept)));
            return Flow::Wait;
        }
        caller.waiting = None;
        if let (Some(_), Ok(command)) = (core.trace, &parsed) {
            core.traced_op = command.op.name();
        }
        core.stats.commands.add(1);
        match &parsed {
            Ok(command) => traffic::begins(core, caller, &command.op),
            Err(bad) => traffic::refused(core, caller, None, &bad.refusal),
        }
        core.refused_with = None;
        // A reply for another connection that had this number is dropped.
        core.replies.forget(caller.link.id);
        self.migration.forget_link(caller.link.id);
        self.history.answer_written(core, caller.link.id);
        let flow = match parsed {
            Ok(command) => match take_command(core, caller) {
                Ok(()) => self.run_command(caller, command, out),
                Err(end) => ended(core, caller, command, end, out),
            },
            Err(bad) => reply(core, caller, bad.id.as_deref(), Err(bad.refusal), out),
        };
        self.route();
        flow
    }

    /// Continues the command that a caller waits for; `Flow::Wait` if it must wait longer.
    pub fn resume(&mut self, now: Time, caller: &mut Caller, out: &mut Vec<u8>) -> Flow {
        self.core.now = now;
        let flow = self.resume_command(caller, out);
        self.route();
        flow
    }

    fn resume_command(&mut self, caller: &mut Caller, out: &mut Vec<u8>) -> Flow {
        let link = caller.link.id;
        let Some(waiting) = caller.waiting.take() else { return Flow::Done };
        let command = match *waiting {
            WaitingCommand::Unbegun(parsed) => {
                return self.parsed_command(self.core.now, caller, parsed, out);
            }
            WaitingCommand::Submitted(id) => {
                let Some(answer) = self.core.replies.take(link) else {
                    caller.waiting = Some(Box::new(WaitingCommand::Submitted(id)));
                    return Flow::Wait;
                };
                self.core.refused_with = None;
                if let Err(refusal) = &answer {
                    traffic::refused(&self.core, caller, None, refusal);
                }
                return reply(&mut self.core, caller, id.as_deref(), answer, out);
            }
            WaitingCommand::Hello(id, hello) => {
                let Some(answer) = self.finish_hello(caller, &hello) else {
                    caller.waiting = Some(Box::new(WaitingCommand::Hello(id, hello)));
                    return Flow::Wait;
                };
                self.core.refused_with = None;
                let greeted = answer.is_ok();
                match &answer {
                    Ok(_) => traffic::greeted(&self.core, caller),
                    Err(refusal) => traffic::refused(&self.core, caller, None, refusal),
                }
                return match reply(&mut self.core, caller, id.as_deref(), answer, out) {
                    Flow::Done if greeted => Flow::Greeted,
                    flow => flow,
                };
            }
            WaitingCommand::Paused(command) => command,
        };
        self.core.refused_with = None;
        if let Some(answer) = self.core.replies.take(link) {
            if let Err(refusal) = &answer {
                traffic::refused(&self.core, caller, Some(&command.op), refusal);
            }
            return reply(&mut self.core, caller, command.id.as_deref(), answer, out);
        }
        if !may_begin(&self.core, caller, &command) {
            caller.waiting = Some(Box::new(WaitingCommand::Paused(command)));
            return Flow::Wait;
        }
        self.run_command(caller, command, out)
    }

    fn run_command(&mut self, caller: &mut Caller, command: ParsedCommand<'_>, out: &mut Vec<u8>) -> Flow {
        let end = self.perform(caller, &command.op).unwrap_or_else(|end| end);
        ended(&mut self.core, caller, command, end, out)
    }

    /// The next reply of a connection that pipelines, appended to `out`. None: it has not arrived yet.
    pub fn next_reply(&mut self, caller: &mut Caller, out: &mut Vec<u8>) -> Option<Flow> {
        let (id, answer) = self.core.replies.next(caller.link.id)?;
        Some(reply(&mut self.core, caller, id.as_deref(), answer, out))
    }

    fn perform(&mut self, caller: &mut Caller, op: &Op<'_>) -> CommandResult<CommandEnd> {
        match op {
            Op::Hello(hello) => self.hello(caller, hello),
            Op::Ping => Ok(CommandEnd::done()),
            op => {
                let id = session_of(&self.core, caller)?;
                match op {
                    Op::Subscribe(subscribe) => op_subscribe(self, caller, id, subscribe),
                    Op::Unsubscribe(target) => {
                        op_unsubscribe(&mut self.core, id, target);
                        Ok(CommandEnd::done())
                    }
                    Op::Publish(publish) => op_publish(self, caller, id, publish),
                    Op::History(request) => op_history(self, caller, id, request),
                    Op::Join(join) => self.presence.op_join(&mut self.core, caller, id, join),
                    Op::Update(update) => self.presence.op_update(&mut self.core, caller, id, update),
                    Op::Leave { channel } => self.presence.op_leave(&mut self.core, caller, id, channel),
                    Op::Who(who) => self.presence.op_who(&mut self.core, caller, id, who),
                    Op::Follow { user } => {
                        self.people.commands().op_follow(&mut self.core, caller, id, user, true)
                    }
                    Op::Unfollow { user } => {
                        self.people.commands().op_follow(&mut self.core, caller, id, user, false)
                    }
                    Op::Following(part) => {
                        self.people.commands().op_list(&mut self.core, caller, id, part, false)
                    }
                    Op::Followers(part) => {
                        self.people.commands().op_list(&mut self.core, caller, id, part, true)
                    }
                    Op::Status { users } => {
                        self.people.commands().op_status(&mut self.core, caller, id, users)
                    }
                    Op::Visibility { value } => {
                        self.people.commands().op_visibility(&mut self.core, caller, id, *value)
                    }
                    Op::Party(op) => self.party.op_party(&mut self.core, caller, id, op),
                    Op::Ack { seq } => op_ack(&mut self.core, &mut self.inbox, id, *seq),
                    Op::Bye => {
                        let own = self.core.listeners.get(id).and_then(|listener| listener.link);
                        let other = own.filter(|link| link.id != caller.link.id);
                        self.core.effects.closes.extend(other.map(|link| (link.id, CloseReason::Ended)));
                        if let Some(half) = self.core.session(id).map(|session| session.key.half()) {
                            self.core.ended.add(self.core.now, half);
                        }
                        self.presence.leave_all(&mut self.core, id, OfflineReason::Bye);
                        self.core.notify(Notice::SessionEnds { id });
                        caller.listener = None;
                        Ok(CommandEnd::done())
                    }
                    Op::Hello(_) | Op::Ping => unreachable!("handled above"),
                }
            }
        }
    }
}

/// A command has ended, for now.
fn ended(
    core: &mut Core,
    caller: &mut Caller,
    command: ParsedCommand<'_>,
    end: CommandEnd,
    out: &mut Vec<u8>,
) -> Flow {
    let link = caller.link.id;
    let id = command.id.as_deref();
    if let CommandEnd::Refuse(refusal) = &end {
        traffic::refused(core, caller, Some(&command.op), refusal);
    }
    let (waiting, flow) = match end {
        CommandEnd::Reply(body) => {
            if let Op::Hello(_) = &command.op {
                traffic::greeted(core, caller);
            }
            return match reply(core, caller, id, Ok(body), out) {
                Flow::Done => flow_after(&command.op),
                flow => flow,
            };
        }
        CommandEnd::Refuse(refusal) if is_first(core, caller) => {
            return reply(core, caller, id, Err(refusal), out);
        }
        CommandEnd::Refuse(refusal) => {
            core.replies.keep_in_turn(link, id, Err(refusal));
            return Flow::Begun;
        }
        CommandEnd::Wait(CommandWait::Pipelined(claim)) if caller.pipelines => {
            core.replies.pipeline(claim, id);
            return Flow::Begun;
        }
        CommandEnd::Wait(CommandWait::Pipelined(_) | CommandWait::Stored) => {
            (WaitingCommand::Submitted(id.map(Box::from)), Flow::Wait)
        }
        CommandEnd::Wait(CommandWait::Party(hello)) => {
            (WaitingCommand::Hello(id.map(Box::from), hello), Flow::Wait)
        }
        CommandEnd::Wait(CommandWait::Again) => (WaitingCommand::Paused(command.into_owned()), Flow::Wait),
        CommandEnd::Move(shard) => (WaitingCommand::Paused(command.into_owned()), Flow::Move(shard)),
    };
    caller.waiting = Some(Box::new(waiting));
    flow
}

/// What the caller does once it has the reply to a command.
fn flow_after(op: &Op<'_>) -> Flow {
    match op {
        Op::Bye => Flow::Close(CloseReason::Bye),
        Op::Hello(_) => Flow::Greeted,
        // Recovered messages follow the reply.
        Op::Subscribe(SubscribeRequest { since: Some(_), .. } | SubscribeRequest { last: Some(_), .. }) => {
            Flow::Greeted
        }
        _ => Flow::Done,
    }
}

fn op_ack(core: &mut Core, inbox: &mut Inbox, id: ListenerId, seq: u64) -> CommandResult<CommandEnd> {
    detached::collect(core, id);
    let Some(listener) = core.listeners.get_mut(id) else { return Ok(CommandEnd::done()) };
    if seq > listener.mailbox.sent() {
        let sent = listener.mailbox.sent();
        return refuse(Code::BadRequest, format!("ack of {seq}, but only {sent} events were sent"));
    }
    listener.mailbox.acknowledge(seq);
    has_read(core, id);
    inbox.acknowledge(core, id, seq);
    Ok(CommandEnd::done())
}

/// Whether every command that a caller has pipelined is answered.
fn is_first(core: &Core, caller: &Caller) -> bool {
    core.replies.pipelined(caller.link.id) == 0
}

/// Whether a command may start. While earlier ones of its connection are in flight, only presence changes may.
fn may_begin(core: &Core, caller: &Caller, command: &ParsedCommand<'_>) -> bool {
    let begun = core.replies.pipelined(caller.link.id);
    if begun == 0 {
        return true;
    }
    if let Op::Publish(publish) = &command.op {
        // It is stored before it is answered; any other publish is answered at once.
        let is_stored = publish.retain || core.node.history_limits(publish.channel.as_bytes()).is_some();
        return begun < PIPELINE_MAX && is_stored;
    }
    let session = caller.listener.and_then(|id| core.session(id));
    let user = session.and_then(|session| session.identity.user.as_ref());
    if user.is_some_and(|user| core.users.visibility(user).is_none()) {
        // Its joins wait until the user's visibility is known.
        return false;
    }
    let changes = match &command.op {
        Op::Update(_) | Op::Leave { .. } => true,
        // Near the limit the exact number must be known.
        Op::Join(_) => session.is_some_and(|session| {
            session.present.joined() + begun < core.node.settings.channels_of(caller.link.format).1
        }),
        _ => false,
    };
    changes && begun < PIPELINE_MAX
}

fn session_of(core: &Core, caller: &Caller) -> CommandResult<ListenerId> {
    let Some(id) = caller.listener else {
        return refuse(Code::Unauthenticated, "send hello with a token first");
    };
    match core.listeners.get(id).and_then(|listener| listener.session()) {
        Some(session) if session.frozen => refuse(Code::Gone, "the session has moved; send hello again"),
        Some(session) if core.now < session.identity.expires => Ok(id),
        Some(_) => refuse(Code::Unauthenticated, "the token has expired; send hello with a fresh one"),
        None => refuse(Code::Gone, "the session has ended; send hello again"),
    }
}

fn op_unsubscribe(core: &mut Core, id: ListenerId, target: &SubscribeTarget<'_>) {
    match target {
        SubscribeTarget::Channel(name) => {
            core.unsubscribe(id, Namespace::Presence, name.as_bytes());
            core.unsubscribe(id, Namespace::Channel, name.as_bytes())
        }
        SubscribeTarget::Pattern(pattern) => core.unsubscribe(id, Namespace::Pattern, pattern.as_bytes()),
    };
}
