//! Files that are part of the program, with their security headers.
//! Must hold: a page runs no script but ours, writes no markup from text and reaches no server but this one; a file that
//! the browser has is not sent again.

use super::body::{HttpResponse, ResponseBody, whole};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{Response, StatusCode};

/// Allows only our own scripts, styles and images; with `trusted-types` a browser refuses to turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A file, or 304 if the browser has it.
pub fn give(kind: &'static str, body: Bytes, asked: &HeaderMap) -> HttpResponse {
    // Revalidated each time: after an update no page mixes old and new files.
    let mut answer = tagged(kind, body, asked, "no-cache");
    guard(answer.headers_mut());
    answer
}

/// The same without the headers of pages; `keep` is the Cache-Control value.
pub fn tagged(kind: &'static str, body: Bytes, asked: &HeaderMap, keep: &'static str) -> HttpResponse {
    let tag = tag_of(&body);
    let mut answer = if has_it(asked, &tag) {
        let mut unchanged = Response::new(ResponseBody::Whole(None));
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        whole(StatusCode::OK, kind, body)
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, tag);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    answer
}

/// The security headers of a page.
pub fn guard(headers: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The content type of a file name.
pub fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        _ => "text/plain; charset=utf-8",
    }
}

/// The ETag: a hash of the bytes.
fn tag_of(body: &[u8]) -> HeaderValue {
    let digest = digest(&SHA256, body);
    let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..12]));
    HeaderValue::from_str(&tag).expect("base64 is plain text")
}

fn has_it(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = known.flat_map(|value| value.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    tags.any(|known| known == "*" || known.as_bytes() == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_file_is_answered_with_304() {
        let mut headers = HeaderMap::new();
        let body = || Bytes::from_static(b"body { color: red }");
        let answer = give("text/css", body(), &headers);
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(
            answer.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
        );
        headers.insert(IF_NONE_MATCH, answer.headers()[ETAG].clone());
        assert_eq!(give("text/css", body(), &headers).status(), StatusCode::NOT_MODIFIED);
        let other = give("text/css", Bytes::from_static(b"other"), &headers);
        assert_eq!(other.status(), StatusCode::OK);
    }
}
