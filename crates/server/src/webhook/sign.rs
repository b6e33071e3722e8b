//! Signatures as the Standard Webhooks specification has them: `v1,` and the base64 of HMAC-SHA256 over
//! `id.timestamp.body`. Must hold: a secret is printed by nothing but `expose`; a signature is compared in constant time;
//! while a secret is changed, both sign.

use crate::random::fill_random;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

pub const ID: HeaderName = HeaderName::from_static("webhook-id");
pub const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// How far the clocks of sender and receiver may differ; an older message may be a replay.
pub const TOLERANCE_S: u64 = 300;

const PREFIX: &str = "whsec_";
const VERSION: &str = "v1,";
/// 192 bits, and its base64 needs no padding.
const FRESH_BYTES: usize = 24;
const BYTES_MIN: usize = 24;
const BYTES_MAX: usize = 64;
const TAG_BYTES: usize = 32;
const TAG_CHARS: usize = TAG_BYTES.div_ceil(3) * 4;
/// Signatures that are looked at in one header.
const SIGNATURES_MAX: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("a webhook secret begins with whsec_")]
    Prefix,
    #[error("what follows whsec_ must be base64 with its padding")]
    Base64,
    #[error("a webhook secret holds 24 to 64 bytes, this one {0}")]
    Length(usize),
}

/// A secret that sender and receiver share.
#[derive(Clone)]
pub struct SigningSecret {
    bytes: Box<[u8]>,
    key: hmac::Key,
}

impl SigningSecret {
    pub fn generate() -> SigningSecret {
        let mut bytes = [0; FRESH_BYTES];
        fill_random(&mut bytes);
        SigningSecret::from_bytes(&bytes)
    }

    /// Reads `whsec_…`. What is wrong is told without repeating it.
    pub fn parse(text: &str) -> Result<SigningSecret, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        if encoded.len() > BYTES_MAX.div_ceil(3) * 4 {
            return Err(SecretError::Length(encoded.len() / 4 * 3));
        }
        let bytes = STANDARD.decode(encoded).map_err(|_| SecretError::Base64)?;
        if !(BYTES_MIN..=BYTES_MAX).contains(&bytes.len()) {
            return Err(SecretError::Length(bytes.len()));
        }
        Ok(SigningSecret::from_bytes(&bytes))
    }

    fn from_bytes(bytes: &[u8]) -> SigningSecret {
        SigningSecret { bytes: bytes.into(), key: hmac::Key::new(hmac::HMAC_SHA256, bytes) }
    }

    /// The secret itself, as `whsec_…`. Every use of this is a place to look at.
    pub fn expose(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.bytes))
    }

    fn tag(&self, id: &[u8], timestamp: &[u8], body: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in [id, b".", timestamp, b".", body] {
            context.update(part);
        }
        context.sign()
    }
}

impl PartialEq for SigningSecret {
    fn eq(&self, other: &SigningSecret) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.bytes, &other.bytes).is_ok()
    }
}

impl Eq for SigningSecret {}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(hidden)")
    }
}

/// The secret that signs now, and the one before it while it is being changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningKeys {
    pub current: SigningSecret,
    pub former: Option<SigningSecret>,
}

impl From<SigningSecret> for SigningKeys {
    fn from(current: SigningSecret) -> SigningKeys {
        SigningKeys { current, former: None }
    }
}

/// The three headers of a message, as a post wants them. `id` is ours and fit for a header.
pub fn sign(keys: &SigningKeys, id: &str, timestamp_s: u64, body: &[u8]) -> [(HeaderName, HeaderValue); 3] {
    let mut digits = itoa::Buffer::new();
    let timestamp = digits.format(timestamp_s);
    let mut signature = String::with_capacity(2 * (VERSION.len() + TAG_CHARS + 1));
    for secret in std::iter::once(&keys.current).chain(&keys.former) {
        if !signature.is_empty() {
            signature.push(' ');
        }
        signature.push_str(VERSION);
        STANDARD.encode_string(secret.tag(id.as_bytes(), timestamp.as_bytes(), body), &mut signature);
    }
    let id = HeaderValue::from_str(id).expect("our ids are fit for a header");
    let timestamp = HeaderValue::from_str(timestamp).expect("digits are fit for a header");
    let signature = HeaderValue::from_maybe_shared(bytes::Bytes::from(signature));
    [(ID, id), (TIMESTAMP, timestamp), (SIGNATURE, signature.expect("base64 is fit for a header"))]
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("the header {0} is missing or not text")]
    Missing(HeaderName),
    #[error("webhook-timestamp is not a number of seconds")]
    Timestamp,
    #[error("the message is {0} s old; at most 300 s are accepted")]
    Old(u64),
    #[error("the message is {0} s ahead of this clock; at most 300 s are accepted")]
    Early(u64),
    #[error("no signature matches the secret")]
    Signature,
}

/// What a receiver does.
pub fn verify(
    secret: &SigningSecret,
    headers: &HeaderMap,
    body: &[u8],
    now_s: u64,
) -> Result<(), VerifyError> {
    let field = |name: HeaderName| {
        let value = headers.get(&name).and_then(|value| value.to_str().ok());
        value.ok_or(VerifyError::Missing(name))
    };
    let (id, timestamp, signatures) = (field(ID)?, field(TIMESTAMP)?, field(SIGNATURE)?);
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent_s: u64 = timestamp.parse().ok().filter(|_| digits).ok_or(VerifyError::Timestamp)?;
    let expected = secret.tag(id.as_bytes(), timestamp.as_bytes(), body);
    let fits = |signature: &str| {
        let tag = signature.strip_prefix(VERSION).and_then(|encoded| STANDARD.decode(encoded).ok());
        let same = |tag: Vec<u8>| aws_lc_rs::constant_time::verify_slices_are_equal(&tag, expected.as_ref());
        tag.is_some_and(|tag| same(tag).is_ok())
    };
    if !signatures.split(' ').take(SIGNATURES_MAX).any(fits) {
        return Err(VerifyError::Signature);
    }
    // A sender without the secret learns nothing about our clock.
    match (now_s.saturating_sub(sent_s), sent_s.saturating_sub(now_s)) {
        (old, _) if old > TOLERANCE_S => Err(VerifyError::Old(old)),
        (_, early) if early > TOLERANCE_S => Err(VerifyError::Early(early)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-15T10:08:20Z.
    const NOW: u64 = 1_794_737_300;

    fn message(keys: &SigningKeys, id: &str, at: u64, body: &[u8]) -> HeaderMap {
        sign(keys, id, at, body).into_iter().collect()
    }

    #[test]
    fn the_vector_of_the_specification_fits() {
        let secret = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let body = br#"{"test": 2432232314}"#;
        let signed = message(&secret.into(), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed[SIGNATURE], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(signed[TIMESTAMP], "1614265330");
        assert_eq!(signed[ID], "msg_p5jXN8AQM9LWM0D4loKWxJek");
    }

    #[test]
    fn the_library_of_the_specification_believes_both_secrets() {
        let (current, former) = (SigningSecret::generate(), SigningSecret::generate());
        let keys = SigningKeys { current: current.clone(), former: Some(former.clone()) };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let body = r#"{"events":["ü"]}"#.as_bytes();
        let signed = message(&keys, "b_1", now.as_secs(), body);
        for secret in [&current, &former] {
            let library = standardwebhooks::Webhook::new(&secret.expose()).expect("a secret");
            library.verify(body, &signed).expect("verified");
            assert!(library.verify(b"{}", &signed).is_err());
            assert_eq!(verify(secret, &signed, body, now.as_secs()), Ok(()));
        }
        let library = standardwebhooks::Webhook::new(&SigningSecret::generate().expose()).expect("a secret");
        assert!(library.verify(body, &signed).is_err());
    }

    #[test]
    fn what_was_changed_or_is_old_is_not_believed() {
        let secret = SigningSecret::generate();
        let keys = SigningKeys::from(secret.clone());
        let signed = message(&keys, "b_1", NOW, b"body");
        let check = |headers: &HeaderMap, body: &[u8], now| verify(&secret, headers, body, now);
        assert_eq!(check(&signed, b"body", NOW), Ok(()));
        assert_eq!(check(&signed, b"body", NOW + 300), Ok(()));
        assert_eq!(check(&signed, b"body", NOW - 300), Ok(()));
        assert_eq!(check(&signed, b"body", NOW + 301), Err(VerifyError::Old(301)));
        assert_eq!(check(&signed, b"body", NOW - 301), Err(VerifyError::Early(301)));
        assert_eq!(check(&signed, b"Body", NOW), Err(VerifyError::Signature));
        assert_eq!(verify(&SigningSecret::generate(), &signed, b"body", NOW), Err(VerifyError::Signature));
        for (name, text, expected) in [
            (ID, "b_2", VerifyError::Signature),
            (TIMESTAMP, "1794737301", VerifyError::Signature),
            (TIMESTAMP, "+1794737300", VerifyError::Timestamp),
            (TIMESTAMP, "soon", VerifyError::Timestamp),
            (TIMESTAMP, "", VerifyError::Timestamp),
            (SIGNATURE, "", VerifyError::Signature),
            (SIGNATURE, "v1,", VerifyError::Signature),
            (SIGNATURE, "v2,AAAA v1,%%%", VerifyError::Signature),
        ] {
            let mut changed = signed.clone();
            changed.insert(&name, HeaderValue::from_static(text));
            assert_eq!(check(&changed, b"body", NOW), Err(expected), "{name} {text}");
            changed.remove(&name);
            assert_eq!(check(&changed, b"body", NOW), Err(VerifyError::Missing(name)));
        }
        let mut several = signed.clone();
        let text = format!("v1a,xx v1,AAAA {}", signed[SIGNATURE].to_str().expect("text"));
        several.insert(SIGNATURE, HeaderValue::from_str(&text).expect("a value"));
        assert_eq!(check(&several, b"body", NOW), Ok(()));
    }

    #[test]
    fn secrets_are_read_and_hidden() {
        let secret = SigningSecret::generate();
        assert_eq!(SigningSecret::parse(&secret.expose()), Ok(secret.clone()));
        assert_ne!(SigningSecret::generate(), secret);
        let printed = format!("{:?}", SigningKeys::from(secret.clone()));
        assert!(!printed.contains(&secret.expose()[PREFIX.len()..]), "{printed}");
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for (text, expected) in [
            (of(24), None),
            (of(25), None),
            (of(64), None),
            (of(23), Some(SecretError::Length(23))),
            (of(65), Some(SecretError::Length(65))),
            (of(10_000), Some(SecretError::Length(10_002))),
            ("whsec_".into(), Some(SecretError::Length(0))),
            (of(24)[6..].into(), Some(SecretError::Prefix)),
            ("".into(), Some(SecretError::Prefix)),
            ("whsec_not base64 at all, is it really?".into(), Some(SecretError::Base64)),
            (of(25).trim_end_matches('=').into(), Some(SecretError::Base64)),
        ] {
            assert_eq!(SigningSecret::parse(&text).err(), expected, "{text}");
        }
    }
}
