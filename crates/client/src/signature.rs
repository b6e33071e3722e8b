//! What a backend signs and verifies: tokens for its users, and webhooks that it receives. Needs no connection.

use crate::Error;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A webhook that is older or newer than this is refused: it may have been recorded and sent again.
const WEBHOOK_TOLERANCE: Duration = Duration::from_secs(300);

/// What a token says about its user. See [`sign_token`].
#[derive(Clone, Debug)]
pub struct UserToken {
    /// The name that the user has on the server.
    pub user: String,
    /// How long the token is valid.
    pub ttl: Duration,
    /// The name that others see.
    pub name: Option<String>,
    /// What the user may do, by pattern of channels: `{"game#*": ["subscribe", "join"]}`. None: what every client may do.
    pub allow: Option<Map<String, Value>>,
}

impl UserToken {
    /// A token of one hour, with the rights that every client has.
    pub fn new(user: impl Into<String>) -> UserToken {
        UserToken { user: user.into(), ttl: Duration::from_secs(3600), name: None, allow: None }
    }
}

/// A token for a user, signed with the secret of the server (HS256).
///
/// ```
/// use tavern_client::{UserToken, sign_token};
///
/// let token = sign_token("a secret of at least 32 characters", &UserToken::new("ann"));
/// assert_eq!(token.split('.').count(), 3);
/// ```
pub fn sign_token(secret: &str, claims: &UserToken) -> String {
    let mut body = json!({"sub": claims.user, "exp": (now() + claims.ttl).as_secs()});
    if let Some(name) = &claims.name {
        body["name"] = json!(name);
    }
    if let Some(allow) = &claims.allow {
        body["allow"] = Value::Object(allow.clone());
    }
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(json!({"alg": "HS256", "typ": "JWT"})), part(body));
    let signature = hmac::sign(&key(secret.as_bytes()), text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Verifies that a webhook is signed with this secret (`whsec_…`) and was sent within the last five minutes. `header` returns the
/// value of a header by its lower-case name; `body` is the body as it was received.
///
/// ```
/// use tavern_client::verify_webhook;
///
/// let refused = verify_webhook("whsec_c2VjcmV0", |_| None, b"{}").unwrap_err();
/// assert_eq!(refused.code(), "bad_signature");
/// ```
pub fn verify_webhook<'a>(
    secret: &str,
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
) -> Result<(), Error> {
    let bad = |why| Err(Error::BadSignature(why));
    let secret = STANDARD.decode(secret.strip_prefix("whsec_").unwrap_or(secret));
    let Ok(secret) = secret else { return bad("the secret must be `whsec_` and base64") };
    let (Some(id), Some(sent), Some(signatures)) =
        (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"))
    else {
        return bad("a webhook has the headers webhook-id, webhook-timestamp and webhook-signature");
    };
    let Ok(sent_s) = sent.parse::<u64>() else { return bad("webhook-timestamp is not a number of seconds") };
    if now().abs_diff(Duration::from_secs(sent_s)) > WEBHOOK_TOLERANCE {
        return bad("the webhook is too old, or its clock is ahead");
    }
    let signed = [format!("{id}.{sent}.").as_bytes(), body].concat();
    let key = key(&secret);
    let is_valid = |signature: &str| {
        let given = signature.strip_prefix("v1,").and_then(|given| STANDARD.decode(given).ok());
        given.is_some_and(|given| hmac::verify(&key, &signed, &given).is_ok())
    };
    match signatures.split_ascii_whitespace().any(is_valid) {
        true => Ok(()),
        false => bad("no signature matches the secret"),
    }
}

fn key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_dGhlIHNlY3JldCBvZiBhIHdlYmhvb2s=";
    const BODY: &[u8] = br#"{"events":[]}"#;

    fn verify(sent_s: u64, signature: &str, body: &[u8]) -> Result<(), Error> {
        let sent = sent_s.to_string();
        let header = |name: &str| match name {
            "webhook-id" => Some("batch-1"),
            "webhook-timestamp" => Some(&*sent),
            "webhook-signature" => Some(signature),
            _ => None,
        };
        verify_webhook(SECRET, header, body)
    }

    fn signature(sent_s: u64) -> String {
        let secret = STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap();
        let text = [format!("batch-1.{sent_s}.").as_bytes(), BODY].concat();
        format!("v1,{}", STANDARD.encode(hmac::sign(&key(&secret), &text)))
    }

    #[test]
    fn webhook_with_the_signature_of_the_secret_is_valid() {
        let sent = now().as_secs();
        assert!(verify(sent, &signature(sent), BODY).is_ok());
        let rotated = format!("v1,AAAA {} v2,x", signature(sent));
        assert!(verify(sent, &rotated, BODY).is_ok(), "one of several signatures is enough");
    }

    #[test]
    fn changed_or_old_webhook_is_refused() {
        let sent = now().as_secs();
        assert!(verify(sent, &signature(sent), b"{}").is_err(), "another body");
        assert!(verify(sent + 1, &signature(sent), BODY).is_err(), "another time");
        assert!(verify(sent - 301, &signature(sent - 301), BODY).is_err(), "too old");
        assert!(verify(sent + 400, &signature(sent + 400), BODY).is_err(), "from the future");
        assert!(verify(sent, "v1,", BODY).is_err());
    }

    #[test]
    fn token_has_the_claims_that_it_was_given() {
        let allow = json!({"game#*": ["join"]}).as_object().cloned();
        let claims = UserToken { name: Some("Ann".into()), allow, ..UserToken::new("ann") };
        let token = sign_token("secret", &claims);
        let parts: Vec<&str> = token.split('.').collect();
        let read =
            |part: &str| serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(read(parts[0])["alg"], "HS256");
        let body = read(parts[1]);
        assert_eq!((&body["sub"], &body["name"]), (&json!("ann"), &json!("Ann")));
        assert_eq!(body["allow"], json!({"game#*": ["join"]}));
        let left = body["exp"].as_u64().unwrap() - now().as_secs();
        assert!((3_598..=3_600).contains(&left), "{left}");
        let signed = token.rsplit_once('.').unwrap().0;
        let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        assert!(hmac::verify(&key(b"secret"), signed.as_bytes(), &signature).is_ok());
    }
}
