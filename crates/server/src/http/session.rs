//! Single commands: one request, one input for the shard of its session, one answer.

use super::api::HttpApi;
use super::body::{HttpResponse, json_with, refusal};
use super::request::{self, Query};
use super::server::HttpConnection;
use crate::byte_budget::ReservedBytes;
use crate::shard::input::{CommandAnswer, HttpCommand, SessionName, ShardInput};
use crate::traces;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use hyper::body::Incoming;
use tavern_domain::Identity;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;
use tokio::sync::oneshot;

pub fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "the server is stopping").retry_after(1000)
}

pub fn overloaded() -> Refusal {
    Refusal::new(Code::Unavailable, "the server is overloaded; retry later").retry_after(500)
}

pub fn put(api: &HttpApi, shard: usize, input: ShardInput) -> Result<(), Refusal> {
    api.shards.put(shard, input.in_trace(traces::current())).map_err(|_| overloaded())
}

/// Memory for the body of a request whose sender is not known before it is read.
pub fn reserve(api: &HttpApi, parts: &Parts, max: usize) -> Result<Option<ReservedBytes>, Refusal> {
    let credential = request::credential(parts, &Query::of(parts)?).ok().flatten();
    let known = credential.and_then(|credential| api.authenticator.admit_now(&credential, api.now()));
    if matches!(known, Some(Ok(_))) {
        return Ok(None);
    }
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let reserved = api.unauthenticated.reserve(announced.unwrap_or(max).min(max));
    let busy = || Refusal::new(Code::Unavailable, "too many requests without a token; retry later");
    reserved.map(Some).ok_or_else(|| busy().retry_after(1000))
}

pub async fn command(connection: &HttpConnection, parts: &Parts, incoming: Incoming) -> HttpResponse {
    match begin_command(connection, parts, incoming).await {
        Ok(waiting) => answered(waiting.await),
        Err(refused) => refusal(&refused),
    }
}

async fn begin_command(
    connection: &HttpConnection,
    parts: &Parts,
    incoming: Incoming,
) -> Result<oneshot::Receiver<CommandAnswer>, Refusal> {
    let api = &connection.api;
    let _reserved = reserve(api, parts, api.config.limits.json_frame_bytes)?;
    let frame = request::body(incoming, api.config.limits.json_frame_bytes).await?;
    let identity = identity(api, parts, None).await?;
    let named = json::session_of(&frame);
    let session = named.as_deref().and_then(SessionName::read);
    let shard = api.shards.of_session(session.as_ref());
    let (answer, waiting) = oneshot::channel();
    let command = json::parse_owned(&frame);
    if session.is_none() && command.as_ref().is_ok_and(|command| matches!(command.op, json::Op::Hello(_))) {
        request::count_hello(api, parts, identity.as_ref())?;
    }
    let input = HttpCommand { command, session, identity, address: request::address_of(parts), answer };
    put(api, shard, ShardInput::Command(Box::new(input)))?;
    Ok(waiting)
}

/// The identity behind a request, whose token may be in its body.
pub async fn identity(
    api: &HttpApi,
    parts: &Parts,
    token: Option<&str>,
) -> Result<Option<Identity>, Refusal> {
    match token {
        Some(token) => {
            let credential = crate::auth::Credential::of(token);
            request::admit(api, &credential, parts).await.map(Some)
        }
        None => request::identity(api, parts, &Query::of(parts)?).await,
    }
}

pub fn answered(answer: Result<CommandAnswer, oneshot::error::RecvError>) -> HttpResponse {
    match answer {
        Ok(Ok((code, body))) => json_with(code, body),
        Ok(Err(refused)) => refusal(&refused),
        Err(_) => refusal(&stopping()),
    }
}
