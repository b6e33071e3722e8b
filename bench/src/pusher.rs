//! The app that Pusher clients of a load belong to, and its signed requests. Opens nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use md5::{Digest, Md5};
use ring::hmac;

pub const APP: &str = "1";
pub const KEY: &str = "bench";
pub const SECRET: &str = "secret-of-the-bench";
/// The name of the events of a load.
pub const EVENT: &str = "bench";

/// The app in the configuration of Tavern.
pub fn settings() -> String {
    let app = format!("[[pusher.apps]]\nid = \"{APP}\"\nkey = \"{KEY}\"\nsecret = \"{SECRET}\"\n");
    // A frame to every listener for each that arrives is no part of a fan-out.
    app + "subscription_count = false\n"
}

/// The app in the environment of Sockudo, which has no other limits then.
pub fn sockudo_environment(port: u16) -> Vec<(String, String)> {
    let app =
        [("ID", APP), ("KEY", KEY), ("SECRET", SECRET), ("ENABLED", "true"), ("MAX_CONNECTIONS", "100000")];
    let app = app.map(|(name, value)| (format!("SOCKUDO_DEFAULT_APP_{name}"), value.to_owned()));
    let port = port.to_string();
    let server = [
        ("HOST", "127.0.0.1"),
        ("PORT", &port),
        ("METRICS_ENABLED", "false"),
        ("RATE_LIMITER_ENABLED", "false"),
        // Of one server; a build with Redis would look for one.
        ("ADAPTER_DRIVER", "local"),
        ("CACHE_DRIVER", "memory"),
        ("QUEUE_DRIVER", "memory"),
    ];
    app.into_iter().chain(server.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// A request that publishes this body, signed now.
pub fn request(authority: &str, body: &[u8]) -> Vec<u8> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = format!("/apps/{APP}/events");
    let query =
        format!("auth_key={KEY}&auth_timestamp={at}&auth_version=1.0&body_md5={}", hex(&Md5::digest(body)));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = hex(hmac::sign(&key, format!("POST\n{path}\n{query}").as_bytes()).as_ref());
    let head = format!(
        "POST {path}?{query}&auth_signature={signature} HTTP/1.1\r\nHost: {authority}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_over_its_body() {
        let text = String::from_utf8(request("h:1", b"{}")).unwrap();
        assert!(text.starts_with("POST /apps/1/events?auth_key=bench&auth_timestamp="));
        assert!(text.contains("body_md5=99914b932bd37a50b983c5e7c90ae93b&auth_signature="));
        assert!(text.ends_with("Content-Length: 2\r\n\r\n{}"));
    }
}
