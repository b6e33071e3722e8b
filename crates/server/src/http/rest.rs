//! The server API, for services that hold an API key. Each route names the scope it needs.

use super::api::HttpApi;
use super::body::{HttpResponse, json, refusal, typed};
use super::idempotency::{KEY_BYTES, KeyState, OnceKey};
use super::key_holder::{KeyHolder, RequestBody};
use super::request::{self, Query, decode};
use super::server::HttpConnection;
use super::session::{put, stopping};
use super::{
    audit, control, history, keys, lists, overview, party, people, publish, sign_in, topics, traffic,
};
use crate::shard::input::ShardInput;
use crate::supervisor::panics;
use crate::traces;
use bytes::Bytes;
use http::Method;
use http::request::Parts;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::time::Instant;
use tavern_domain::{Channel, ClientId, Scope};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Read, Writer};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{LocalNode, NodeList, NodeReport, SessionReport};
use tokio::sync::oneshot;

/// Rows in one page of a list, unless the request asks for fewer.
const PAGE: usize = 100;
const PAGE_MAX: u64 = 1000;

/// A request that changes something completes even if its client goes away: a retry with the same `Idempotency-Key` gets
/// its answer, and no change of several steps stops halfway. A request that only reads ends with its client.
pub async fn route(connection: &Arc<HttpConnection>, request: Request<Incoming>) -> HttpResponse {
    let running = connection.api.connections.closing.request();
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return answered(connection, request).await;
    }
    let connection = connection.clone();
    let trace = traces::current();
    let work = tokio::spawn(traces::within(trace, async move {
        let _running = running;
        panics::contain(Box::pin(answered(&connection, request))).await
    }));
    match work.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panicked)) => refusal(&Refusal::new(Code::Internal, panicked.to_string())),
        // Only the end of the runtime cancels it.
        Err(_) => refusal(&stopping()),
    }
}

async fn answered(connection: &HttpConnection, request: Request<Incoming>) -> HttpResponse {
    let (parts, incoming) = request.into_parts();
    let api = &connection.api;
    let holder = KeyHolder::new(api, &parts);
    let body = RequestBody { incoming, holder: &holder };
    let answer = answer(api, &parts, &holder, body).await.unwrap_or_else(|refused| refusal(&refused));
    if let Some(key) = holder.key() {
        audit::record(api, &parts, key, &answer).await;
    }
    answer
}

async fn answer(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let path = parts.uri.path().strip_prefix("/v1/").unwrap_or_default();
    let mut segments: Vec<String> =
        path.split('/').map(|segment| decode(segment, false)).collect::<Result<_, _>>()?;
    if segments.iter().any(|segment| segment == "." || segment == "..") {
        return Err(Refusal::new(Code::BadRequest, "`.` and `..` are not names"));
    }
    if let [first, channel, ..] = &mut segments[..]
        && first == "channels"
    {
        *channel = request::channel_name(channel).into_owned();
    }
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match (parts.method.as_str(), segments.as_slice()) {
        ("POST", ["channels", channel, "messages"]) => {
            holder.with_scope(&[Scope::Publish]).await?;
            publish::one(api, parts, holder, channel, body).await
        }
        ("POST", ["broadcast"]) => {
            holder.with_scope(&[Scope::Publish]).await?;
            publish::broadcast(api, parts, holder, body).await
        }
        ("POST", ["publish"]) => {
            holder.with_scope(&[Scope::Publish]).await?;
            publish::many(api, parts, holder, body).await
        }
        ("POST", ["dashboard", "links"]) => {
            sign_in::link(api, holder.with_scope(&[Scope::Admin]).await?).await
        }
        ("POST", ["dashboard", "sign-in"]) => sign_in::sign_in(api, parts, body.incoming).await,
        ("GET", ["whoami"]) => Ok(keys::whoami(holder.identity().await?.as_ref())),
        ("GET", ["stats"]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            control::stats(api).await
        }
        ("GET", ["keys"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            keys::list(api, parts).await
        }
        ("POST", ["keys"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            keys::create(api, body).await
        }
        ("DELETE", ["keys", id]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            keys::revoke(api, id).await
        }
        ("GET", ["channels", channel, "history"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            history::page(api, parts, channel).await
        }
        ("DELETE", ["channels", channel, "history"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            history::clear(api, channel).await
        }
        ("GET", ["channels"]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            lists::channels(api, parts).await
        }
        ("GET", ["channels", channel, "presence"]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            presence(api, parts, channel).await
        }
        ("PUT", ["channels", channel, "presence", user]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            people::hold(api, channel, user, body).await
        }
        ("DELETE", ["channels", channel, "presence", user]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            people::release(api, channel, user).await
        }
        ("GET", ["overview"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            Ok(overview::overview(api))
        }
        ("GET", ["load"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            overview::load(api, parts).await
        }
        ("GET", ["traffic"]) => traffic::watch(api, parts, holder.with_scope(&[Scope::Admin]).await?),
        ("GET", ["settings"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            Ok(overview::settings(&api.config))
        }
        ("GET", ["bans"]) => {
            holder.with_scope(&[Scope::Users]).await?;
            control::bans(api, parts).await
        }
        ("GET", ["users"]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            lists::users(api, parts).await
        }
        ("DELETE", ["users", name])
        | (_, ["users", name, "sessions" | "disconnect" | "subscribe" | "unsubscribe" | "ban"]) => {
            holder.with_scope(&[Scope::Users]).await?;
            match (parts.method.as_str(), segments.last()) {
                ("GET", Some(&"sessions")) => control::sessions(api, name).await,
                ("POST", Some(&"disconnect")) => control::disconnect(api, name, body).await,
                ("POST", Some(&"subscribe")) => control::subscribe(api, name, true, body).await,
                ("POST", Some(&"unsubscribe")) => control::subscribe(api, name, false, body).await,
                ("GET", _) => control::show_ban(api, name).await,
                ("PUT", _) => control::ban(api, name, body).await,
                _ if segments.len() == 2 => control::erase(api, name).await,
                _ => control::unban(api, name).await,
            }
        }
        ("GET", ["users", name, "inbox"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            let (after, limit) = page_of(parts)?;
            super::user::inbox(api, name, &after, limit).await
        }
        ("GET", ["users", name]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            super::user::user(api, name).await
        }
        ("GET", ["users", name, list @ ("following" | "followers")]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            let (after, limit) = page_of(parts)?;
            people::list(api, name, *list == "followers", &after, limit).await
        }
        (method @ ("PUT" | "DELETE"), ["users", name, "following", whom]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            people::follow(api, name, whom, method == "PUT").await
        }
        ("PUT", ["users", name, "visibility"]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            people::show(api, name, body).await
        }
        ("POST", ["users", name, "messages"]) => {
            holder.with_scope(&[Scope::Publish]).await?;
            people::write(api, parts, holder, name, body).await
        }
        ("GET", ["sessions", client]) => {
            holder.with_scope(&[Scope::Presence]).await?;
            session(api, client).await
        }
        ("GET", ["nodes"]) => {
            holder.with_scope(&[Scope::Admin]).await?;
            nodes(api).await
        }
        (_, path @ (["parties", ..] | ["users", _, "party"])) => {
            party::answer(api, parts, holder, path, body).await
        }
        (_, path @ ["topics" | "subscriptions", ..]) => topics::answer(api, parts, holder, path, body).await,
        (method, _) => Err(Refusal::new(Code::NotFound, format!("no route for {method} /v1/{path}"))),
    }
}

/// Runs a request, or repeats the answer to an earlier one with the same key.
pub async fn run_once(
    api: &HttpApi,
    once: Option<&OnceKey>,
    work: impl Future<Output = Result<OnceAnswer, Refusal>>,
) -> Result<Bytes, Refusal> {
    let Some(once) = once else { return Ok(work.await?.body) };
    match api.idempotency.begin(once, Instant::now()) {
        KeyState::New => {}
        // A copy: the connection counts what it holds.
        KeyState::Answered(answer) => return Ok(Bytes::copy_from_slice(&answer)),
        KeyState::InProgress => {
            let message = "a request with this Idempotency-Key is in progress";
            return Err(Refusal::new(Code::Conflict, message).retry_after(100));
        }
    }
    let running = api.idempotency.run(once);
    let answer = work.await?;
    if answer.is_final {
        running.finish(Bytes::copy_from_slice(&answer.body));
    }
    Ok(answer.body)
}

/// The answer to a request that may run once.
pub struct OnceAnswer {
    pub body: Bytes,
    /// False: a part of the request failed, so that a retry must run again.
    pub is_final: bool,
}

impl From<Vec<u8>> for OnceAnswer {
    fn from(body: Vec<u8>) -> OnceAnswer {
        OnceAnswer { body: body.into(), is_final: true }
    }
}

/// The `Idempotency-Key` of a request, which counts for its API key and this operation.
pub fn once_key(parts: &Parts, holder: &KeyHolder<'_>, operation: &str) -> Result<Option<OnceKey>, Refusal> {
    let Some(given) = parts.headers.get("idempotency-key") else { return Ok(None) };
    let given = given.to_str().unwrap_or_default();
    let visible = given.bytes().all(|byte| byte.is_ascii_graphic());
    if given.is_empty() || given.len() > KEY_BYTES || !visible {
        return Err(Refusal::new(
            Code::BadRequest,
            "an Idempotency-Key must have 1 to 255 visible characters",
        ));
    }
    let key = holder.key().ok_or_else(|| Refusal::from(Code::Unauthenticated))?;
    Ok(Some(OnceKey::new(key, operation, given)))
}

/// `after` and `limit` of a list.
pub fn page_of(parts: &Parts) -> Result<(String, usize), Refusal> {
    let query = Query::of(parts)?;
    let limit = query.number("limit", 1..=PAGE_MAX)?.map_or(PAGE, |limit| limit as usize);
    Ok((query.one("after")?.unwrap_or_default().to_owned(), limit))
}

/// The users in a channel, from the store: the same on every node.
async fn presence(api: &HttpApi, parts: &Parts, name: &str) -> Result<HttpResponse, Refusal> {
    Channel::parse(name).map_err(|error| Refusal::new(Code::BadRequest, error.to_string()))?;
    let (after, limit) = page_of(parts)?;
    let counts_only = Query::of(parts)?.flag("counts_only")?;
    let after = (!after.is_empty()).then(|| after.as_str().into());
    let read = Read::Roster { channel: name.into(), after, limit: limit as u32 };
    let answer = api.store.read(read).await;
    let answer = answer.map_err(|error| {
        tracing::warn!(%error, "cannot encode the users of a channel");
        Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
    })?;
    // A service that holds a key sees hidden users too.
    match tavern_hub::members_of(answer, counts_only, &|_, _| true) {
        Some(body) => Ok(json(body)),
        None => Err(Refusal::new(Code::Internal, "the store returned an unexpected answer")),
    }
}

async fn session(api: &HttpApi, client: &str) -> Result<HttpResponse, Refusal> {
    let unknown = || {
        let message = format!(
            "no session of client {client:?} on this node; GET /v1/users/USER/sessions names the node to ask"
        );
        Refusal::new(Code::NotFound, message)
    };
    let client = ClientId::parse(client).ok_or_else(unknown)?;
    for shard in 0..api.shards.len() {
        let (reply, waiting) = oneshot::channel();
        put(api, shard, ShardInput::Inspect(client, reply))?;
        let report: Option<SessionReport> = waiting.await.map_err(|_| stopping())?;
        if let Some(report) = report {
            return Ok(typed(&report));
        }
    }
    Err(unknown())
}

/// Every node that the store knows, with details of this one.
async fn nodes(api: &HttpApi) -> Result<HttpResponse, Refusal> {
    let Ok((now, known)) = crate::adoption::read_nodes(&api.store, &api.clock).await else {
        return Err(
            Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
        );
    };
    let settings = &api.node.settings;
    let sum = |pick: fn(&tavern_hub::node::stats::Stats) -> u64| -> u64 {
        api.node.stats.iter().map(|stats| pick(stats)).sum()
    };
    let own = Writer::new(&settings.node, api.node.epoch());
    let here = LocalNode {
        connections: api.connections.open(),
        sessions: sum(|stats| stats.sessions.get()),
        shards: settings.shards,
        stopping: api.health.is_stopping(),
        uptime_ms: api.started.elapsed().as_millis() as u64,
    };
    let nodes = known.iter().map(|node| {
        let is_open = node.closed_at.is_none();
        NodeReport {
            alive: is_open && now < node.lease_until,
            clean: node.clean,
            closed_at: node.closed_at.map(|at| at.ms()),
            epoch: node.writer.epoch.0,
            here: (node.writer == own).then_some(here),
            lease_ms: if is_open { node.lease_until.since(now) } else { 0 },
            node: &node.writer.node,
            opened_at: node.opened_at.ms(),
        }
    });
    Ok(typed(&NodeList { next: None, nodes: nodes.collect() }))
}
