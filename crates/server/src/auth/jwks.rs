//! The public keys of an identity provider, read from its JWKS address and kept until they change. A token names its key by
//! `kid`: one that is not known makes the server read the keys again, at most once per `MIN_INTERVAL`.
//! Must hold: an answer is bounded, only public signature keys are taken from it, and each has one algorithm; a failed read
//! keeps the keys of the last one; the address is checked when it is dialled, as that of a webhook is.

use super::token::TrustedKey;
use crate::webhook::{Policy, SenderError, SenderSettings, TargetError, WebhookSender, WebhookTarget};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify};

/// A key set of a large provider has a few kilobytes.
const ANSWER_BYTES: usize = 256 * 1024;
const KEYS_MAX: usize = 64;
const KID_BYTES: usize = 256;
/// How often the keys are read although every token names a known one: removed keys end then.
const REFRESH: Duration = Duration::from_secs(300);
/// The least time between two reads, however many tokens ask for one.
const MIN_INTERVAL: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    #[error("{0}")]
    Fetch(String),
    #[error("the answer is not a JSON object with a list of keys")]
    Malformed,
    #[error("the answer contains no public key for signatures that is supported")]
    NoKey,
}

pub struct JwksCache {
    target: WebhookTarget,
    sender: WebhookSender,
    /// Accept only keys of this algorithm, and take it for RSA keys that name none.
    algorithm: Option<Algorithm>,
    keys: RwLock<Arc<[TrustedKey]>>,
    /// When the keys were read last. Held during a read, so that concurrent callers share one.
    read_at: Mutex<Option<Instant>>,
    wanted: Notify,
}

/// A JWKS address that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JwksAddressError {
    #[error("{0}; http:// and private addresses need jwks_private = true")]
    Target(#[from] TargetError),
    #[error(transparent)]
    Sender(#[from] SenderError),
}

impl JwksCache {
    /// `private`: the address may be http:// or a private one.
    pub fn new(
        url: &str,
        private: bool,
        algorithm: Option<Algorithm>,
    ) -> Result<JwksCache, JwksAddressError> {
        let policy = Policy { allow_http: private, allow_private: private, allowed: Vec::new() };
        let target = WebhookTarget::parse(url, &policy)?;
        let sender = WebhookSender::new(SenderSettings {
            policy,
            request_timeout: TIMEOUT,
            answer_bytes: ANSWER_BYTES,
            ..SenderSettings::default()
        })?;
        let keys = RwLock::new(Arc::from([]));
        Ok(JwksCache { target, sender, algorithm, keys, read_at: Mutex::default(), wanted: Notify::new() })
    }

    /// The keys of the last successful read.
    pub(super) fn keys(&self) -> Arc<[TrustedKey]> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The host, for logs: the rest of the address may hold a secret.
    pub fn host(&self) -> &str {
        self.target.authority()
    }

    /// Whether reading the keys again may find others: a read is in progress, or the last one is not from a moment ago.
    pub fn may_refresh(&self) -> bool {
        self.read_at.try_lock().map_or(true, |at| is_due(*at))
    }

    /// Asks the task that keeps the keys for a read, without waiting for it.
    pub fn request_refresh(&self) {
        self.wanted.notify_one();
    }

    /// Reads the keys, unless that was done a moment ago. Waits for a read that is in progress.
    pub async fn refresh(&self) {
        let mut at = self.read_at.lock().await;
        if !is_due(*at) {
            return;
        }
        *at = Some(Instant::now());
        if let Err(error) = self.read().await {
            let kept = self.keys().len();
            tracing::warn!(host = self.host(), %error, kept, "cannot read the token keys (JWKS)");
        }
    }

    /// Reads the keys now. Returns how many there are.
    pub async fn read(&self) -> Result<usize, JwksError> {
        let body = self.sender.get(&self.target).await.map_err(JwksError::Fetch)?;
        let keys = parse(&body, self.algorithm)?;
        let found = keys.len();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.into();
        Ok(found)
    }

    /// Keeps the keys current.
    pub async fn watch(self: Arc<Self>) {
        loop {
            self.refresh().await;
            let pause = if self.keys().is_empty() { MIN_INTERVAL } else { REFRESH };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wanted.notified() => {}
            }
        }
    }
}

fn is_due(read_at: Option<Instant>) -> bool {
    read_at.is_none_or(|at| at.elapsed() >= MIN_INTERVAL)
}

/// How many keys of a set are usable. For checks of the parser.
pub fn key_set_size(body: &[u8]) -> Option<usize> {
    parse(body, None).ok().map(|keys| keys.len())
}

/// The usable keys of a set; others in it, such as keys for encryption, are left out.
pub(super) fn parse(body: &[u8], only: Option<Algorithm>) -> Result<Vec<TrustedKey>, JwksError> {
    #[derive(serde::Deserialize)]
    struct KeySet {
        keys: Vec<serde_json::Value>,
    }
    let set: KeySet = serde_json::from_slice(body).map_err(|_| JwksError::Malformed)?;
    let keys: Vec<TrustedKey> =
        set.keys.into_iter().filter_map(|key| trusted(key, only)).take(KEYS_MAX).collect();
    if keys.is_empty() { Err(JwksError::NoKey) } else { Ok(keys) }
}

fn trusted(value: serde_json::Value, only: Option<Algorithm>) -> Option<TrustedKey> {
    let named = value.get("alg").and_then(serde_json::Value::as_str).map(str::to_owned);
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    if !matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    // The algorithms that fit a key of this type, the usual one first. A symmetric key is no public key.
    let fitting: &[Algorithm] = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => &[Algorithm::ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => &[Algorithm::ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
        _ => return None,
    };
    let algorithm = match named {
        Some(name) => name.parse().ok()?,
        None => only.unwrap_or(fitting[0]),
    };
    if !fitting.contains(&algorithm) || only.is_some_and(|only| only != algorithm) {
        return None;
    }
    let kid = jwk.common.key_id.clone();
    if kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES) {
        return None;
    }
    Some(TrustedKey::new(algorithm, DecodingKey::from_jwk(&jwk).ok()?, kid))
}

#[cfg(test)]
#[path = "jwks_tests.rs"]
mod tests;
