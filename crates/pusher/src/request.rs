//! A request of an app server: its signature over method, path and parameters, its time, and the digest of its body.
//! Must hold: a request that is not signed by one of the app's secrets is not carried out; an old one neither.

use crate::app::PusherApp;
use crate::signature::md5_hex;
use subtle::ConstantTimeEq;

/// Seconds between the time of a request and that of the server.
pub const TIMESTAMP_WINDOW_S: u64 = 600;

pub struct SignedRequest<'a> {
    pub method: &'a str,
    /// As it is in the URL.
    pub path: &'a str,
    /// The same, decoded: some libraries sign this.
    pub decoded_path: &'a str,
    /// Decoded.
    pub parameters: &'a [(String, String)],
    pub body: &'a [u8],
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    Missing(&'static str),
    UnknownKey,
    Version,
    Timestamp,
    BodyDigest,
    Signature,
}

impl RequestFault {
    pub fn message(self) -> String {
        match self {
            RequestFault::Missing(name) => format!("the parameter `{name}` is missing"),
            RequestFault::UnknownKey => "auth_key is not the key of this app".to_owned(),
            RequestFault::Version => "auth_version must be 1.0".to_owned(),
            RequestFault::Timestamp => {
                format!("auth_timestamp is not within {TIMESTAMP_WINDOW_S} s of the server's time")
            }
            RequestFault::BodyDigest => "body_md5 is not the MD5 of the body".to_owned(),
            RequestFault::Signature => {
                "auth_signature is not valid: check the secret, and that the path is signed as it is sent"
                    .to_owned()
            }
        }
    }
}

impl SignedRequest<'_> {
    fn parameter(&self, name: &'static str) -> Result<&str, RequestFault> {
        let found = self.parameters.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).ok_or(RequestFault::Missing(name))
    }

    pub fn check(&self, app: &PusherApp, now_s: u64) -> Result<(), RequestFault> {
        if self.parameter("auth_key")? != &*app.key {
            return Err(RequestFault::UnknownKey);
        }
        let signature = self.parameter("auth_signature")?;
        let in_time = |at: u64| at.abs_diff(now_s) <= TIMESTAMP_WINDOW_S;
        if !self.parameter("auth_timestamp")?.parse().is_ok_and(in_time) {
            return Err(RequestFault::Timestamp);
        }
        if self.parameter("auth_version")? != "1.0" {
            return Err(RequestFault::Version);
        }
        // One library sends the digest of an empty body with GET too.
        match self.parameter("body_md5") {
            Ok(digest) if !bool::from(digest.as_bytes().ct_eq(md5_hex(self.body).as_bytes())) => {
                return Err(RequestFault::BodyDigest);
            }
            Err(missing) if !self.body.is_empty() => return Err(missing),
            _ => {}
        }
        let signed = |path: &str| app.matches(signature, &self.signed_text(path));
        match signed(self.path) || (self.path != self.decoded_path && signed(self.decoded_path)) {
            true => Ok(()),
            false => Err(RequestFault::Signature),
        }
    }

    fn signed_text(&self, path: &str) -> String {
        let named = self.parameters.iter().filter(|(name, _)| name != "auth_signature");
        let mut pairs: Vec<String> =
            named.map(|(name, value)| format!("{}={value}", name.to_lowercase())).collect();
        pairs.sort();
        format!("{}\n{path}\n{}", self.method, pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    const BODY: &str = r#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
    const AT: u64 = 1_353_088_179;
    const SIGNATURE: &str = "da454824c97ba181a32ccc17a72625ba02771f50b50e1e7430e47a1f3f457e6c";

    /// The example of the protocol's documentation, changed in one place.
    fn check(
        change: impl FnOnce(&mut Vec<(String, String)>),
        body: &str,
        now_s: u64,
        expected: Result<(), RequestFault>,
    ) {
        let mut parameters: Vec<(String, String)> = [
            ("auth_key", "278d425bdf160c739803"),
            ("auth_timestamp", "1353088179"),
            ("auth_version", "1.0"),
            ("body_md5", "ec365a775a4cd0599faeb73354201b6f"),
            ("auth_signature", SIGNATURE),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        change(&mut parameters);
        let path = "/apps/3/events";
        let request = SignedRequest {
            method: "POST",
            path,
            decoded_path: path,
            parameters: &parameters,
            body: body.as_bytes(),
        };
        assert_eq!(request.check(&sample(), now_s), expected);
    }

    #[test]
    fn the_example_of_the_documentation_is_accepted() {
        check(|_| {}, BODY, AT, Ok(()));
        check(|parameters| parameters.reverse(), BODY, AT + 600, Ok(()));
    }

    #[test]
    fn everything_else_is_refused() {
        check(|_| {}, BODY, AT + 601, Err(RequestFault::Timestamp));
        check(|_| {}, BODY, AT - 601, Err(RequestFault::Timestamp));
        check(|_| {}, "{}", AT, Err(RequestFault::BodyDigest));
        check(|all| all[0].1.push('x'), BODY, AT, Err(RequestFault::UnknownKey));
        check(|all| all[1].1.push('x'), BODY, AT, Err(RequestFault::Timestamp));
        check(|all| all[2].1 = "2.0".into(), BODY, AT, Err(RequestFault::Version));
        check(|all| all[4].1.replace_range(..1, "0"), BODY, AT, Err(RequestFault::Signature));
        check(|all| all.push(("info".into(), "user_count".into())), BODY, AT, Err(RequestFault::Signature));
        for (at, name) in ["auth_key", "auth_timestamp", "auth_version", "body_md5", "auth_signature"]
            .into_iter()
            .enumerate()
        {
            check(|all| drop(all.remove(at)), BODY, AT, Err(RequestFault::Missing(name)));
        }
    }
}
