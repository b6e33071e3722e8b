//! `/client.js`: the JavaScript client, part of the program, so that a page needs no other place to load it from.
//! Must hold: what is served is the file in `clients/js`, byte for byte, and a browser that has it is not sent it again.

use super::body::{Answer, Body, whole};
use super::page::has_it;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::sync::LazyLock;

const SCRIPT: &[u8] = include_bytes!("../../../../clients/js/tavern.js");

/// It names these bytes, so another release has another one.
static TAG: LazyLock<HeaderValue> = LazyLock::new(|| {
    let digest = digest(&SHA256, SCRIPT);
    let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..12]));
    HeaderValue::from_str(&tag).expect("base64 is plain text")
});

pub fn script(headers: &HeaderMap) -> Answer {
    let mut answer = if has_it(headers, &TAG) {
        let mut unchanged = Response::new(Body::Whole(None));
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        whole(StatusCode::OK, "text/javascript; charset=utf-8", Bytes::from_static(SCRIPT))
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, TAG.clone());
    // Short: after an update of the server pages have its client within minutes.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::IF_NONE_MATCH;

    #[test]
    fn whoever_has_it_is_not_sent_it_again() {
        let mut headers = HeaderMap::new();
        assert_eq!(script(&headers).status(), StatusCode::OK);
        headers.insert(IF_NONE_MATCH, HeaderValue::from_static("\"another\""));
        let answer = script(&headers);
        assert_eq!(answer.status(), StatusCode::OK);
        let tag = answer.headers()[ETAG].to_str().unwrap().to_owned();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&format!("\"another\", W/{tag}")).unwrap());
        assert_eq!(script(&headers).status(), StatusCode::NOT_MODIFIED);
    }
}
