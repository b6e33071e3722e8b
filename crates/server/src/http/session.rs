//! Long-polls and single commands: one request, one mail to the shard of its session, one answer.

use super::body::{Answer, json_with, refusal};
use super::edge::Guest;
use super::request::{self, Query};
use crate::services::Services;
use crate::shard::mail::{HttpAnswer, HttpCommand, HttpPoll, Mail, Named};
use http::request::Parts;
use hyper::Request;
use hyper::body::Incoming;
use std::time::Duration;
use tavern_domain::{Identity, limits};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;
use tokio::sync::oneshot;

/// How long a poll may lie in the inbox of a sleeping shard.
const CROWD: Duration = Duration::from_millis(1);
/// A poll's body names a session and three numbers.
const POLL_BODY_BYTES: usize = 16 * 1024;

pub fn stopping() -> Refusal {
    Refusal::new(Code::Unavailable, "the server is stopping").retry_after(1000)
}

pub fn put(services: &Services, shard: usize, mail: Mail) -> Result<(), Refusal> {
    let busy = || Refusal::new(Code::Unavailable, "the server has too much to do").retry_after(500);
    services.inboxes[shard].put(mail).map_err(|_| busy())
}

/// Takes a poll in. The request is gone afterwards: what parks is the receiver of its answer, and nothing that would
/// keep the connection's buffers alive.
pub async fn begin_poll(
    guest: &Guest,
    request: Request<Incoming>,
) -> Result<oneshot::Receiver<HttpAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let parts = &parts;
    let services = &guest.services;
    let body = request::body(incoming, POLL_BODY_BYTES).await?;
    let poll = json::parse_poll(&body)?;
    let identity = identity(services, parts, poll.token.as_deref()).await?;
    let session = poll.session.as_deref().and_then(Named::read);
    if session.is_none() && poll.session.is_none() && identity.is_none() {
        return Err(Refusal::new(Code::Unauthenticated, "the first poll needs a token"));
    }
    let shard = shard_of(services, session.as_ref());
    let (answer, waiting) = oneshot::channel();
    let timeout_ms = poll.timeout_ms.unwrap_or(limits::POLL_PARK_MS);
    let mail = HttpPoll {
        session,
        named: poll.session.is_some(),
        identity,
        cursor: poll.cursor,
        timeout_ms,
        answer,
    };
    put_lazily(services, shard, Mail::Poll(Box::new(mail)))?;
    Ok(waiting)
}

/// Puts mail that may wait a moment, so that a crowd of polls wakes its shard once.
fn put_lazily(services: &Services, shard: usize, mail: Mail) -> Result<(), Refusal> {
    let inbox = &services.inboxes[shard];
    let busy = || Refusal::new(Code::Unavailable, "the server has too much to do").retry_after(500);
    if inbox.put_quietly(mail).map_err(|_| busy())? {
        let inbox = inbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(CROWD).await;
            inbox.ring();
        });
    }
    Ok(())
}

pub async fn command(guest: &Guest, parts: &Parts, incoming: Incoming) -> Answer {
    match begin_command(guest, parts, incoming).await {
        Ok(waiting) => answered(waiting.await),
        Err(refused) => refusal(&refused),
    }
}

async fn begin_command(
    guest: &Guest,
    parts: &Parts,
    incoming: Incoming,
) -> Result<oneshot::Receiver<HttpAnswer>, Refusal> {
    let services = &guest.services;
    let frame = request::body(incoming, services.config.limits.json_frame_bytes).await?;
    let identity = identity(services, parts, None).await?;
    let named = json::session_of(&frame);
    let session = named.as_deref().and_then(Named::read);
    let shard = shard_of(services, session.as_ref());
    let (answer, waiting) = oneshot::channel();
    let mail = HttpCommand { frame: frame.to_vec(), session, identity, answer };
    put(services, shard, Mail::Command(Box::new(mail)))?;
    Ok(waiting)
}

async fn identity(
    services: &Services,
    parts: &Parts,
    token: Option<&str>,
) -> Result<Option<Identity>, Refusal> {
    match token {
        Some(token) => request::admit(services, &crate::auth::Credential::of(token)).await.map(Some),
        None => request::identity(services, parts, &Query::of(parts)).await,
    }
}

/// The shard on which a session lives, or a new one would.
pub fn shard_of(services: &Services, session: Option<&Named>) -> usize {
    session.map_or_else(|| services.next_shard(), |named| named.key.shard(services.inboxes.len()))
}

pub fn answered(answer: Result<HttpAnswer, oneshot::error::RecvError>) -> Answer {
    match answer {
        Ok(Ok((code, body))) => json_with(code, body),
        Ok(Err(refused)) => refusal(&refused),
        Err(_) => refusal(&stopping()),
    }
}
