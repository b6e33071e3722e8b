//! The API key of one request to the server API, and the body that may only be read with it.
//! Must hold: a key that is revoked while the body arrives, or while the request waits, does nothing more; the audit knows the
//! identity that was checked first.

use super::api::HttpApi;
use super::request::{self, Query};
use super::vouched;
use bytes::Bytes;
use http::request::Parts;
use hyper::body::Incoming;
use std::sync::{Arc, OnceLock};
use tavern_domain::{Identity, Scope};
use tavern_wire::error::{Code, Refusal};

pub struct KeyHolder<'a> {
    api: &'a HttpApi,
    parts: &'a Parts,
    /// As it was checked first.
    identity: OnceLock<Identity>,
}

impl<'a> KeyHolder<'a> {
    pub fn new(api: &'a HttpApi, parts: &'a Parts) -> KeyHolder<'a> {
        KeyHolder { api, parts, identity: OnceLock::new() }
    }

    /// The identity of the key, if it has one of these scopes.
    pub async fn with_scope(&self, scopes: &[Scope]) -> Result<&Identity, Refusal> {
        let identity = self.admitted().await?;
        let identity = self.identity.get_or_init(|| identity);
        if !scopes.iter().any(|&scope| identity.scopes.has(scope)) {
            let names: Vec<String> = scopes.iter().map(|scope| format!("{:?}", scope.as_str())).collect();
            let message = format!("this needs an API key with the scope {}", names.join(" or "));
            return Err(Refusal::new(Code::NotAllowed, message));
        }
        Ok(identity)
    }

    /// Whether the key is still valid. Its scopes cannot change.
    pub async fn check_again(&self) -> Result<(), Refusal> {
        self.admitted().await.map(drop)
    }

    /// The id of the key, once it was valid.
    pub fn key(&self) -> Option<&Arc<str>> {
        self.identity.get()?.key.as_ref()
    }

    /// The identity of the key; None without one.
    pub async fn identity(&self) -> Result<Option<Identity>, Refusal> {
        match request::identity(self.api, self.parts, &Query::of(self.parts)?).await? {
            Some(identity) => Ok(Some(identity)),
            None => vouched::identity(self.api, self.parts),
        }
    }

    async fn admitted(&self) -> Result<Identity, Refusal> {
        let identity = self.identity().await?;
        let missing =
            || Refusal::new(Code::Unauthenticated, "an API key is needed: Authorization: Bearer KEY");
        identity.ok_or_else(missing)
    }
}

/// The body of a request to the server API.
pub struct RequestBody<'a> {
    pub incoming: Incoming,
    pub holder: &'a KeyHolder<'a>,
}

impl RequestBody<'_> {
    /// The whole body, bounded in bytes and time. The key is checked again: it may have been revoked meanwhile.
    pub async fn read(self, max: usize) -> Result<Bytes, Refusal> {
        let body = request::body(self.incoming, max).await?;
        self.holder.check_again().await?;
        Ok(body)
    }
}
