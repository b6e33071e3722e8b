//! Authentication: turns tokens, API keys and dev-mode names into an `Identity`. Authorization is elsewhere. Must hold: no credential is ever part of an error, a log line or a Debug text.

mod credential;
mod jwks;
mod key;
mod signature;
mod token;

pub use credential::{Authenticator, Credential, HelloTokens, all_rights};
pub use jwks::{JwksCache, key_set_size};
pub use key::{
    ADMIN, FRESH_MS, KeyError, KeySource, Keyring, NewKey, code_hash, mint, mint_code, parse_scopes,
};
pub use token::{LoginTime, TOKEN_BYTES, TokenClaims, TokenKeyError, Verifier, sign};

use tavern_wire::error::{Code, Refusal};

/// Why a credential was not accepted. See `refusal` for what the client gets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("a token or an API key is needed")]
    Missing,
    #[error("the token is longer than 8192 bytes")]
    TooLong,
    #[error(
        "this is neither a token (three parts with dots between them) nor an API key (it begins with tvk_)"
    )]
    Malformed,
    #[error(
        "cannot read the Authorization header; send Authorization: Bearer TOKEN, with a token or an API key"
    )]
    Header,
    #[error("the token is signed with an algorithm that no configured key has")]
    Algorithm,
    #[error("the token names a key (kid) that its issuer does not publish")]
    UnknownKeyId,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token has no exp: tokens must expire")]
    NoExpiry,
    #[error("the token has expired")]
    Expired,
    #[error(
        "the token expires in {days} days, at most {max_days} are allowed (tokens.max_life_ms); exp is in seconds since \
         1970, not in milliseconds"
    )]
    LivesTooLong { days: u64, max_days: u64 },
    #[error("the token is not valid yet; nbf is in seconds since 1970")]
    NotYet,
    #[error("the claim {0}")]
    Claim(&'static str),
    #[error(
        "the token allows the unknown verb {0:?}; the verbs are subscribe, publish, join, presence, history"
    )]
    UnknownVerb(String),
    #[error("the API key is unknown, revoked or expired")]
    UnknownKey,
    #[error("{}", tavern_domain::USER_ID_RULES)]
    UserName,
    /// The app has banned the user.
    #[error("{}", .0.message)]
    Blocked(Box<Refusal>),
    /// The store did not answer; the client should retry.
    #[error("cannot check credentials now; retry")]
    Unavailable,
}

impl AuthError {
    /// What the client gets.
    pub fn refusal(&self) -> Refusal {
        match self {
            AuthError::Blocked(refusal) => (**refusal).clone(),
            AuthError::Unavailable => Refusal::new(Code::Unavailable, self.to_string()).retry_after(1000),
            error => Refusal::new(Code::Unauthenticated, error.to_string()),
        }
    }

    /// The reason in the log, without text of the client.
    pub fn reason(&self) -> &'static str {
        match self {
            AuthError::Missing => "no credential",
            AuthError::TooLong => "token too long",
            AuthError::Malformed => "neither a token nor an API key",
            AuthError::Header => "unreadable Authorization header",
            AuthError::LivesTooLong { .. } => "token lives too long",
            AuthError::Algorithm => "token algorithm not configured",
            AuthError::UnknownKeyId => "token names an unknown key",
            AuthError::Signature => "wrong token signature",
            AuthError::NoExpiry => "token without exp",
            AuthError::Expired => "token expired",
            AuthError::NotYet => "token not valid yet",
            AuthError::Claim(_) => "invalid token claim",
            AuthError::UnknownVerb(_) => "unknown verb in token",
            AuthError::UnknownKey => "API key unknown or revoked",
            AuthError::UserName => "invalid user name",
            AuthError::Blocked(_) => "user banned",
            AuthError::Unavailable => "credentials cannot be checked now",
        }
    }
}
