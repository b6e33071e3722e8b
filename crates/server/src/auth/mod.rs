//! Authentication: turns tokens, API keys and dev-mode names into an `Identity`. Authorization is elsewhere. Must hold: no credential is ever part of an error, a log line or a Debug text.

mod credential;
mod jwks;
mod key;
mod signature;
mod token;

pub use credential::{Authenticator, Credential, HelloTokens, all_rights};
pub use jwks::{JwksCache, key_set_size};
pub use key::{ADMIN, FRESH_MS, KeyError, KeySource, Keyring, NewKey, mint, parse_scopes};
pub use token::{LoginTime, TOKEN_BYTES, TokenClaims, TokenKeyError, Verifier, sign};

/// Why a credential was not accepted. All of them are `unauthenticated` for the client except `Unavailable`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("a token or an API key is needed")]
    Missing,
    #[error("the token is longer than 8192 bytes")]
    TooLong,
    #[error("this is neither a token nor an API key")]
    Malformed,
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
    #[error("the token is not valid yet (nbf)")]
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
    /// The store did not answer; the client should retry.
    #[error("cannot check credentials now; retry")]
    Unavailable,
}

impl AuthError {
    /// The reason in the log, without text of the client.
    pub fn reason(&self) -> &'static str {
        match self {
            AuthError::Missing => "no credential",
            AuthError::TooLong => "token too long",
            AuthError::Malformed => "neither a token nor an API key",
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
            AuthError::Unavailable => "credentials cannot be checked now",
        }
    }
}
