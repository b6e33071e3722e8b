//! API keys over HTTP: list, create, revoke. They are rows of the store: every node notices a change within a second.

use super::api::HttpApi;
use super::body::{HttpResponse, typed, whole};
use super::key_holder::RequestBody;
use super::rest::page_of;
use crate::auth;
use http::StatusCode;
use http::request::Parts;
use std::sync::Arc;
use tavern_domain::{Identity, Scope, Scopes, Time};
use tavern_store::limits::{PAGE_ROWS, RETRY_AFTER_MS};
use tavern_store::{ApiKey, Commit, Expect, Found, Read, Row, StoreError, Versioned};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{
    KeyList, KeyReport, NewKeyReport, NewKeyRequest, OwnKeyReport, encode, parse_new_key,
};

pub async fn list(api: &HttpApi, parts: &Parts) -> Result<HttpResponse, Refusal> {
    let (after, limit) = page_of(parts)?;
    let after = (!after.is_empty()).then(|| after.as_str().into());
    let read = Read::Keys { after, limit: (limit as u32).min(PAGE_ROWS) };
    let Ok(Found::Keys(page)) = api.store.read(read).await else { return Err(unavailable()) };
    let next = page.rows.last().filter(|_| page.more).map(|found| &*found.row.id);
    Ok(typed(&KeyList { keys: page.rows.iter().map(|found| report(&found.row)).collect(), next }))
}

/// The key of the request itself. Without one it has no scopes.
pub fn whoami(identity: Option<&Identity>) -> HttpResponse {
    let has = |scope: &Scope| identity.is_some_and(|identity| identity.scopes.has(*scope));
    let scopes = Scope::ALL.into_iter().filter(has).map(Scope::as_str).collect();
    typed(&OwnKeyReport { key: identity.and_then(|identity| identity.key.as_deref()), scopes })
}

pub async fn create(api: &HttpApi, body: RequestBody<'_>) -> Result<HttpResponse, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadRequest, message);
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let NewKeyRequest { name, scopes, expires_at } = parse_new_key(&body)?;
    let now = api.now();
    if expires_at.is_some_and(|at| at <= now.ms() || at > i64::MAX as u64 / 1000) {
        return Err(bad("the field `expires_at` must be in the future, or left out".to_owned()));
    }
    let scopes: Scopes = auth::parse_scopes(&scopes.join(",")).map_err(|error| bad(error.to_string()))?;
    let mut key = auth::mint(&name, scopes, now).map_err(|error| bad(error.to_string()))?;
    key.row.expires_at = expires_at.map(Time);
    let row = Row::Key(key.row.clone());
    let expects = vec![Expect { key: row.key(), version: 0 }];
    let commit = Commit { expects, puts: vec![row], ..Commit::default() };
    api.store.commit(commit).await.map_err(|_| unavailable())?;
    let body = NewKeyReport { key: key.text.expose(), report: report(&key.row) };
    Ok(whole(StatusCode::CREATED, "application/json", encode(&body)))
}

/// Revoking again changes nothing.
pub async fn revoke(api: &HttpApi, id: &str) -> Result<HttpResponse, Refusal> {
    let Some(Versioned { version, row }) = find(api, id).await? else {
        return Err(Refusal::new(Code::NotFound, "there is no key with this id; GET /v1/keys lists them"));
    };
    if row.revoked_at.is_some() {
        return Ok(typed(&report(&row)));
    }
    let revoked = ApiKey { revoked_at: Some(api.now()), ..row };
    let row = Row::Key(revoked.clone());
    let expects = vec![Expect { key: row.key(), version }];
    match api.store.commit(Commit { expects, puts: vec![row], ..Commit::default() }).await {
        Ok(_) => Ok(typed(&report(&revoked))),
        Err(crate::store_client::StoreClientError::Store(StoreError::Conflict { .. })) => {
            Err(Refusal::new(Code::Conflict, "the key was changed meanwhile; try again"))
        }
        Err(_) => Err(unavailable()),
    }
}

async fn find(api: &HttpApi, id: &str) -> Result<Option<Versioned<ApiKey>>, Refusal> {
    let mut after: Option<Arc<str>> = None;
    loop {
        let Ok(Found::Keys(page)) = api.store.read(Read::Keys { after, limit: PAGE_ROWS }).await else {
            return Err(unavailable());
        };
        after = page.rows.last().map(|key| key.row.id.clone());
        if let Some(found) = page.rows.into_iter().find(|key| &*key.row.id == id) {
            return Ok(Some(found));
        }
        if !page.more {
            return Ok(None);
        }
    }
}

pub fn report(key: &ApiKey) -> KeyReport<'_> {
    KeyReport {
        created_at: key.created_at.ms(),
        expires_at: key.expires_at.map(Time::ms),
        id: &key.id,
        last_used_at: key.last_used_at.map(Time::ms),
        name: &key.name,
        revoked_at: key.revoked_at.map(Time::ms),
        scopes: key.scopes.iter().map(Scope::as_str).collect(),
    }
}

pub fn unavailable() -> Refusal {
    Refusal::new(Code::Unavailable, "the store does not answer").retry_after(RETRY_AFTER_MS)
}
