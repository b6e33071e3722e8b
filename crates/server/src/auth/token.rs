//! Tokens: JWTs, signed with a secret (HS256) or checked against public keys. The time is an input.
//! Must hold: the algorithm is that of the key, never that of the header; a token without `exp` is refused; an
//! identity expires by node time, after the remaining lifetime that the wall clock showed at login, so a later clock
//! change has no effect.

use super::jwks::{JwksAddressError, JwksCache};
use super::{AuthError, signature};
use crate::config::{Config, SECRET_BYTES, SecretText, TokenKeyConfig};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tavern_domain::rights::Grant;
use tavern_domain::{Identity, Rights, Scopes, Time, Verb, is_user_id, limits};

/// Room for the full list of grants, and still one read of a socket.
pub const TOKEN_BYTES: usize = 8_192;
const PATTERN_BYTES: usize = limits::REDIS_CHANNEL_BYTES;

/// The claims of a token. Times are seconds, as in every JWT; a fraction is allowed because many libraries write one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TokenClaims {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exp: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nbf: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iat: Option<serde_json::Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<BTreeMap<String, Vec<String>>>,
}

/// A configured public key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenKeyError {
    #[error("cannot read the token key {file}: {source}")]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{file} contains no public key in PEM form for {algorithm}")]
    NotAKey { file: PathBuf, algorithm: String },
    #[error("{file} must contain a secret of at least {SECRET_BYTES} bytes for HS256")]
    ShortSecret { file: PathBuf },
    #[error("jwks_url: {0}")]
    Jwks(#[from] JwksAddressError),
}

/// The clocks at a login. Tokens are judged by the wall clock, because other machines issue them.
#[derive(Clone, Copy, Debug)]
pub struct LoginTime {
    pub wall: Time,
    pub node: Time,
    /// How far the clocks of issuer and server may differ.
    pub leeway_ms: u64,
    /// How far in the future a token may expire.
    pub max_life_ms: u64,
}

impl LoginTime {
    /// Without leeway or a longest life, by one clock.
    pub fn at(time: Time) -> LoginTime {
        LoginTime { wall: time, node: time, leeway_ms: 0, max_life_ms: u64::MAX }
    }
}

/// A wall clock that is further behind node time has jumped back, or node time is ahead.
const BEHIND_MS: u64 = tavern_domain::clock::STEP_MS as u64;
/// How long a login lasts if the wall clock says that its token is valid and node time says that it has expired. After that the
/// client has to log in again.
const DOUBTFUL_MS: u64 = 300_000;
const DAY_MS: u64 = 86_400_000;
/// Later than any token expires, and still a number that every engine stores exactly.
const LATEST: Time = Time(1 << 53);

/// Verifies tokens.
pub struct Verifier {
    keys: Vec<TrustedKey>,
    /// Keys that are read from the addresses of identity providers.
    key_sets: Vec<Arc<JwksCache>>,
}

/// A key with the one algorithm that it is used for.
pub(super) struct TrustedKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
    validation: Validation,
}

impl Verifier {
    /// The secrets and the public keys of the configuration. Reads files; key sets are read by their own tasks.
    pub fn new(config: &Config) -> Result<Verifier, TokenKeyError> {
        let secrets = config.secret.iter().chain(&config.former_secret);
        let mut keys: Vec<TrustedKey> = secrets.map(TrustedKey::from_secret).collect();
        let mut key_sets = Vec::new();
        for configured in &config.token_keys {
            match &configured.jwks_url {
                Some(url) => {
                    let algorithm = configured.algorithm.parse().ok();
                    let cache = JwksCache::new(url, configured.jwks_private, algorithm)?;
                    key_sets.push(Arc::new(cache));
                }
                None => keys.push(TrustedKey::from_file(configured)?),
            }
        }
        Ok(Verifier { keys, key_sets })
    }

    pub fn from_secret(secret: &SecretText) -> Verifier {
        Verifier { keys: vec![TrustedKey::from_secret(secret)], key_sets: Vec::new() }
    }

    /// The keys that are read from addresses.
    pub fn key_sets(&self) -> &[Arc<JwksCache>] {
        &self.key_sets
    }

    pub fn verify(&self, token: &str, login: LoginTime) -> Result<Identity, AuthError> {
        if token.len() > TOKEN_BYTES {
            return Err(AuthError::TooLong);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| AuthError::Malformed)?;
        // Critical extensions (`crit`): none is supported.
        if header.crit.is_some() {
            return Err(AuthError::Malformed);
        }
        let fits = |key: &&TrustedKey| key.algorithm == header.alg && key.answers_to(header.kid.as_deref());
        // The header only chooses among keys whose algorithm is fixed.
        let mut refusal = None;
        let read: Vec<Arc<[TrustedKey]>> = self.key_sets.iter().map(|set| set.keys()).collect();
        for key in self.keys.iter().chain(read.iter().flat_map(|keys| keys.iter())).filter(fits) {
            match jsonwebtoken::decode::<TokenClaims>(token, &key.key, &key.validation) {
                Ok(data) => return identity(data.claims, login),
                Err(error) => {
                    refusal = Some(match error.kind() {
                        ErrorKind::Json(_) => wrong_claim(token, key),
                        kind => refused(kind),
                    });
                }
            }
        }
        Err(match refusal {
            Some(refusal) => refusal,
            None if self.key_sets.is_empty() || header.alg.family() == AlgorithmFamily::Hmac => {
                AuthError::Algorithm
            }
            None => AuthError::UnknownKeyId,
        })
    }

    /// Whether reading key sets again may make a token valid that names an unknown key.
    pub fn may_refresh(&self) -> bool {
        self.key_sets.iter().any(|set| set.may_refresh())
    }

    /// Reads the key sets again that were not read a moment ago.
    pub async fn refresh(&self) {
        for set in &self.key_sets {
            set.refresh().await;
        }
    }

    /// Asks for that without waiting.
    pub fn request_refresh(&self) {
        self.key_sets.iter().for_each(|set| set.request_refresh());
    }
}

impl TrustedKey {
    pub fn new(algorithm: Algorithm, key: DecodingKey, kid: Option<String>) -> TrustedKey {
        signature::install();
        TrustedKey { kid, algorithm, key, validation: validation(algorithm) }
    }

    /// The bytes of the secret's text (UTF-8) are the key.
    fn from_secret(secret: &SecretText) -> TrustedKey {
        TrustedKey::new(Algorithm::HS256, DecodingKey::from_secret(secret.expose().as_bytes()), None)
    }

    fn from_file(configured: &TokenKeyConfig) -> Result<TrustedKey, TokenKeyError> {
        let (file, algorithm) = (configured.file.clone(), configured.algorithm.clone());
        let read = std::fs::read(&file);
        let bytes = read.map_err(|source| TokenKeyError::Unreadable { file: file.clone(), source })?;
        let kid = configured.kid.clone();
        if algorithm == "HS256" {
            // Editors end a file with a line break.
            let end =
                bytes.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
            if end < SECRET_BYTES {
                return Err(TokenKeyError::ShortSecret { file });
            }
            return Ok(TrustedKey::new(Algorithm::HS256, DecodingKey::from_secret(&bytes[..end]), kid));
        }
        TrustedKey::from_pem(&algorithm, &bytes, kid).ok_or(TokenKeyError::NotAKey { file, algorithm })
    }

    fn from_pem(algorithm: &str, pem: &[u8], kid: Option<String>) -> Option<TrustedKey> {
        let algorithm: Algorithm = algorithm.parse().ok()?;
        let key = match algorithm.family() {
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(pem),
            AlgorithmFamily::Ec => DecodingKey::from_ec_pem(pem),
            AlgorithmFamily::Ed => DecodingKey::from_ed_pem(pem),
            AlgorithmFamily::Hmac => return None,
        };
        Some(TrustedKey::new(algorithm, key.ok()?, kid))
    }

    #[cfg(test)]
    pub fn named(self) -> (Algorithm, Option<String>) {
        (self.algorithm, self.kid)
    }

    fn answers_to(&self, asked: Option<&str>) -> bool {
        match (&self.kid, asked) {
            (Some(own), Some(asked)) => own == asked,
            _ => true,
        }
    }
}

/// The library checks only the signature; the claims are checked here, against the time given.
fn validation(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    // Claims we do not know are ignored, and the audience is one of them.
    validation.validate_aud = false;
    validation
}

fn refused(error: &ErrorKind) -> AuthError {
    match error {
        ErrorKind::InvalidSignature => AuthError::Signature,
        ErrorKind::InvalidAlgorithm => AuthError::Algorithm,
        _ => AuthError::Malformed,
    }
}

/// Names the claim of a wrong type in a token whose signature is right.
fn wrong_claim(token: &str, key: &TrustedKey) -> AuthError {
    let Ok(data) = jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &key.validation) else {
        return AuthError::Malformed;
    };
    let is_wrong = |(name, is_right, _): &&ClaimType| {
        data.claims.get(*name).is_some_and(|value| !value.is_null() && !is_right(value))
    };
    AuthError::Claim(CLAIM_TYPES.iter().find(is_wrong).map_or(WRONG_ALLOW, |(_, _, wrong)| wrong))
}

const WRONG_ALLOW: &str =
    "allow must be an object from patterns to lists of verbs, such as {\"game#*\": [\"subscribe\"]}";
/// A claim, its type, and what to say about another one.
type ClaimType = (&'static str, fn(&Value) -> bool, &'static str);

const CLAIM_TYPES: [ClaimType; 4] = [
    ("sub", Value::is_string, "sub must be text, such as \"ann\": write numbers in quotes"),
    ("name", Value::is_string, "name must be text"),
    ("exp", Value::is_number, "exp must be a number: seconds since 1970"),
    ("nbf", Value::is_number, "nbf must be a number: seconds since 1970"),
];

/// Signs claims with the secret.
pub fn sign(secret: &SecretText, claims: &TokenClaims) -> Result<String, AuthError> {
    signature::install();
    let key = EncodingKey::from_secret(secret.expose().as_bytes());
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key);
    let token = token.map_err(|_| AuthError::Malformed)?;
    if token.len() > TOKEN_BYTES { Err(AuthError::TooLong) } else { Ok(token) }
}

fn identity(claims: TokenClaims, login: LoginTime) -> Result<Identity, AuthError> {
    let LoginTime { wall, node, leeway_ms, max_life_ms } = login;
    let exp = moment(claims.exp.as_ref().ok_or(AuthError::NoExpiry)?)
        .ok_or(AuthError::Claim("exp is not a time"))?;
    if wall >= exp + leeway_ms {
        return Err(AuthError::Expired);
    }
    if wall < exp && exp.since(wall) > max_life_ms.saturating_add(leeway_ms) {
        return Err(AuthError::LivesTooLong {
            days: exp.since(wall) / DAY_MS,
            max_days: max_life_ms / DAY_MS,
        });
    }
    // A login within the leeway lasts until the leeway ends.
    let left_ms = if wall < exp { exp.since(wall) } else { (exp + leeway_ms).since(wall) };
    let left_ms = match wall + BEHIND_MS < node {
        // The wall clock may have jumped back: then the token would outlive its expiry by as much.
        true if node < exp => left_ms.min(exp.since(node)),
        true => left_ms.min(DOUBTFUL_MS),
        false => left_ms,
    };
    if let Some(nbf) = &claims.nbf
        && wall + leeway_ms < moment(nbf).ok_or(AuthError::Claim("nbf is not a time"))?
    {
        return Err(AuthError::NotYet);
    }
    let issued_s = match &claims.iat {
        Some(iat) => {
            let issued = moment(iat).ok_or(AuthError::Claim("iat is not a time"))?;
            u32::try_from(issued.ms() / 1_000).unwrap_or(u32::MAX)
        }
        None => 0,
    };
    let user = claims
        .sub
        .map(|sub| if is_user_id(&sub) { Ok(Arc::from(sub)) } else { Err(AuthError::Claim(BAD_SUB)) });
    let name = claims.name.map(|name| {
        let good = name.len() <= limits::DISPLAY_NAME_BYTES && !name.chars().any(char::is_control);
        if good {
            Ok(Arc::from(name))
        } else {
            Err(AuthError::Claim("name is too long or contains control characters"))
        }
    });
    Ok(Identity {
        user: user.transpose()?,
        name: name.transpose()?,
        rights: Arc::new(rights(claims.allow.unwrap_or_default())?),
        expires: (node + left_ms).min(LATEST),
        issued_s,
        unlimited: false,
        scopes: Scopes::NONE,
        key: None,
    })
}

const BAD_SUB: &str = "sub is not a user id: it has 1 to 128 bytes, no control, zero-width or text direction \
                       characters, and is not `.` or `..`";

fn rights(allow: BTreeMap<String, Vec<String>>) -> Result<Rights, AuthError> {
    if allow.len() > limits::GRANTS {
        return Err(AuthError::Claim("allow has more than 64 patterns"));
    }
    let mut grants = Vec::with_capacity(allow.len());
    for (pattern, verbs) in allow {
        if pattern.is_empty() || pattern.len() > PATTERN_BYTES {
            return Err(AuthError::Claim("allow has a pattern that is empty or longer than 512 bytes"));
        }
        let parse = |verb: &String| Verb::parse(verb).ok_or_else(|| AuthError::UnknownVerb(shortened(verb)));
        let verbs = verbs.iter().map(parse).collect::<Result<_, _>>()?;
        grants.push(Grant { pattern: pattern.into_bytes().into(), verbs });
    }
    Ok(Rights { grants })
}

fn shortened(verb: &str) -> String {
    verb.chars().take(32).collect()
}

/// Seconds, whole or not, as a time. None: negative or not finite.
fn moment(seconds: &serde_json::Number) -> Option<Time> {
    if let Some(whole) = seconds.as_u64() {
        return Some(Time(whole.saturating_mul(1_000)));
    }
    let ms = seconds.as_f64()? * 1_000.0;
    (ms.is_finite() && ms >= 0.0).then_some(Time(ms as u64))
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
