//! The dashboard: `/` and the files under `/assets/`, all of them part of the program and served as they are in `dashboard/`.
//! Must hold: a page can run no script but ours, write no markup from text, and reach no server but this one; a file
//! that the browser has is not sent again.

use super::asset;
use super::body::{HttpResponse, refusal};
use http::header::HeaderMap;
use tavern_wire::error::{Code, Refusal};

pub fn index(headers: &HeaderMap) -> HttpResponse {
    serve("index.html", headers).unwrap_or_else(|| missing("/"))
}

pub fn asset(path: &str, headers: &HeaderMap) -> HttpResponse {
    let name = path.strip_prefix("/assets/").filter(|name| *name != "index.html");
    name.and_then(|name| serve(name, headers)).unwrap_or_else(|| missing(path))
}

fn missing(path: &str) -> HttpResponse {
    refusal(&Refusal::new(Code::NotFound, format!("not found: {path}")))
}

fn serve(name: &str, headers: &HeaderMap) -> Option<HttpResponse> {
    let file = asset::DASHBOARD.iter().find(|file| file.name == name)?;
    Some(asset::give(asset::kind(name), file, headers))
}

#[cfg(test)]
mod tests {
    use super::asset::DASHBOARD as FILES;
    use super::*;
    use http::StatusCode;
    use http::header::{ETAG, HeaderValue, IF_NONE_MATCH};

    /// Uncompressed, all files together.
    const MAX_BYTES: usize = 220 * 1024;

    #[test]
    fn every_file_of_the_folder_is_served_with_its_type_and_they_are_small() {
        let known: Vec<&str> = FILES.iter().map(|file| file.name).collect();
        assert!(["index.html", "app.js", "style.css"].iter().all(|name| known.contains(name)));
        assert!(known.iter().all(|name| !asset::kind(name).starts_with("text/plain")));
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    }

    #[test]
    fn pages_have_restrictive_headers() {
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
    fn an_unchanged_file_is_answered_with_304() {
        let mut headers = HeaderMap::new();
        let tag = index(&headers).headers()[ETAG].to_str().unwrap().to_owned();
        headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&format!("\"other\", W/{tag}")).unwrap());
        assert_eq!(index(&headers).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(asset("/assets/app.js", &headers).status(), StatusCode::OK);
    }

    #[test]
    fn no_file_holds_inline_script_or_style_or_writes_markup() {
        for file in FILES {
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
