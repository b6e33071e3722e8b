//! `/client.js`: the JavaScript client, part of the program, so that a page needs no other place to load it from.
//! Must hold: what is served is made from `clients/js/src` when the program is built, and not sent again to a browser that has it.

use super::asset;
use super::body::HttpResponse;
use http::header::HeaderMap;

pub fn script(headers: &HeaderMap) -> HttpResponse {
    // Short: after an update pages have the new client within minutes.
    let keep = "public, max-age=300";
    asset::tagged("text/javascript; charset=utf-8", &asset::CLIENT[0], headers, keep)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use http::header::{ETAG, HeaderValue, IF_NONE_MATCH};

    #[test]
    fn an_unchanged_script_is_answered_with_304() {
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
