//! API keys for a service with the scope `admin`.

use super::{ApiKeys, ApiRequest};
use crate::Error;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An API key as a list shows it. The key itself is not stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeySummary {
    /// The id, which is part of the key.
    pub id: String,
    /// What the key is for.
    pub name: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Milliseconds since 1970.
    pub created_at: u64,
    /// It is refused from then on.
    pub expires_at: Option<u64>,
    /// About when it was used last.
    pub last_used_at: Option<u64>,
    /// When it was revoked.
    pub revoked_at: Option<u64>,
}

/// A new key, which is shown once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CreatedKey {
    /// The key.
    pub key: String,
    /// The same as in the list.
    #[serde(flatten)]
    pub summary: KeySummary,
}

impl ApiKeys<'_> {
    /// All API keys.
    pub async fn list(&self) -> Result<Vec<KeySummary>, Error> {
        self.api.list(&["keys"], "keys").await
    }

    /// Creates a key with these scopes, which expires at a time in milliseconds since 1970 or never.
    pub async fn create(
        &self,
        name: &str,
        scopes: &[String],
        expires_at: Option<u64>,
    ) -> Result<CreatedKey, Error> {
        let body = serde_json::json!({"name": name, "scopes": scopes, "expires_at": expires_at});
        self.api.call(ApiRequest::new("POST", &["keys"]).body(&body)?).await
    }

    /// A code that opens the dashboard once, within a minute, at `/#code=`.
    pub async fn dashboard_code(&self) -> Result<String, Error> {
        let made: CreatedKey = self.api.call(ApiRequest::new("POST", &["dashboard", "links"])).await?;
        Ok(made.key)
    }

    /// Revokes a key by its id.
    pub async fn revoke(&self, id: &str) -> Result<(), Error> {
        self.api.call::<Value>(ApiRequest::new("DELETE", &["keys", id])).await.map(drop)
    }
}
