//! Parties over HTTP: for services that hold a key with the scope `parties`, and in the form of older party servers:
//! `POST /party` with form fields, `/party/ping` that waits for events.

use super::api::HttpApi;
use super::body::{HttpResponse, json, json_with};
use super::key_holder::{KeyHolder, RequestBody};
use super::people::carry_out;
use super::request::{self, Query, decode_form};
use super::rest::page_of;
use super::routes;
use super::server::HttpConnection;
use super::session::{put, stopping};
use crate::shard::input::{HttpPoll, SessionName, SessionPoll, ShardInput};
use bytes::Bytes;
use http::request::Parts;
use hyper::body::Incoming;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_domain::party::{PartyCommand, PartyRequest};
use tavern_domain::{Identity, Scope, limits};
use tavern_hub::ServiceCommand;
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{DocumentKey, Found, Read, Row, RowKey, RowKind};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{FormRefusal, PartyList, PingReply, encode, form_command, party_in};
use tavern_wire::json::party::{self, PartyOp};
use tavern_wire::record::{PARTY, read_party};
use tokio::sync::oneshot;

/// The largest form or command about parties.
const BODY_BYTES: usize = 16 * 1024;
/// Users whose pings this node remembers. Above this all are dropped, and their next ping starts a new session.
const PINGS: usize = 100_000;

/// The routes below `/v1/parties` and `/v1/users/{user}/party`.
pub async fn answer(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    path: &[&str],
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    holder.with_scope(&[Scope::Parties]).await?;
    match (parts.method.as_str(), path) {
        ("GET", ["parties"]) => list(api, parts).await,
        ("GET", ["parties", id]) => {
            let call = PartyRequest { party: Some(number("party", id)?), ..without_user(PartyCommand::Get) };
            order(api, call).await
        }
        ("POST", ["parties", id, "go", go_id]) => {
            let body = body.read(BODY_BYTES).await?;
            let (matched, details) = party::parse_answer(&body)?;
            let (party, go_id) = (number("party", id)?, number("go", go_id)?);
            order(api, without_user(PartyCommand::Answer { party, go_id, matched, details })).await
        }
        ("GET", ["users", user, "party"]) => {
            order(api, PartyRequest { user: Some((*user).into()), ..without_user(PartyCommand::Get) }).await
        }
        ("POST", ["users", user, "party"]) => {
            let user: Arc<str> = (*user).into();
            let body = body.read(BODY_BYTES).await;
            let call = match body.and_then(|body| called(party::parse(&body)?)) {
                Ok(call) => call,
                Err(refusal) => return Err(with_party(api, user, refusal).await),
            };
            order(api, PartyRequest { user: Some(user), ..call }).await
        }
        (method, path) => {
            let message = format!("no route for {method} /v1/{}", path.join("/"));
            Err(Refusal::new(Code::NotFound, message))
        }
    }
}

fn number(what: &str, text: &str) -> Result<u64, Refusal> {
    text.parse()
        .map_err(|_| Refusal::new(Code::BadRequest, format!("the {what} id must be a number, not {text:?}")))
}

fn without_user(command: PartyCommand) -> PartyRequest {
    PartyRequest { user: None, name: None, party: None, if_version: None, rid: None, command }
}

fn called(op: PartyOp) -> Result<PartyRequest, Refusal> {
    match op {
        PartyOp::Call(call) => Ok(call),
        PartyOp::Say(_) => {
            let message = "only a session can send a message to its party; use the op party.say";
            Err(Refusal::new(Code::BadRequest, message))
        }
    }
}

async fn order(api: &HttpApi, call: PartyRequest) -> Result<HttpResponse, Refusal> {
    carry_out(api, ServiceCommand::Party { call: Box::new(call), limited: false }).await.map(json)
}

/// Adds the user's party to the refusal of a request that did not become a command; the refusals of commands have it.
async fn with_party(api: &HttpApi, user: Arc<str>, refusal: Refusal) -> Refusal {
    let call = PartyRequest { user: Some(user), ..without_user(PartyCommand::Get) };
    let reply = carry_out(api, ServiceCommand::Party { call: Box::new(call), limited: false }).await;
    match reply.ok().and_then(|reply| party_in(&reply)) {
        Some(party) => refusal.with_party(party),
        None => refusal,
    }
}

/// Parties by id, from the store: the same on every node.
async fn list(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let (after, limit) = page_of(parts)?;
    let key = RowKey::Document(DocumentKey::new(PARTY, &after));
    let read = Read::Rows { kind: RowKind::Document, after: Some(key), limit: limit as u32 };
    let Ok(Found::Rows(page)) = api.store.read(read).await else {
        return Err(
            Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
        );
    };
    let (mut list, mut more) = (PartyList::default(), page.more);
    for row in page.rows {
        let Row::Document(document) = row.row else { continue };
        if document.key.kind() != PARTY {
            more = false;
            break;
        }
        let Ok(id) = document.key.name().parse::<u64>() else { continue };
        let Ok(found) = read_party(id, &document.body) else { continue };
        list.push(&found);
    }
    Ok(json(list.finish(more)))
}

/// The user of a request of the old form.
async fn user_of(api: &HttpApi, parts: &Parts) -> Result<(Identity, Arc<str>), Refusal> {
    let identity = request::identity(api, parts, &Query::of(parts)?).await?;
    let identity = identity.ok_or_else(|| Refusal::new(Code::Unauthenticated, "a token is needed"))?;
    match identity.user.clone() {
        Some(user) => Ok((identity, user)),
        None => Err(Refusal::new(Code::Unauthenticated, "the token must name a user")),
    }
}

/// `POST /party` with `action=party&cmd=…`. Answers with the members of the reply, or with `error` as a text beside its code.
pub async fn form(connection: &HttpConnection, parts: &Parts, body: Incoming) -> HttpResponse {
    match carry_form(&connection.api, parts, body).await {
        Ok(reply) => json(reply),
        Err(refusal) => json_with(Some(refusal.code), encode(&FormRefusal::of(&refusal))),
    }
}

async fn carry_form(api: &HttpApi, parts: &Parts, body: Incoming) -> Result<Vec<u8>, Refusal> {
    // Nothing is read from somebody unknown; what they may is decided when their form is there.
    user_of(api, parts).await?;
    let body = request::body(body, BODY_BYTES).await;
    let (identity, user) = user_of(api, parts).await?;
    let call = match body.and_then(|body| read_form(&body)) {
        Ok(call) => call,
        Err(refusal) => return Err(with_party(api, user, refusal).await),
    };
    let call = PartyRequest { user: Some(user), name: identity.name, ..call };
    carry_out(api, ServiceCommand::Party { call: Box::new(call), limited: true }).await
}

/// The command in a form.
fn read_form(body: &Bytes) -> Result<PartyRequest, Refusal> {
    let text =
        std::str::from_utf8(body).map_err(|_| Refusal::new(Code::BadRequest, "the form is not UTF-8"))?;
    let fields = decode_form(text)?;
    called(party::parse(&form_command(fields.into_iter()))?)
}

/// The session of each user who pings this node, and the cursor of their last answer.
#[derive(Default)]
pub struct Pings(Mutex<HashMap<Arc<str>, (String, u64)>>);

impl Pings {
    fn of(&self, user: &str) -> Option<(String, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(user).cloned()
    }

    fn keep(&self, user: Arc<str>, session: String, cursor: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PINGS {
            known.clear();
        }
        known.insert(user, (session, cursor));
    }
}

/// `/party/ping`: waits for party events; acknowledges those of the previous answer.
pub async fn ping(connection: &HttpConnection, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let api = &connection.api;
    let (identity, user) = user_of(api, parts).await?;
    if routes::is_head(&parts.extensions) {
        return Ok(json(Bytes::new()));
    }
    let known = api.pings.of(&user);
    let (text, cursor) = known.map_or((None, None), |(text, cursor)| (Some(text), Some(cursor)));
    let session = text.as_deref().and_then(SessionName::read);
    let shard = api.shards.of_session(session.as_ref());
    let (reply, waiting) = oneshot::channel();
    let timeout_ms = limits::POLL_PARK_MS;
    let identity = Some(identity);
    let poll = SessionPoll {
        named: session.is_some(),
        session,
        identity,
        cursor,
        timeout_ms,
        address: request::address_of(parts),
        admitted: None,
    };
    let input = HttpPoll { poll, counted: None, answer: reply };
    put(api, shard, ShardInput::Poll(Box::new(input)))?;
    let (_, body) = waiting.await.map_err(|_| stopping())??;
    let ping = PingReply::of_poll(&body)
        .ok_or_else(|| Refusal::new(Code::Internal, "internal error: the poll was not answered"))?;
    api.pings.keep(user, ping.session, ping.cursor);
    Ok(json(ping.body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_in_a_form_are_understood() {
        let read = |form: &'static str| read_form(&Bytes::from_static(form.as_bytes()));
        let call = read("action=party&cmd=invite&invite_login=b%C3%BCb&rid=r1").unwrap();
        assert_eq!(
            (call.command, call.rid.as_deref()),
            (PartyCommand::Invite { user: "büb".into() }, Some("r1"))
        );
        let call = read("cmd=kick&target_uid=7&user_msg=see+you&party_id=5").unwrap();
        let kick = PartyCommand::Kick { user: "7".into(), message: Some("see you".into()) };
        assert_eq!((call.command, call.party), (kick, Some(5)));
        let call = read("cmd=set_data&data={\"a\":1}").unwrap();
        assert_eq!(call.command, PartyCommand::SetData { data: r#"{"a":1}"#.into() });
        for bad in ["", "cmd=dance", "cmd=accept", "cmd=accept&party_id=x", "cmd=say&data=1"] {
            assert_eq!(read(bad).unwrap_err().code, Code::BadRequest, "{bad}");
        }
    }
}
