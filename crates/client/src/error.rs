//! The error for apps, and internally why a link ended or could not be opened.
//! Must hold: `code` decides what to do next; `message` is for people.

use serde_json::Value;

/// A refusal of the server, or an error of the client itself: `closed`, `superseded`, `unknown_outcome`, `timeout`, `overflow`,
/// `unreachable`, `not_ready`, `unexpected_answer`, `bad_request`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    /// The code, for programs.
    pub code: String,
    /// The message, for people.
    pub message: String,
    /// When to retry.
    pub retry_after_ms: Option<u64>,
    /// The caller's party, when a party command was refused.
    pub party: Option<Box<Value>>,
}

impl Error {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Error {
        Error { code: code.to_owned(), message: message.into(), retry_after_ms: None, party: None }
    }

    pub(crate) fn closed() -> Error {
        Error::new("closed", "this client is closed")
    }

    /// From the `error` member of a reply.
    pub(crate) fn from_wire(error: Option<&Value>) -> Error {
        let text = |name: &str, otherwise: &str| {
            error.and_then(|error| error.get(name)?.as_str()).unwrap_or(otherwise).to_owned()
        };
        Error {
            code: text("code", "internal"),
            message: text("message", "the server gave no reason"),
            retry_after_ms: error.and_then(|error| error.get("retry_after_ms")?.as_u64()),
            party: error
                .and_then(|error| error.get("party"))
                .filter(|party| party.is_object())
                .cloned()
                .map(Box::new),
        }
    }
}

/// Why a link has ended.
#[derive(Clone, Debug)]
pub(crate) struct LinkEnd {
    pub why: String,
    /// The WebSocket close code, or its equivalent on other transports.
    pub code: Option<u16>,
}

impl LinkEnd {
    pub fn new(why: impl Into<String>) -> LinkEnd {
        LinkEnd { why: why.into(), code: None }
    }

    pub fn coded(code: u16, why: impl Into<String>) -> LinkEnd {
        LinkEnd { why: why.into(), code: Some(code) }
    }
}

/// Why a link could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server refused.
    Refused(Error),
    /// An unexpected answer, perhaps of a proxy: try another transport.
    Blocked(String),
    /// No answer: try again.
    Lost(String),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> OpenError {
        OpenError::Lost(error.to_string())
    }
}
