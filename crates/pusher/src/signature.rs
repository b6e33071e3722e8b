//! Signatures: HMAC-SHA256 as hexadecimal digits. Must hold: comparing takes the same time for every wrong signature.

use md5::{Digest, Md5};
use ring::hmac;
use subtle::ConstantTimeEq;

/// What a socket has to sign.
pub struct SignatureCheck;

impl SignatureCheck {
    /// The text that is signed for a subscription.
    pub fn subscription(socket_id: &str, channel: &str, channel_data: Option<&str>) -> String {
        match channel_data {
            Some(data) => format!("{socket_id}:{channel}:{data}"),
            None => format!("{socket_id}:{channel}"),
        }
    }

    /// The text that is signed for `pusher:signin`.
    pub fn sign_in(socket_id: &str, user_data: &str) -> String {
        format!("{socket_id}::user::{user_data}")
    }
}

pub(crate) fn sign(secret: &str, text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hex(hmac::sign(&key, text.as_bytes()).as_ref())
}

pub(crate) fn is_valid(secret: &str, text: &str, signature: &str) -> bool {
    sign(secret, text).as_bytes().ct_eq(signature.as_bytes()).into()
}

/// The MD5 of a body as hexadecimal digits: requests are signed with it.
pub fn md5_hex(body: &[u8]) -> String {
    hex(&Md5::digest(body))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let pairs = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    pairs.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "7ad3773142a6692b25b8";

    /// The examples of the protocol's documentation.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let private = SignatureCheck::subscription("1234.1234", "private-foobar", None);
        let signature = "58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4";
        assert_eq!(sign(SECRET, &private), signature);
        assert!(is_valid(SECRET, &private, signature));
        assert!(!is_valid(SECRET, &private, &signature.to_uppercase()) && !is_valid(SECRET, &private, ""));
        let data = r#"{"user_id":10,"user_info":{"name":"Mr. Channels"}}"#;
        let presence = SignatureCheck::subscription("1234.1234", "presence-foobar", Some(data));
        assert_eq!(
            sign(SECRET, &presence),
            "31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80"
        );
        let user = SignatureCheck::sign_in("1234.1234", r#"{"id":"12345"}"#);
        assert_eq!(user, r#"1234.1234::user::{"id":"12345"}"#);
    }

    #[test]
    fn md5_is_that_of_the_documentation() {
        let body = r#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
        assert_eq!(md5_hex(body.as_bytes()), "ec365a775a4cd0599faeb73354201b6f");
    }
}
