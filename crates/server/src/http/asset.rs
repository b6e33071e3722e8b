//! Files that are part of the program, with their compressed forms and security headers.
//! Must hold: a page runs no script but ours, writes no markup from text and reaches no server but this one; a file that
//! the browser has is not sent again; nothing is compressed at run time.

use super::body::{HttpResponse, ResponseBody, whole};
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, VARY,
};
use http::{Response, StatusCode};

/// A file as the build script embeds it. A compressed form is there if it is smaller.
pub struct EmbeddedFile {
    pub name: &'static str,
    /// A hash of the bytes.
    tag: &'static str,
    pub bytes: &'static [u8],
    gzip: Option<&'static [u8]>,
    brotli: Option<&'static [u8]>,
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));

/// Allows only our own scripts, styles and images; with `trusted-types` a browser refuses to turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

impl EmbeddedFile {
    /// The best form that the client accepts, its encoding, and the suffix of its tag.
    fn form(&self, asked: &HeaderMap) -> (&'static [u8], Option<&'static str>, &'static str) {
        if let Some(bytes) = self.brotli.filter(|_| accepts(asked, "br")) {
            return (bytes, Some("br"), "-br");
        }
        if let Some(bytes) = self.gzip.filter(|_| accepts(asked, "gzip")) {
            return (bytes, Some("gzip"), "-gz");
        }
        (self.bytes, None, "")
    }
}

/// Whether a client accepts an encoding: it is listed, and not with a weight of zero.
fn accepts(asked: &HeaderMap, encoding: &str) -> bool {
    let values = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut items = values.flat_map(|value| value.split(','));
    items.any(|item| {
        let (name, weight) = item.split_once(';').unwrap_or((item, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
        name.trim().eq_ignore_ascii_case(encoding) && weight > 0.0
    })
}

/// A file of a page, or 304 if the browser has it.
pub fn give(kind: &'static str, file: &EmbeddedFile, asked: &HeaderMap) -> HttpResponse {
    // Revalidated each time: after an update no page mixes old and new files.
    let mut answer = tagged(kind, file, asked, "no-cache");
    guard(answer.headers_mut());
    answer
}

/// The same without the headers of pages; `keep` is the Cache-Control value.
pub fn tagged(
    kind: &'static str,
    file: &EmbeddedFile,
    asked: &HeaderMap,
    keep: &'static str,
) -> HttpResponse {
    let (bytes, encoding, suffix) = file.form(asked);
    let tag = format!("\"{}{suffix}\"", file.tag);
    let mut answer = if has_it(asked, &tag) {
        let mut unchanged = Response::new(ResponseBody::Whole(None));
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        whole(StatusCode::OK, kind, Bytes::from_static(bytes))
    };
    let headers = answer.headers_mut();
    if let (Some(encoding), true) = (encoding, headers.contains_key(http::header::CONTENT_TYPE)) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(ETAG, HeaderValue::from_str(&tag).expect("a tag is plain text"));
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

fn has_it(asked: &HeaderMap, tag: &str) -> bool {
    let known = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = known.flat_map(|value| value.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    tags.any(|known| known == "*" || known == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    static STYLE: EmbeddedFile = EmbeddedFile {
        name: "style.css",
        tag: "abc",
        bytes: b"body { color: red }",
        gzip: Some(b"small"),
        brotli: Some(b"less"),
    };

    fn asking(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn an_unchanged_file_is_answered_with_304() {
        let answer = give("text/css", &STYLE, &asking(&[]));
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[ETAG], "\"abc\"");
        assert!(
            answer.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
        );
        let status = |known| give("text/css", &STYLE, &asking(&[(IF_NONE_MATCH, known)])).status();
        assert_eq!(status("\"other\", W/\"abc\""), StatusCode::NOT_MODIFIED);
        assert_eq!(status("\"abc-gz\""), StatusCode::OK, "that is another form");
    }

    #[test]
    fn the_best_accepted_form_is_sent() {
        for (accepted, encoding, tag) in [
            ("gzip, deflate, br", Some("br"), "\"abc-br\""),
            ("gzip;q=1.0", Some("gzip"), "\"abc-gz\""),
            ("br;q=0, gzip", Some("gzip"), "\"abc-gz\""),
            ("identity", None, "\"abc\""),
        ] {
            let answer = give("text/css", &STYLE, &asking(&[(ACCEPT_ENCODING, accepted)]));
            let headers = answer.headers();
            assert_eq!(headers.get(CONTENT_ENCODING).map(|value| value.to_str().unwrap()), encoding);
            assert_eq!(headers[ETAG], tag, "{accepted}");
            assert_eq!(headers[VARY], "accept-encoding");
        }
    }
}
