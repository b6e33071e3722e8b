//! What can go wrong: one error for apps, and why a link ended or could not be opened, for the client itself.
//! Must hold: `code` decides what to do next; `message` is for people.

use serde_json::Value;

/// A refusal of the server, or the client's own reason for giving up: `closed`, `superseded`, `unknown_outcome`, `timeout`, `overflow`, `busy`.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    pub code: String,
    pub message: String,
    /// When to ask again.
    pub retry_after_ms: Option<u64>,
    /// The caller's party as it is, when a party command was refused.
    pub party: Option<Box<Value>>,
}

impl Error {
    pub(crate) fn new(code: &str, message: impl Into<String>) -> Error {
        Error { code: code.to_owned(), message: message.into(), retry_after_ms: None, party: None }
    }

    pub(crate) fn closed() -> Error {
        Error::new("closed", "this client is closed")
    }

    /// From the `error` member of a reply, whatever it holds.
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
pub(crate) struct Ending {
    pub why: String,
    /// The WebSocket close code, or the one that says the same.
    pub code: Option<u16>,
}

impl Ending {
    pub fn new(why: impl Into<String>) -> Ending {
        Ending { why: why.into(), code: None }
    }

    pub fn coded(code: u16, why: impl Into<String>) -> Ending {
        Ending { why: why.into(), code: Some(code) }
    }
}

/// Why a link could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The server said no.
    Refused(Error),
    /// Somebody answered, and not as this transport must be answered: another may fare better.
    Blocked(String),
    /// Nobody answered.
    Lost(String),
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> OpenError {
        OpenError::Lost(error.to_string())
    }
}
