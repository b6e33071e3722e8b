//! The commands of the JSON protocol: one function each, all the same shape. A refusal is a reply, not an error.
//! The same code serves WebSocket, SSE, long-poll and single HTTP commands; it knows only the caller's link.

mod hello;
mod reply;

use crate::authorize::{self, Permit};
use crate::carrier::Carried;
use crate::event::{Author, Space};
use crate::goodbye::Goodbye;
use crate::listener::{Link, ListenerId};
use crate::presence::Claim;
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::Departure;
use tavern_domain::{Channel, Identity, Time, Verb, limits};
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::{self, Op, Publish, Subscribe, Target};

/// Who sends a command, and over what.
#[derive(Clone, Debug)]
pub struct Caller {
    pub link: Link,
    /// A single HTTP request: its link ends with the answer and is never attached to a session.
    pub passing: bool,
    pub listener: Option<ListenerId>,
    /// From the URL or a header, before any hello.
    pub identity: Option<Identity>,
    /// Refused commands before any hello.
    strikes: u16,
    /// Its command waits: the next one is the same again.
    waited: bool,
    /// The session it names was looked for already.
    pub sought: bool,
    /// It takes replies later, by `Shard::next_reply`, and may say more meanwhile.
    ahead: bool,
}

impl Caller {
    pub fn new(link: Link, identity: Option<Identity>) -> Caller {
        Caller {
            link,
            passing: false,
            listener: None,
            identity,
            strikes: 0,
            waited: false,
            sought: false,
            ahead: false,
        }
    }

    /// Changes of presence may begin before earlier ones are answered.
    pub fn running_ahead(self) -> Caller {
        Caller { ahead: true, ..self }
    }

    /// One HTTP request on behalf of a session, or of nobody yet.
    pub fn passing(link: Link, listener: Option<ListenerId>, identity: Option<Identity>) -> Caller {
        Caller { passing: true, listener, ..Caller::new(link, identity) }
    }
}

/// What happens to the caller next. The reply, if there is one, is in the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    Done,
    /// Hello: the reply stands before all events of the session.
    Greeted,
    /// The app or the bus was asked; the same frame must be given again when the link is named in `Effects::ready`.
    Wait,
    /// The reply comes by `Shard::next_reply` when the link is named in `Effects::ready`; only for who runs ahead.
    Begun,
    /// Write the reply, then close.
    Close(Goodbye),
    /// The session lives on another shard: the transport must go there and say the same again.
    Move(usize),
}

pub(crate) enum Stop {
    Refused(Refusal),
    Wait,
    /// A change of presence is under way.
    Begun(Claim),
    Move(usize),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Stop {
        Stop::Refused(refusal)
    }
}

pub(crate) type Step<T> = Result<T, Stop>;

pub(crate) fn refuse<T>(code: Code, message: impl Into<std::borrow::Cow<'static, str>>) -> Step<T> {
    Err(Stop::Refused(Refusal::new(code, message)))
}

impl Shard {
    /// Runs one command. The reply is appended to `out`.
    pub fn command(&mut self, now: Time, caller: &mut Caller, frame: &[u8], out: &mut Vec<u8>) -> Flow {
        let behind = self.has_begun(caller.link.id);
        let parsed = json::parse_request(frame);
        if behind && !parsed.as_ref().is_ok_and(|request| self.may_run_ahead(caller, &request.op)) {
            return Flow::Wait;
        }
        self.stats.commands.add(1);
        self.refused_with = None;
        let request = match parsed {
            Ok(request) => request,
            Err(bad) => return self.reply(caller, bad.id, Err(bad.refusal), out),
        };
        let id = request.id;
        let again = std::mem::take(&mut caller.waited);
        if !again {
            // An answer that another transport of this number waited for is nobody's.
            self.presences.forget_link(caller.link.id);
            self.moves.forget_link(caller.link.id);
        }
        let after = match request.op {
            Op::Bye => Flow::Close(Goodbye::Bye),
            Op::Hello(_) => Flow::Greeted,
            _ => Flow::Done,
        };
        let mut body = Vec::new();
        let allowed = if again { Ok(()) } else { self.take_command(now, caller) };
        match allowed.and_then(|()| self.perform(now, caller, request.op, &mut body)) {
            Ok(()) => match self.reply(caller, id, Ok(body), out) {
                Flow::Done => after,
                flow => flow,
            },
            Err(Stop::Refused(refusal)) if behind => {
                self.reply_in_turn(caller.link.id, id, Err(refusal));
                Flow::Begun
            }
            Err(Stop::Refused(refusal)) => self.reply(caller, id, Err(refusal), out),
            Err(Stop::Begun(claim)) if caller.ahead => {
                self.run_ahead(claim, id);
                Flow::Begun
            }
            Err(Stop::Wait | Stop::Begun(_)) => {
                caller.waited = true;
                Flow::Wait
            }
            Err(Stop::Move(shard)) => Flow::Move(shard),
        }
    }

    fn perform(&mut self, now: Time, caller: &mut Caller, op: Op<'_>, body: &mut Vec<u8>) -> Step<()> {
        match op {
            Op::Hello(hello) => self.hello(now, caller, &hello, body),
            Op::Ping => Ok(()),
            op => {
                let id = self.session_of(now, caller)?;
                match op {
                    Op::Subscribe(subscribe) => self.op_subscribe(now, caller, id, &subscribe, body),
                    Op::Unsubscribe(target) => self.op_unsubscribe(id, &target),
                    Op::Publish(publish) => self.op_publish(now, caller, id, &publish, body),
                    Op::Join(join) => self.op_join(now, caller, id, &join, body),
                    Op::Update(update) => self.op_update(now, caller, id, &update, body),
                    Op::Leave { channel } => self.op_leave(now, caller, id, &channel, body),
                    Op::Who(who) => self.op_who(now, caller, id, &who, body),
                    Op::Follow { user } => self.op_follow(now, caller, id, &user, true, body),
                    Op::Unfollow { user } => self.op_follow(now, caller, id, &user, false, body),
                    Op::Following(part) => self.op_list(caller, id, &part, false, body),
                    Op::Followers(part) => self.op_list(caller, id, &part, true, body),
                    Op::Status { users } => self.op_status(caller, id, &users, body),
                    Op::Visibility { value } => self.op_visibility(caller, id, value, body),
                    Op::Party(wish) => self.op_party(now, caller, id, wish, body),
                    Op::Ack { seq } => self.op_ack(id, seq),
                    Op::Bye => {
                        let own = self.listeners.get(id).and_then(|listener| listener.link);
                        let other = own.filter(|link| link.id != caller.link.id);
                        self.effects.closes.extend(other.map(|link| (link.id, Goodbye::Ended)));
                        self.leave_all(now, id, Departure::Bye);
                        self.end(id);
                        caller.listener = None;
                        Ok(())
                    }
                    Op::Hello(_) | Op::Ping => unreachable!("handled above"),
                }
            }
        }
    }

    fn session_of(&mut self, now: Time, caller: &Caller) -> Step<ListenerId> {
        let Some(id) = caller.listener else {
            return refuse(Code::Unauthenticated, "say hello with a token first");
        };
        match self.listeners.get(id).and_then(|listener| listener.session()) {
            Some(session) if session.frozen => refuse(Code::Gone, "the session has moved; say hello again"),
            Some(session) if now < session.identity.expires => Ok(id),
            Some(_) => refuse(Code::Unauthenticated, "the token has expired; say hello with a fresh one"),
            None => refuse(Code::Gone, "the session has ended; say hello again"),
        }
    }

    fn op_subscribe(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        subscribe: &Subscribe<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        let (space, name): (Space, Arc<str>) = match &subscribe.target {
            Target::Channel(name) => {
                let channel = parse_channel(name)?;
                (Space::Channel, self.permitted(now, caller, id, Verb::Subscribe, &channel)?)
            }
            Target::Pattern(pattern) => {
                if pattern.is_empty() || pattern.len() > limits::CHANNEL_BYTES {
                    return refuse(Code::BadRequest, "a pattern has 1 to 255 bytes");
                }
                let session = self.listeners.get(id).and_then(|listener| listener.session());
                let settings = &self.node.settings;
                if !session
                    .is_some_and(|s| authorize::permit_pattern(settings, &s.identity, pattern.as_bytes()))
                {
                    return not_allowed(Verb::Subscribe, pattern);
                }
                (Space::Pattern, pattern.as_ref().into())
            }
        };
        let most = self.node.settings.channels_per_session;
        let held = self.listeners.get(id).map_or(0, |listener| listener.places.len());
        let there = self.roster.find(space, name.as_bytes()).is_some_and(|place| {
            self.listeners.get(id).is_some_and(|listener| listener.places.contains_key(&place))
        });
        if held >= most && !there {
            return refuse(
                Code::TooLarge,
                format!("a session listens to at most {most} channels and patterns"),
            );
        }
        if subscribe.presence {
            return self.op_watch(now, caller, id, subscribe, &name, body);
        }
        if !there {
            self.carried_subscribe(caller, id, space, &name)?;
        }
        write_instead(&subscribe.target, &name, body);
        Ok(())
    }

    /// Begins to listen once the bus carries the name here.
    pub(crate) fn carried_subscribe(
        &mut self,
        caller: &Caller,
        id: ListenerId,
        space: Space,
        name: &str,
    ) -> Step<()> {
        let node = self.node.clone();
        let mut hold = node.carrier.hold();
        match hold.carry(space, name.as_bytes(), Some((self.index, caller.link.id))) {
            Carried::Yes => self.subscribe(id, space, name.as_bytes()),
            Carried::Wait => {
                // Whoever waits may be gone before it is carried.
                self.linger(space, name.as_bytes().into());
                return Err(Stop::Wait);
            }
            Carried::Failed => return unavailable(),
        };
        Ok(())
    }

    fn op_unsubscribe(&mut self, id: ListenerId, target: &Target<'_>) -> Step<()> {
        match target {
            Target::Channel(name) => {
                self.unsubscribe(id, Space::Presence, name.as_bytes());
                self.unsubscribe(id, Space::Channel, name.as_bytes())
            }
            Target::Pattern(pattern) => self.unsubscribe(id, Space::Pattern, pattern.as_bytes()),
        };
        Ok(())
    }

    fn op_publish(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        publish: &Publish<'_>,
        body: &mut Vec<u8>,
    ) -> Step<()> {
        let most = self.node.settings.message_bytes;
        if publish.data.len() > most {
            return refuse(
                Code::TooLarge,
                format!("data has {} bytes, at most {most} are allowed", publish.data.len()),
            );
        }
        let channel = parse_channel(&publish.channel)?;
        let name = self.permitted(now, caller, id, Verb::Publish, &channel)?;
        let author = self
            .listeners
            .get(id)
            .and_then(|listener| listener.session())
            .map(|session| Author { user: session.identity.user.clone(), client: session.client });
        let receivers =
            self.publish(now, Space::Channel, name.as_bytes(), publish.data.as_bytes(), true, author);
        body.extend_from_slice(b"{\"receivers\":");
        body.extend_from_slice(itoa::Buffer::new().format(receivers).as_bytes());
        if *name != *publish.channel {
            body.extend_from_slice(b",\"channel\":");
            json::string(body, &name);
        }
        body.push(b'}');
        Ok(())
    }

    fn op_ack(&mut self, id: ListenerId, seq: u64) -> Step<()> {
        let Some(listener) = self.listeners.get_mut(id) else { return Ok(()) };
        if seq > listener.mailbox.sent() {
            let sent = listener.mailbox.sent();
            return refuse(Code::BadRequest, format!("ack of {seq}, but only {sent} events were sent"));
        }
        listener.mailbox.acknowledge(seq);
        self.acknowledge_letters(id, seq);
        Ok(())
    }

    /// The channel a session may use: the one it named, or the one the app put in its place.
    pub(crate) fn permitted(
        &mut self,
        now: Time,
        caller: &Caller,
        id: ListenerId,
        verb: Verb,
        channel: &Channel<'_>,
    ) -> Step<Arc<str>> {
        let name = std::str::from_utf8(channel.name).unwrap_or_default();
        let Some(session) = self.listeners.get(id).and_then(|listener| listener.session()) else {
            return refuse(Code::Gone, "the session has ended; say hello again");
        };
        match authorize::permit(now, &self.node.settings, &self.answers, &session.identity, verb, channel) {
            Permit::Yes => Ok(name.into()),
            Permit::No => not_allowed(verb, name),
            Permit::Instead(other) => match Channel::parse(&other) {
                Ok(channel) if !channel.is_reserved() => Ok(other),
                _ => refuse(Code::Internal, "the authorize hook named a channel that cannot be used"),
            },
            Permit::Ask(question) => {
                self.ask(question, caller.link.id);
                Err(Stop::Wait)
            }
        }
    }
}

pub(crate) fn parse_channel(name: &str) -> Step<Channel<'_>> {
    Channel::parse(name).or_else(|error| refuse(Code::BadRequest, error.to_string()))
}

pub(crate) fn unavailable<T>() -> Step<T> {
    let refusal = Refusal::new(Code::Unavailable, "the bus between nodes does not answer");
    Err(Stop::Refused(refusal.retry_after(RETRY_AFTER_MS)))
}

fn not_allowed<T>(verb: Verb, name: &str) -> Step<T> {
    refuse(Code::NotAllowed, format!("no right to {} {name:?}", verb.as_str()))
}

/// Says which channel is used when it is not the one that was asked for.
fn write_instead(target: &Target<'_>, name: &str, body: &mut Vec<u8>) {
    if let Target::Channel(asked) = target
        && asked != name
    {
        body.extend_from_slice(b"{\"channel\":");
        json::string(body, name);
        body.push(b'}');
    }
}
