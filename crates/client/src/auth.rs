//! The credential of a client: a name, a token, an API key, or a function that returns tokens.

use crate::Error;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) type TokenFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// The credential of a client.
#[derive(Clone)]
pub enum Auth {
    /// A signed token of a user.
    Token(String),
    /// A bare name; dev mode only.
    User(String),
    /// An API key of a service.
    Key(String),
    /// Called for the first token, before a token expires, and when the server reports that it has expired. Made by
    /// [`Auth::source`].
    Source(Arc<dyn Fn() -> TokenFuture + Send + Sync>),
}

impl Auth {
    /// A function that returns a token whenever one is needed. After an error it is called again later.
    pub fn source<F, G>(source: F) -> Auth
    where
        F: Fn() -> G + Send + Sync + 'static,
        G: Future<Output = Result<String, String>> + Send + 'static,
    {
        Auth::Source(Arc::new(move || Box::pin(source())))
    }
}

/// Checks that a token or key can be sent in a header.
pub(crate) fn check(auth: Option<&Auth>) -> Result<(), Error> {
    match auth {
        Some(Auth::Token(text) | Auth::Key(text))
            if !text.bytes().all(|byte| (0x21..0x7f).contains(&byte)) =>
        {
            Err(Error::Invalid(
                "the token or key contains a character that is not allowed in a header".to_owned(),
            ))
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for Auth {
    /// Without the secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Auth::Token(_) => out.write_str("Token"),
            Auth::Key(_) => out.write_str("Key"),
            Auth::User(user) => write!(out, "User({user:?})"),
            Auth::Source(_) => out.write_str("Source"),
        }
    }
}

/// The time until a token expires, zero when it has. None: it does not expire.
pub(crate) fn remaining(token: &str) -> Option<Duration> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let ends = serde_json::from_slice::<Value>(&claims).ok()?.get("exp")?.as_f64()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    // Clamped: a token may claim any lifetime.
    Some(Duration::from_secs_f64((ends - now).clamp(0.0, 1e9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_read_from_the_token() {
        let minted = |claims: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(remaining(&minted(r#"{"exp":1}"#)), Some(Duration::ZERO));
        assert!(remaining(&minted(r#"{"exp":1e300}"#)).is_some_and(|left| left.as_secs() == 1_000_000_000));
        for odd in ["", "a.b.c", "tvk_key", &minted("[]"), &minted(r#"{"exp":"x"}"#)] {
            assert_eq!(remaining(odd), None, "{odd}");
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        assert_eq!(format!("{:?}", Auth::Token("secret".into())), "Token");
        assert_eq!(format!("{:?}", Auth::Key("secret".into())), "Key");
    }

    #[test]
    fn credentials_cannot_break_out_of_a_header() {
        for text in ["a\r\nHost: b", "a b", "ü"] {
            assert!(
                check(Some(&Auth::Key(text.into()))).is_err()
                    && check(Some(&Auth::Token(text.into()))).is_err()
            );
        }
        assert!(check(Some(&Auth::Key("tvk_a_b".into()))).is_ok() && check(None).is_ok());
    }
}
