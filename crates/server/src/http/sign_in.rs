//! Signing in to the dashboard with a link that works once. Its code is stored as a row of the API keys that is no key: within a
//! minute it is exchanged for a key with the scopes of the key that asked for the link.
//! Must hold: a code works once, on any node; neither a code nor a key reaches the log.

use super::api::HttpApi;
use super::body::{HttpResponse, whole};
use super::keys::{report, unavailable};
use super::request;
use crate::auth::{self, NewKey};
use crate::store_client::StoreClientError;
use crate::topics::body::object;
use http::StatusCode;
use http::request::Parts;
use hyper::body::Incoming;
use serde::Deserialize;
use tavern_domain::{Identity, Time};
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Commit, Expect, Found, Read, Row, RowKey, StoreError};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{NewKeyReport, encode};

/// How long a link works.
const LINK_MS: u64 = 60_000;
/// How long the key of a dashboard that was opened by a link works.
const SIGNED_IN_MS: u64 = 12 * 3_600_000;
const BODY_BYTES: usize = 4_096;

const LINK: &str = "dashboard: link";
const SIGNED_IN: &str = "dashboard: signed in by a link";

/// `POST /v1/dashboard/links`.
pub async fn link(api: &HttpApi, identity: &Identity) -> Result<HttpResponse, Refusal> {
    let now = api.now();
    let mut code = auth::mint_code(LINK, identity.scopes, now).map_err(bad)?;
    code.row.expires_at = Some(now + LINK_MS);
    let deletes = over(api, now).await?;
    let commit = Commit { deletes, ..new_row(&code) };
    api.store.commit(commit).await.map_err(|_| unavailable())?;
    Ok(created(&code))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    code: String,
}

/// `POST /v1/dashboard/sign-in`: the only route that gives a key to somebody without one.
pub async fn sign_in(api: &HttpApi, parts: &Parts, body: Incoming) -> Result<HttpResponse, Refusal> {
    let body = request::body(body, BODY_BYTES).await?;
    let SignIn { code } = object(&body, "give {\"code\": CODE} of the link that `tavern dashboard` printed")?;
    let now = api.now();
    if let Some(address) = request::address_of(parts) {
        api.node.rates.take_hello(now, address)?;
    }
    let hash = auth::code_hash(&code).ok_or_else(used)?;
    let Ok(Found::Key(found)) = api.store.read(Read::KeyByHash(hash)).await else {
        return Err(unavailable());
    };
    let code = found.filter(|code| code.row.expires_at.is_some_and(|until| now < until)).ok_or_else(used)?;
    let mut key = auth::mint(SIGNED_IN, code.row.scopes, now).map_err(bad)?;
    key.row.expires_at = Some(now + SIGNED_IN_MS);
    let id = RowKey::Key(code.row.id.clone());
    let mut commit = Commit { deletes: vec![id.clone()], ..new_row(&key) };
    commit.expects.push(Expect { key: id, version: code.version });
    match api.store.commit(commit).await {
        Ok(_) => Ok(created(&key)),
        // Somebody else was faster.
        Err(StoreClientError::Store(StoreError::Conflict { .. })) => Err(used()),
        Err(_) => Err(unavailable()),
    }
}

/// Links that were not used, and keys of dashboards, that do not work any more: nobody would remove them.
async fn over(api: &HttpApi, now: Time) -> Result<Vec<RowKey>, Refusal> {
    let Ok(Found::Keys(page)) = api.store.read(Read::Keys { after: None, limit: PAGE_ROWS }).await else {
        return Err(unavailable());
    };
    let ours = page.rows.into_iter().filter(|found| [LINK, SIGNED_IN].contains(&&*found.row.name));
    let ended = ours.filter(|found| found.row.expires_at.is_some_and(|until| until <= now));
    Ok(ended.map(|found| RowKey::Key(found.row.id)).collect())
}

fn new_row(key: &NewKey) -> Commit {
    let row = Row::Key(key.row.clone());
    Commit { expects: vec![Expect { key: row.key(), version: 0 }], puts: vec![row], ..Commit::default() }
}

fn created(key: &NewKey) -> HttpResponse {
    let body = NewKeyReport { key: key.text.expose(), report: report(&key.row) };
    let mut answer = whole(StatusCode::CREATED, "application/json", encode(&body));
    let no_store = http::HeaderValue::from_static("no-store");
    answer.headers_mut().insert(http::header::CACHE_CONTROL, no_store);
    answer
}

fn used() -> Refusal {
    let message = "this link was used already, or is older than a minute; run `tavern dashboard` again";
    Refusal::new(Code::Unauthenticated, message)
}

fn bad(error: auth::KeyError) -> Refusal {
    Refusal::new(Code::BadRequest, error.to_string())
}
