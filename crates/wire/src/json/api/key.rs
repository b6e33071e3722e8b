//! API keys: the list, and a new one.

use super::super::field::{Raw, moment, need, object, present, text, texts};
use crate::error::Refusal;
use serde::{Deserialize, Serialize};

/// `GET /v1/keys`.
#[derive(Debug, Serialize)]
pub struct KeyList<'a> {
    pub keys: Vec<KeyReport<'a>>,
    pub next: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub struct KeyReport<'a> {
    pub created_at: u64,
    pub expires_at: Option<u64>,
    pub id: &'a str,
    /// Written at most once a minute.
    pub last_used_at: Option<u64>,
    pub name: &'a str,
    pub revoked_at: Option<u64>,
    pub scopes: Vec<&'static str>,
}

/// `GET /v1/whoami`.
#[derive(Debug, Serialize)]
pub struct OwnKeyReport<'a> {
    /// Its id; null in dev mode without a key.
    pub key: Option<&'a str>,
    pub scopes: Vec<&'static str>,
}

/// The answer to `POST /v1/keys`: the only time that the key itself is shown.
#[derive(Debug, Serialize)]
pub struct NewKeyReport<'a> {
    pub key: &'a str,
    #[serde(flatten)]
    pub report: KeyReport<'a>,
}

/// The body of `POST /v1/keys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKeyRequest {
    pub name: String,
    pub scopes: Vec<String>,
    /// In milliseconds since 1970.
    pub expires_at: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    name: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    scopes: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    expires_at: Raw<'a>,
}

pub fn parse_new_key(body: &[u8]) -> Result<NewKeyRequest, Refusal> {
    let fields: KeyFields<'_> = object(body)?;
    let name = need("name", text("name", fields.name)?)?.into_owned();
    let scopes = need("scopes", texts("scopes", fields.scopes)?)?;
    let scopes = scopes.into_iter().map(|scope| scope.into_owned()).collect();
    Ok(NewKeyRequest { name, scopes, expires_at: moment("expires_at", fields.expires_at)? })
}

/// An administrative action: a line of the log, and an event of the topic `tavern.audit`.
#[derive(Debug, Serialize)]
pub struct AuditEvent<'a> {
    pub action: &'a str,
    /// The id of the API key.
    pub key: &'a str,
    pub node: &'a str,
    /// The address that the request came from.
    pub from: Option<String>,
    /// The HTTP status of the answer.
    pub status: u16,
    pub target: &'a str,
}
