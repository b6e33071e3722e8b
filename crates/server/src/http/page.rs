//! The dashboard: `/` and the files under `/assets/`, all of them part of the program and served as they are in `dashboard/`.
//! Must hold: a page can run no script but ours, write no markup from text, and reach no server but this one; a browser that
//! has a file is not sent it again.

use super::body::{Answer, Body, refusal, whole};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use http::{Response, StatusCode};
use std::sync::LazyLock;
use tavern_wire::error::{Code, Refusal};

struct File {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(File { name: $name, bytes: include_bytes!(concat!("../../../../dashboard/", $name)) }),*]
    };
}

/// Every file of the folder; a test looks whether one is missing.
static FILES: [File; FILE_COUNT] = files![
    "index.html",
    "app.js",
    "channels.js",
    "dom.js",
    "events.js",
    "format.js",
    "icon.svg",
    "keys.js",
    "nodes.js",
    "overview.js",
    "parties.js",
    "search.js",
    "server.js",
    "sparkline.js",
    "style.css",
    "tryit.js",
    "users.js",
];
const FILE_COUNT: usize = 17;

/// In the order of the files. A tag names the bytes, so another release has others.
static TAGS: LazyLock<Vec<HeaderValue>> = LazyLock::new(|| {
    let tag = |file: &File| {
        let digest = digest(&SHA256, file.bytes);
        let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..12]));
        HeaderValue::from_str(&tag).expect("base64 is plain text")
    };
    FILES.iter().map(tag).collect()
});

/// Scripts, styles and images are ours, and no text becomes markup: `trusted-types` makes a browser refuse it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub fn index(headers: &HeaderMap) -> Answer {
    serve("index.html", headers).unwrap_or_else(|| missing("/"))
}

pub fn asset(path: &str, headers: &HeaderMap) -> Answer {
    let name = path.strip_prefix("/assets/").filter(|name| *name != "index.html");
    name.and_then(|name| serve(name, headers)).unwrap_or_else(|| missing(path))
}

fn missing(path: &str) -> Answer {
    refusal(&Refusal::new(Code::NotFound, format!("there is nothing at {path}")))
}

fn serve(name: &str, headers: &HeaderMap) -> Option<Answer> {
    let at = FILES.iter().position(|file| file.name == name)?;
    let tag = &TAGS[at];
    let mut answer = if has_it(headers, tag) {
        let mut unchanged = Response::new(Body::Whole(None));
        *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
        unchanged
    } else {
        whole(StatusCode::OK, kind(name), Bytes::from_static(FILES[at].bytes))
    };
    let headers = answer.headers_mut();
    headers.insert(ETAG, tag.clone());
    // Asked for each time: after an update no page is made of old and new files.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Some(answer)
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

pub fn has_it(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut tags = known.flat_map(|value| value.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    tags.any(|known| known == "*" || known.as_bytes() == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Uncompressed, all files together.
    const MOST_BYTES: usize = 150 * 1024;

    #[test]
    fn every_file_of_the_folder_is_served_with_its_type_and_they_are_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dashboard");
        let entries = std::fs::read_dir(folder).unwrap();
        let mut there: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let mut known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        there.sort();
        known.sort();
        assert_eq!(there, known);
        assert!(known.iter().all(|name| kind(name) != "application/octet-stream"));
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    }

    #[test]
    fn the_headers_keep_strangers_out() {
        let none = HeaderMap::new();
        for answer in [index(&none), asset("/assets/app.js", &none), asset("/assets/style.css", &none)] {
            assert_eq!(answer.status(), StatusCode::OK);
            let headers = answer.headers();
            let policy = headers["content-security-policy"].to_str().unwrap();
            assert!(
                policy.starts_with(
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"
                )
            );
            assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
            assert!(policy.contains("frame-ancestors 'none'") && policy.contains("trusted-types 'none'"));
            assert_eq!(headers["x-content-type-options"], "nosniff");
            assert_eq!(headers["referrer-policy"], "no-referrer");
        }
        for path in ["/assets/", "/assets/index.html", "/assets/../Cargo.toml", "/assets/app.js/"] {
            assert_eq!(asset(path, &none).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }

    #[test]
    fn whoever_has_a_file_is_not_sent_it_again() {
        let mut headers = HeaderMap::new();
        let tag = index(&headers).headers()[ETAG].to_str().unwrap().to_owned();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&format!("\"other\", W/{tag}")).unwrap());
        assert_eq!(index(&headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asset("/assets/app.js", &headers).status(), StatusCode::OK);
    }

    #[test]
    fn no_file_holds_inline_script_or_style_or_writes_markup() {
        for file in &FILES {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for banned in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                " style=",
                "onclick=",
            ] {
                assert!(!text.contains(banned), "{} holds {banned}", file.name);
            }
        }
    }
}
