//! A command as a client sends it: the fields of each op and their types.
//! Must hold: parsing borrows from the frame; a refusal names the field and carries the id if it can be read.

use super::field::{self, Raw, boolean, message_id, need, number, present, refuse, text, texts};
use super::scan::{find_id, is_id};
use super::{members, party};
use crate::error::Refusal;
use serde::Deserialize;
use std::borrow::Cow;
use tavern_domain::HistoryPosition;
use tavern_domain::limits::PAGE_ENTRIES;
use tavern_domain::presence::Visibility;

/// Bytes of a request id, which is echoed in every reply: enough for a counter or a UUID.
pub const ID_BYTES: usize = 64;

/// A parsed command; borrows from its frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedCommand<'a> {
    /// The raw JSON token, a number or a string, echoed as it is.
    pub id: Option<Cow<'a, str>>,
    pub op: Op<'a>,
}

impl ParsedCommand<'_> {
    /// The same command without its frame, for a command that has to wait.
    pub fn into_owned(self) -> ParsedCommand<'static> {
        ParsedCommand { id: self.id.map(owned), op: self.op.into_owned() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Op<'a> {
    Hello(HelloRequest<'a>),
    Subscribe(SubscribeRequest<'a>),
    Unsubscribe(SubscribeTarget<'a>),
    Publish(PublishRequest<'a>),
    Join(JoinRequest<'a>),
    Update(UpdateRequest<'a>),
    Leave {
        channel: Cow<'a, str>,
    },
    Who(WhoRequest<'a>),
    History(HistoryRequest<'a>),
    Follow {
        user: Cow<'a, str>,
    },
    Unfollow {
        user: Cow<'a, str>,
    },
    Following(PageRequest<'a>),
    Followers(PageRequest<'a>),
    Status {
        users: Vec<Cow<'a, str>>,
    },
    Visibility {
        value: Visibility,
    },
    /// An invalid one is refused later, where the caller's party is known.
    Party(Result<party::PartyOp, Refusal>),
    Ack {
        seq: u64,
    },
    Bye,
    Ping,
}

impl Op<'_> {
    /// The name of the command; those of a party share one.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Hello(_) => "hello",
            Op::Subscribe(_) => "subscribe",
            Op::Unsubscribe(_) => "unsubscribe",
            Op::Publish(_) => "publish",
            Op::Join(_) => "join",
            Op::Update(_) => "update",
            Op::Leave { .. } => "leave",
            Op::Who(_) => "who",
            Op::History(_) => "history",
            Op::Follow { .. } => "follow",
            Op::Unfollow { .. } => "unfollow",
            Op::Following(_) => "following",
            Op::Followers(_) => "followers",
            Op::Status { .. } => "status",
            Op::Visibility { .. } => "visibility",
            Op::Party(_) => "party",
            Op::Ack { .. } => "ack",
            Op::Bye => "bye",
            Op::Ping => "ping",
        }
    }

    fn into_owned(self) -> Op<'static> {
        match self {
            Op::Hello(hello) => Op::Hello(HelloRequest {
                token: hello.token.map(owned),
                session: hello.session.map(owned),
                seq: hello.seq,
                status: hello.status,
            }),
            Op::Subscribe(subscribe) => Op::Subscribe(SubscribeRequest {
                target: subscribe.target.into_owned(),
                presence: subscribe.presence,
                since: subscribe.since,
                last: subscribe.last,
            }),
            Op::Unsubscribe(target) => Op::Unsubscribe(target.into_owned()),
            Op::Publish(publish) => Op::Publish(PublishRequest {
                channel: owned(publish.channel),
                data: owned(publish.data),
                message_id: publish.message_id.map(owned),
                retain: publish.retain,
            }),
            Op::History(history) => {
                Op::History(HistoryRequest { channel: owned(history.channel), ..history })
            }
            Op::Join(JoinRequest { channel, state }) => {
                Op::Join(JoinRequest { channel: owned(channel), state: state.map(owned) })
            }
            Op::Update(UpdateRequest { channel, state }) => {
                Op::Update(UpdateRequest { channel: owned(channel), state: owned(state) })
            }
            Op::Leave { channel } => Op::Leave { channel: owned(channel) },
            Op::Who(who) => Op::Who(WhoRequest {
                channel: owned(who.channel),
                counts_only: who.counts_only,
                after: who.after.map(owned),
                limit: who.limit,
            }),
            Op::Follow { user } => Op::Follow { user: owned(user) },
            Op::Unfollow { user } => Op::Unfollow { user: owned(user) },
            Op::Following(page) => Op::Following(page.into_owned()),
            Op::Followers(page) => Op::Followers(page.into_owned()),
            Op::Status { users } => Op::Status { users: users.into_iter().map(owned).collect() },
            Op::Visibility { value } => Op::Visibility { value },
            Op::Party(party) => Op::Party(party),
            Op::Ack { seq } => Op::Ack { seq },
            Op::Bye => Op::Bye,
            Op::Ping => Op::Ping,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest<'a> {
    pub channel: Cow<'a, str>,
    /// Raw JSON; absent: an earlier state stays.
    pub state: Option<Cow<'a, str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateRequest<'a> {
    pub channel: Cow<'a, str>,
    /// Raw JSON.
    pub state: Cow<'a, str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhoRequest<'a> {
    pub channel: Cow<'a, str>,
    pub counts_only: bool,
    /// The last user of the page before.
    pub after: Option<Cow<'a, str>>,
    pub limit: Option<u64>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest<'a> {
    /// The last entry of the page before.
    pub after: Option<Cow<'a, str>>,
    pub limit: Option<u64>,
}

impl PageRequest<'_> {
    fn into_owned(self) -> PageRequest<'static> {
        PageRequest { after: self.after.map(owned), limit: self.limit }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelloRequest<'a> {
    pub token: Option<Cow<'a, str>>,
    pub session: Option<Cow<'a, str>>,
    pub seq: Option<u64>,
    pub status: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscribeTarget<'a> {
    Channel(Cow<'a, str>),
    Pattern(Cow<'a, str>),
}

impl SubscribeTarget<'_> {
    fn into_owned(self) -> SubscribeTarget<'static> {
        match self {
            SubscribeTarget::Channel(name) => SubscribeTarget::Channel(owned(name)),
            SubscribeTarget::Pattern(pattern) => SubscribeTarget::Pattern(owned(pattern)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeRequest<'a> {
    pub target: SubscribeTarget<'a>,
    pub presence: bool,
    /// Recover the messages after this position.
    pub since: Option<HistoryPosition>,
    /// The last messages first.
    pub last: Option<u64>,
}

/// A page of a channel's history: the last messages, or those after or before an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRequest<'a> {
    pub channel: Cow<'a, str>,
    pub after: Option<u64>,
    pub before: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRequest<'a> {
    pub channel: Cow<'a, str>,
    /// Raw JSON, byte for byte.
    pub data: Cow<'a, str>,
    /// Makes a publish with history once-only.
    pub message_id: Option<Cow<'a, str>>,
    /// Keeps it as the last value of a channel without history.
    pub retain: bool,
}

/// An invalid frame, with the id to answer under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRequest<'a> {
    pub id: Option<Cow<'a, str>>,
    pub refusal: Refusal,
}

impl BadRequest<'_> {
    /// The same without the frame.
    pub fn into_owned(self) -> BadRequest<'static> {
        BadRequest { id: self.id.map(owned), refusal: self.refusal }
    }
}

/// All ops, as listed in the error for an unknown one.
pub const OPS: [&str; 18] = [
    "hello",
    "subscribe",
    "unsubscribe",
    "publish",
    "join",
    "update",
    "leave",
    "who",
    "history",
    "follow",
    "unfollow",
    "following",
    "followers",
    "status",
    "visibility",
    "ack",
    "bye",
    "ping",
];

/// The prefix of ops about parties.
const PARTY: &str = "party.";

macro_rules! request_fields {
    ($($name:ident),* $(,)?) => {
        /// The members of all ops. Values stay raw until the op is known. A name that no op has is refused.
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct RequestFields<'a> {
            $(#[serde(borrow, default, deserialize_with = "present")]
            $name: Raw<'a>,)*
        }

        impl RequestFields<'_> {
            /// The names of those that are given.
            fn given(&self) -> impl Iterator<Item = &'static str> {
                let all = [$((stringify!($name), self.$name)),*];
                let given = |raw: Raw<'_>| raw.is_some_and(|raw| raw.get() != "null");
                all.into_iter().filter(move |(_, raw)| given(*raw)).map(|(name, _)| name)
            }
        }
    };
}

request_fields!(
    id,
    op,
    channel,
    data,
    pattern,
    presence,
    seq,
    session,
    token,
    status,
    state,
    counts_only,
    after,
    limit,
    before,
    since,
    last,
    message_id,
    retain,
    user,
    users,
    value,
    party_id,
    message,
    params,
    go_id,
    if_version,
    rid,
);

pub fn parse_request(frame: &[u8]) -> Result<ParsedCommand<'_>, BadRequest<'_>> {
    let fields: RequestFields<'_> = field::object(frame)
        .map_err(|refusal| BadRequest { id: find_id(frame).map(Cow::Borrowed), refusal })?;
    let id = read_id(fields.id).map_err(|refusal| BadRequest { id: None, refusal })?;
    match read_op(&fields) {
        Ok(op) => Ok(ParsedCommand { id, op }),
        Err(refusal) => Err(BadRequest { id, refusal }),
    }
}

/// Parses a command that outlives its frame.
pub fn parse_owned(frame: &[u8]) -> Result<ParsedCommand<'static>, BadRequest<'static>> {
    parse_request(frame).map(ParsedCommand::into_owned).map_err(BadRequest::into_owned)
}

fn read_id(raw: Raw<'_>) -> Result<Option<Cow<'_, str>>, Refusal> {
    match raw.map(|raw| raw.get()) {
        None | Some("null") => Ok(None),
        Some(token) if is_id(token) => Ok(Some(Cow::Borrowed(token))),
        Some(_) => {
            Err(refuse(format!("the field `id` must be a number or a string of at most {ID_BYTES} bytes")))
        }
    }
}

fn read_op<'a>(fields: &RequestFields<'a>) -> Result<Op<'a>, Refusal> {
    let op = need("op", text("op", fields.op)?)?;
    let checked = members::check(&op, fields.given());
    if let Some(command) = op.strip_prefix(PARTY) {
        return Ok(Op::Party(checked.and_then(|()| read_party(command, fields))));
    }
    checked?;
    Ok(match op.as_ref() {
        "publish" => Op::Publish(PublishRequest {
            channel: need("channel", text("channel", fields.channel)?)?,
            data: need("data", fields.data)?.get().into(),
            message_id: message_id(fields.message_id)?,
            retain: boolean("retain", fields.retain)?.unwrap_or(false),
        }),
        "ack" => Op::Ack { seq: need("seq", number("seq", fields.seq)?)? },
        "subscribe" => Op::Subscribe(SubscribeRequest {
            target: read_target(fields)?,
            presence: boolean("presence", fields.presence)?.unwrap_or(false),
            since: read_since(fields.since)?,
            last: number("last", fields.last)?,
        }),
        "unsubscribe" => Op::Unsubscribe(read_target(fields)?),
        "join" => Op::Join(JoinRequest {
            channel: need("channel", text("channel", fields.channel)?)?,
            state: fields.state.map(|state| state.get().into()),
        }),
        "update" => Op::Update(UpdateRequest {
            channel: need("channel", text("channel", fields.channel)?)?,
            state: need("state", fields.state)?.get().into(),
        }),
        "leave" => Op::Leave { channel: need("channel", text("channel", fields.channel)?)? },
        "who" => Op::Who(WhoRequest {
            channel: need("channel", text("channel", fields.channel)?)?,
            counts_only: boolean("counts_only", fields.counts_only)?.unwrap_or(false),
            after: text("after", fields.after)?,
            limit: read_limit(fields)?,
        }),
        "history" => Op::History(HistoryRequest {
            channel: need("channel", text("channel", fields.channel)?)?,
            after: number("after", fields.after)?,
            before: number("before", fields.before)?,
            limit: read_limit(fields)?,
        }),
        "follow" => Op::Follow { user: need("user", text("user", fields.user)?)? },
        "unfollow" => Op::Unfollow { user: need("user", text("user", fields.user)?)? },
        "following" => Op::Following(read_part(fields)?),
        "followers" => Op::Followers(read_part(fields)?),
        "status" => Op::Status { users: need("users", texts("users", fields.users)?)? },
        "visibility" => {
            Op::Visibility { value: read_visibility(need("value", text("value", fields.value)?)?)? }
        }
        "hello" => Op::Hello(HelloRequest {
            token: text("token", fields.token)?,
            session: text("session", fields.session)?,
            seq: number("seq", fields.seq)?,
            status: boolean("status", fields.status)?.unwrap_or(false),
        }),
        "bye" => Op::Bye,
        "ping" => Op::Ping,
        _ => {
            let known = OPS.join(", ");
            return Err(refuse(format!("unknown op; use one of {known}, or a party command")));
        }
    })
}

fn read_party(command: &str, fields: &RequestFields<'_>) -> Result<party::PartyOp, Refusal> {
    let given = party::PartyFields {
        user: fields.user,
        party_id: fields.party_id,
        go_id: fields.go_id,
        message: fields.message,
        data: fields.data,
        params: fields.params,
        if_version: fields.if_version,
        rid: fields.rid,
    };
    party::read(command, &given)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SinceFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    epoch: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    offset: Raw<'a>,
}

fn read_since(raw: Raw<'_>) -> Result<Option<HistoryPosition>, Refusal> {
    let Some(raw) = raw.map(|raw| raw.get()).filter(|token| *token != "null") else { return Ok(None) };
    let fields: SinceFields<'_> = field::object(raw.as_bytes())
        .map_err(|_| refuse("the field `since` must be an object with `epoch` and `offset`"))?;
    let epoch = need("since.epoch", number("since.epoch", fields.epoch)?)?;
    let offset = need("since.offset", number("since.offset", fields.offset)?)?;
    Ok(Some(HistoryPosition { epoch, offset }))
}

fn read_part<'a>(fields: &RequestFields<'a>) -> Result<PageRequest<'a>, Refusal> {
    Ok(PageRequest { after: text("after", fields.after)?, limit: read_limit(fields)? })
}

/// How many entries of a list are wanted.
fn read_limit(fields: &RequestFields<'_>) -> Result<Option<u64>, Refusal> {
    match number("limit", fields.limit)? {
        Some(limit) if !(1..=PAGE_ENTRIES).contains(&limit) => {
            Err(refuse(format!("the field `limit` must be an integer from 1 to {PAGE_ENTRIES}, not {limit}")))
        }
        limit => Ok(limit),
    }
}

/// Parses a visibility.
pub fn read_visibility(value: impl AsRef<str>) -> Result<Visibility, Refusal> {
    Visibility::parse(value.as_ref())
        .ok_or_else(|| refuse("the field `value` must be everyone, followers_i_follow or nobody"))
}

fn read_target<'a>(fields: &RequestFields<'a>) -> Result<SubscribeTarget<'a>, Refusal> {
    match (text("channel", fields.channel)?, text("pattern", fields.pattern)?) {
        (Some(channel), None) => Ok(SubscribeTarget::Channel(channel)),
        (None, Some(pattern)) => Ok(SubscribeTarget::Pattern(pattern)),
        (Some(_), Some(_)) => Err(refuse("give the field `channel` or the field `pattern`, not both")),
        (None, None) => Err(refuse("the field `channel` or the field `pattern` is missing")),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
