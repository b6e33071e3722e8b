//! The page at `/`: a small taproom to try the server in a browser. Its files are part of the program.

use super::body::{Answer, refusal, whole};
use crate::config::Mode;
use crate::services::Services;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use tavern_wire::error::{Code, Refusal};

const INDEX: &str = include_str!("../../assets/index.html");
const SCRIPT: &str = include_str!("../../assets/taproom.js");
const STYLE: &str = include_str!("../../assets/taproom.css");

pub fn index(services: &Services) -> Answer {
    let mode = if services.config.mode == Mode::Dev { "dev" } else { "serve" };
    guarded("text/html; charset=utf-8", INDEX.replace("{{mode}}", mode))
}

pub fn asset(path: &str) -> Answer {
    match path {
        "/assets/taproom.js" => guarded("text/javascript; charset=utf-8", SCRIPT.to_owned()),
        "/assets/taproom.css" => guarded("text/css; charset=utf-8", STYLE.to_owned()),
        _ => refusal(&Refusal::new(Code::NotFound, format!("there is nothing at {path}"))),
    }
}

/// With the headers that keep a page from doing more than it should.
fn guarded(kind: &'static str, body: String) -> Answer {
    let mut answer = whole(StatusCode::OK, kind, body);
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' ws: wss:; \
                  img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (name, value) in [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-cache"),
    ] {
        answer.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    answer
}
