//! Parties in JSON: commands, snapshots, the messages to members and invitees, and the events for other services. Their shape
//! only, not what is allowed.

use super::encode::{self, string};
use super::field::{Raw, need, number, object, present, refuse, text};
use crate::error::Refusal;
use serde::Deserialize;
use std::sync::Arc;
use tavern_domain::party::{
    Party, PartyCommand, PartyEvent, PartyEventKind, PartyReason, PartyRequest, PartyTopicEvent,
};
use tavern_domain::{USER_ID_RULES, limits};

/// Keys in the data of a party, at most.
const DATA_KEYS: usize = 30;

/// A command about parties.
#[derive(Clone, Debug, PartialEq)]
pub enum PartyOp {
    Call(PartyRequest),
    /// A message to all members: raw JSON.
    Say(Arc<str>),
}

/// The JSON members of party commands.
#[derive(Clone, Copy, Default)]
pub(super) struct PartyFields<'a> {
    pub user: Raw<'a>,
    pub party_id: Raw<'a>,
    pub go_id: Raw<'a>,
    pub message: Raw<'a>,
    pub data: Raw<'a>,
    pub params: Raw<'a>,
    pub if_version: Raw<'a>,
    pub rid: Raw<'a>,
}

/// The JSON members of a stored message that are used.
const OURS: [&str; 13] = [
    "seq",
    "event",
    "message_id",
    "cmd",
    "party_id",
    "version",
    "ts",
    "user",
    "uid",
    "server",
    "go_id",
    "progress",
    "missing",
];

/// The commands, without `party.` in front.
pub const COMMANDS: [&str; 16] = [
    "get",
    "invite",
    "cancel_invite",
    "accept",
    "decline",
    "kick",
    "leave",
    "promote",
    "disband",
    "set_data",
    "go",
    "cancel_go",
    "ready",
    "block",
    "unblock",
    "say",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartyBody<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    cmd: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    user: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    party_id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    go_id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    message: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    if_version: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    rid: Raw<'a>,
}

/// A command as an HTTP body: `{"cmd": "invite", …}`, with the members of the op.
pub fn parse(body: &[u8]) -> Result<PartyOp, Refusal> {
    let body: PartyBody<'_> = object(body)?;
    let fields = PartyFields {
        user: body.user,
        party_id: body.party_id,
        go_id: body.go_id,
        message: body.message,
        data: body.data,
        params: body.params,
        if_version: body.if_version,
        rid: body.rid,
    };
    read(&need("cmd", text("cmd", body.cmd)?)?, &fields)
}

/// A matchmaker's answer: whether it matched, and the details.
pub fn parse_answer(body: &[u8]) -> Result<(bool, Option<Arc<str>>), Refusal> {
    let mut given: serde_json::Map<String, serde_json::Value> = object(body)?;
    let matched = match given.remove("result").as_ref().and_then(|result| result.as_str()) {
        Some("matched") => true,
        Some("failed") => false,
        _ => return Err(refuse("the field `result` must be \"matched\" or \"failed\"")),
    };
    let details: Option<Arc<str>> =
        (!given.is_empty()).then(|| serde_json::Value::Object(given).to_string().into());
    if details.as_ref().is_some_and(|details| details.len() > limits::PARTY_DATA_BYTES) {
        let max = limits::PARTY_DATA_BYTES;
        return Err(refuse(format!("the members besides `result` must be JSON of at most {max} bytes")));
    }
    Ok((matched, details))
}

/// Parses a command.
pub(super) fn read(command: &str, fields: &PartyFields<'_>) -> Result<PartyOp, Refusal> {
    let party = number("party_id", fields.party_id)?;
    let given = |name, raw| text(name, raw).map(|text| text.map(|text| Arc::<str>::from(&*text)));
    let user = || need("user", given("user", fields.user)?);
    let message = || given("message", fields.message);
    let party_id = || need("party_id", party);
    let command = match command {
        "get" => PartyCommand::Get,
        "invite" => PartyCommand::Invite { user: user()? },
        "cancel_invite" => PartyCommand::CancelInvite { user: user()? },
        "accept" => PartyCommand::Accept { party_id: party_id()? },
        "decline" => PartyCommand::Decline { party_id: party_id()?, message: message()? },
        "kick" => PartyCommand::Kick { user: user()?, message: message()? },
        "leave" => PartyCommand::Leave { message: message()? },
        "promote" => PartyCommand::Promote { user: user()? },
        "disband" => PartyCommand::Disband { message: message()? },
        "set_data" => PartyCommand::SetData { data: read_data(need("data", fields.data)?.get())? },
        "go" => PartyCommand::Go { params: fields.params.map(|params| params.get().into()) },
        "cancel_go" => PartyCommand::CancelGo,
        "ready" => PartyCommand::Ready { go_id: need("go_id", number("go_id", fields.go_id)?)? },
        "block" => PartyCommand::Block { user: user()? },
        "unblock" => PartyCommand::Unblock { user: user()? },
        "say" => return Ok(PartyOp::Say(need("data", fields.data)?.get().into())),
        _ => {
            let message = format!("unknown party command; use one of {}", COMMANDS.join(", "));
            return Err(refuse(message));
        }
    };
    let if_version = number("if_version", fields.if_version)?;
    let rid = given("rid", fields.rid)?;
    let request = PartyRequest { user: None, name: None, party, if_version, rid, command };
    match request.invalid_member() {
        None => Ok(PartyOp::Call(request)),
        Some(member) => Err(refuse(beyond_limits(member))),
    }
}

/// The limits of a member of a party command.
fn beyond_limits(member: &'static str) -> String {
    let expected = match member {
        "user" => return format!("the field `user` must be a user id: {USER_ID_RULES}"),
        "message" => format!("have at most {} bytes and no control characters", limits::PARTY_MESSAGE_BYTES),
        "rid" => format!("have 1 to {} bytes", limits::PARTY_RID_BYTES),
        _ => format!("be JSON of at most {} bytes", limits::PARTY_DATA_BYTES),
    };
    format!("the field `{member}` must {expected}")
}

/// The data of a party: one object with few keys.
fn read_data(raw: &str) -> Result<Arc<str>, Refusal> {
    let object: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(raw);
    match object {
        Ok(object) if object.len() <= DATA_KEYS => Ok(raw.into()),
        _ => Err(refuse(format!("the field `data` must be an object with at most {DATA_KEYS} keys"))),
    }
}

/// A party as its members see it, or `null`.
pub fn snapshot(out: &mut Vec<u8>, party: Option<&Party>) {
    let Some(party) = party else { return out.extend_from_slice(b"null") };
    out.extend_from_slice(format!("{{\"party_id\":{},\"version\":{}", party.id, party.version).as_bytes());
    out.extend_from_slice(b",\"members\":[");
    for (at, member) in party.members.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"user\":" } else { b",{\"user\":" });
        string(out, &member.user);
        out.extend_from_slice(b",\"name\":");
        optional(out, member.name.as_deref());
        let rest = format!(",\"online\":{},\"since\":{}}}", member.away.is_none(), member.since.ms());
        out.extend_from_slice(rest.as_bytes());
    }
    out.extend_from_slice(b"],\"pending\":[");
    for (at, pending) in party.pending.iter().enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"user\":" } else { b",{\"user\":" });
        string(out, &pending.user);
        out.extend_from_slice(b",\"by\":");
        string(out, &pending.by);
        out.extend_from_slice(format!(",\"expires_at\":{}}}", pending.expires.ms()).as_bytes());
    }
    out.extend_from_slice(format!("],\"state\":\"{}\"", party.state().as_str()).as_bytes());
    if let Some(go) = &party.go {
        number_member(out, "go_id", go.id);
    }
    out.extend_from_slice(b",\"data\":");
    out.extend_from_slice(party.data.as_deref().unwrap_or("{}").as_bytes());
    out.push(b'}');
}

fn optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// A party event as the inbox stores it. `server` is the node that wrote it.
pub fn stored_event(event: &PartyEvent, server: &str) -> Vec<u8> {
    // Most events fit.
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"event\":\"party\",\"cmd\":\"");
    out.extend_from_slice(cmd(&event.kind).as_bytes());
    out.push(b'"');
    number_member(&mut out, "party_id", event.party_id);
    number_member(&mut out, "version", event.version);
    number_member(&mut out, "ts", event.at.ms());
    key(&mut out, "user");
    string(&mut out, event.name.as_deref().unwrap_or(&event.actor));
    text_member(&mut out, "uid", &event.actor);
    text_member(&mut out, "server", server);
    details(&mut out, &event.kind);
    out.push(b'}');
    out
}

fn cmd(kind: &PartyEventKind) -> &'static str {
    match kind {
        PartyEventKind::Invite { .. } => "invite",
        PartyEventKind::InviteCancel { .. } => "invite_cancel",
        PartyEventKind::Invited { .. } => "invited",
        PartyEventKind::Uninvited { .. } => "uninvited",
        PartyEventKind::Accept => "accept",
        PartyEventKind::Decline { .. } => "decline",
        PartyEventKind::Join => "join",
        PartyEventKind::Kick { .. } => "kick",
        PartyEventKind::Leave { .. } => "leave",
        PartyEventKind::Leader { .. } => "leader",
        PartyEventKind::Disband { .. } => "disband",
        PartyEventKind::Data { .. } => "data",
        PartyEventKind::PartyGo { .. } => "party_go",
        PartyEventKind::Ready { .. } => "ready",
        PartyEventKind::PartyMatched { .. } => "party_matched",
        PartyEventKind::GoFailed { .. } => "go_failed",
        PartyEventKind::GoCancel { .. } => "go_cancel",
        PartyEventKind::Offline => "offline",
        PartyEventKind::Online => "online",
    }
}

/// A comma and the name of the next member.
fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

fn text_member(out: &mut Vec<u8>, name: &str, text: &str) {
    key(out, name);
    string(out, text);
}

fn number_member(out: &mut Vec<u8>, name: &str, number: u64) {
    key(out, name);
    encode::number(out, number);
}

fn reason(out: &mut Vec<u8>, reason: PartyReason) {
    text_member(out, "reason", reason.as_str());
}

/// A reason for programs, and the message of the user who caused it.
fn reason_and_message(out: &mut Vec<u8>, why: PartyReason, message: Option<&str>) {
    reason(out, why);
    if let Some(message) = message {
        text_member(out, "message", message);
    }
}

fn users(out: &mut Vec<u8>, name: &str, users: &[Arc<str>]) {
    key(out, name);
    out.push(b'[');
    for (at, user) in users.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        string(out, user);
    }
    out.push(b']');
}

fn json(out: &mut Vec<u8>, name: &str, raw: Option<&str>) {
    if let Some(raw) = raw {
        key(out, name);
        out.extend_from_slice(raw.as_bytes());
    }
}

/// Adds the members of a foreign object to ours. Ours win.
fn members(out: &mut Vec<u8>, object: Option<&str>) {
    let given: Option<serde_json::Map<String, serde_json::Value>> =
        object.and_then(|object| serde_json::from_str(object).ok());
    for (name, value) in given.into_iter().flatten().filter(|(name, _)| !OURS.contains(&name.as_str())) {
        out.push(b',');
        string(out, &name);
        out.push(b':');
        out.extend_from_slice(value.to_string().as_bytes());
    }
}

fn go_id(out: &mut Vec<u8>, id: u64) {
    number_member(out, "go_id", id);
}

fn details(out: &mut Vec<u8>, kind: &PartyEventKind) {
    match kind {
        PartyEventKind::Invite { expires } => {
            number_member(out, "expires_at", expires.ms());
        }
        PartyEventKind::Invited { user, name, expires } => {
            text_member(out, "invitee", user);
            if let Some(name) = name {
                text_member(out, "invitee_name", name);
            }
            number_member(out, "expires_at", expires.ms());
        }
        PartyEventKind::InviteCancel { reason: why } | PartyEventKind::Uninvited { reason: why } => {
            reason(out, *why)
        }
        PartyEventKind::Decline { reason: why @ PartyReason::Logout, .. } => {
            reason(out, *why);
            text_member(out, "error", "user not logged");
        }
        PartyEventKind::Decline { reason: why, message } => reason_and_message(out, *why, message.as_deref()),
        PartyEventKind::Kick { message } => reason_and_message(out, PartyReason::Kicked, message.as_deref()),
        PartyEventKind::Leave { reason: why, by, message } => {
            reason_and_message(out, *why, message.as_deref());
            if let Some(by) = by {
                text_member(out, "by", by);
            }
        }
        PartyEventKind::Leader { by } => {
            if let Some(by) = by {
                text_member(out, "by", by);
            }
        }
        PartyEventKind::Disband { reason: why, message } => reason_and_message(out, *why, message.as_deref()),
        PartyEventKind::Data { data } => json(out, "data", Some(data)),
        PartyEventKind::PartyGo { go_id: id, members, params, queued } => {
            go_id(out, *id);
            users(out, "members", members);
            json(out, "params", params.as_deref());
            state(out, *queued);
        }
        PartyEventKind::Ready { go_id: id, queued } => {
            go_id(out, *id);
            state(out, *queued);
        }
        PartyEventKind::PartyMatched { go_id: id, details } => {
            go_id(out, *id);
            members(out, details.as_deref());
        }
        PartyEventKind::GoFailed { go_id: id, missing, details } => {
            go_id(out, *id);
            if !missing.is_empty() {
                out.extend_from_slice(b",\"progress\":201");
                users(out, "missing", missing);
            }
            members(out, details.as_deref());
        }
        PartyEventKind::GoCancel { go_id: id, reason: why } => {
            go_id(out, *id);
            reason(out, *why);
        }
        PartyEventKind::Accept | PartyEventKind::Join | PartyEventKind::Offline | PartyEventKind::Online => {}
    }
}

fn state(out: &mut Vec<u8>, queued: bool) {
    text_member(out, "state", if queued { "queued" } else { "gathering" });
}

/// An event for other services: its type and its data.
pub fn topic_event(event: &PartyTopicEvent) -> (&'static str, Vec<u8>) {
    let begin = |id: u64| format!("{{\"party_id\":{id}").into_bytes();
    let (kind, mut out) = match event {
        PartyTopicEvent::Created { id, leader } => {
            let mut out = begin(*id);
            text_member(&mut out, "leader", leader);
            ("party.created", out)
        }
        PartyTopicEvent::Joined { id, user } => {
            let mut out = begin(*id);
            text_member(&mut out, "user", user);
            ("party.joined", out)
        }
        PartyTopicEvent::Left { id, user, reason: why } => {
            let mut out = begin(*id);
            text_member(&mut out, "user", user);
            reason(&mut out, *why);
            ("party.left", out)
        }
        PartyTopicEvent::Disbanded { id, reason: why } => {
            let mut out = begin(*id);
            reason(&mut out, *why);
            ("party.disbanded", out)
        }
        PartyTopicEvent::Go { id, go_id: go, members, params } => {
            let mut out = begin(*id);
            go_id(&mut out, *go);
            users(&mut out, "members", members);
            json(&mut out, "params", params.as_deref());
            ("party.go", out)
        }
        PartyTopicEvent::GoCancelled { id, go_id: go } => {
            let mut out = begin(*id);
            go_id(&mut out, *go);
            ("party.go_cancelled", out)
        }
    };
    out.push(b'}');
    (kind, out)
}

/// The reply that holds the caller's party.
pub fn party_reply(party: Option<&Party>) -> Vec<u8> {
    let mut body = b"{\"party\":".to_vec();
    snapshot(&mut body, party);
    body.push(b'}');
    body
}

/// The reply to an invite: the party that it is to.
pub fn invited_reply(party_id: u64) -> Vec<u8> {
    format!("{{\"party_id\":{party_id}}}").into_bytes()
}

/// The reply to `go`.
pub fn going_reply(go_id: u64) -> Vec<u8> {
    format!("{{\"go_id\":{go_id}}}").into_bytes()
}
