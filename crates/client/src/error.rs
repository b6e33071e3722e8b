//! The error for apps, and internally why a link ended or could not be opened.
//! Must hold: a variant says what to do next; the message is for people.

use crate::party_snapshot::PartySnapshot;
use serde_json::Value;
use std::fmt;

/// Why a call failed.
///
/// ```
/// use tavern_client::{Error, RefusalCode};
///
/// fn advice(error: &Error) -> &'static str {
///     match error {
///         Error::Refused(refusal) if refusal.code == RefusalCode::NotAllowed => "ask for more rights",
///         Error::Refused(refusal) if refusal.retry_after_ms.is_some() => "try again later",
///         Error::UnknownOutcome(_) => "check whether it happened",
///         Error::Timeout(_) | Error::Unreachable(_) => "check the connection",
///         _ => "tell the user",
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The server refused it.
    Refused(Refusal),
    /// The client is closed or suspended, or was never connected.
    Closed(String),
    /// Another connection took the session; this client does not reconnect.
    Superseded,
    /// The connection was lost before the reply: the command may have been executed.
    UnknownOutcome(String),
    /// No reply in time.
    Timeout(String),
    /// Nothing answered at the address.
    Unreachable(String),
    /// Too many commands wait for a reply.
    Busy,
    /// The command is longer than the server takes. It was not sent.
    TooLarge(String),
    /// A stream was read too slowly: so many events were dropped.
    Overflow(u64),
    /// The client itself failed, with this cause. Make a new one.
    Failed(String),
    /// What the caller gave cannot be sent. Nothing was.
    Invalid(String),
    /// The function that gives tokens failed.
    NoToken(String),
    /// Something else than Tavern answered, or a newer Tavern.
    UnexpectedAnswer(String),
    /// The server is not ready.
    NotReady(String),
    /// A webhook was not signed with the secret, or not now.
    BadSignature(&'static str),
}

/// A refusal of the server.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Refusal {
    /// Why.
    pub code: RefusalCode,
    /// The same for people.
    pub message: String,
    /// When to try again.
    pub retry_after_ms: Option<u64>,
    /// The party of the user, when a party command was refused.
    pub party: Option<Box<PartySnapshot>>,
}

impl Error {
    /// The code of the refusal or of the error itself, as the protocol and all clients name it.
    pub fn code(&self) -> &str {
        match self {
            Error::Refused(refusal) => refusal.code.as_str(),
            Error::Closed(_) => "closed",
            Error::Superseded => "superseded",
            Error::UnknownOutcome(_) => "unknown_outcome",
            Error::Timeout(_) => "timeout",
            Error::Unreachable(_) => "unreachable",
            Error::Busy => "busy",
            Error::TooLarge(_) => "too_large",
            Error::Overflow(_) => "overflow",
            Error::Failed(_) => "failed",
            Error::Invalid(_) => "bad_request",
            Error::NoToken(_) => "unauthenticated",
            Error::UnexpectedAnswer(_) => "unexpected_answer",
            Error::NotReady(_) => "not_ready",
            Error::BadSignature(_) => "bad_signature",
        }
    }

    /// The message, for people.
    pub fn message(&self) -> String {
        match self {
            Error::Refused(refusal) => refusal.message.clone(),
            Error::Superseded => "another connection took over the session".to_owned(),
            Error::Busy => "too many commands wait for a reply".to_owned(),
            Error::Overflow(dropped) => format!("read too slowly: {dropped} events were dropped"),
            Error::BadSignature(why) => (*why).to_owned(),
            Error::Closed(why)
            | Error::UnknownOutcome(why)
            | Error::Timeout(why)
            | Error::Unreachable(why)
            | Error::TooLarge(why)
            | Error::Failed(why)
            | Error::Invalid(why)
            | Error::NoToken(why)
            | Error::UnexpectedAnswer(why)
            | Error::NotReady(why) => why.clone(),
        }
    }

    /// When to try again, if the server said so.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Error::Refused(refusal) => refusal.retry_after_ms,
            _ => None,
        }
    }

    pub(crate) fn closed() -> Error {
        Error::Closed("this client is closed".to_owned())
    }

    /// An answer whose JSON has another shape.
    pub(crate) fn unexpected(error: serde_json::Error) -> Error {
        Error::UnexpectedAnswer(format!("cannot read the server's answer: {error}"))
    }

    /// A value that is no JSON, such as a map whose keys are lists.
    pub(crate) fn unsendable(error: serde_json::Error) -> Error {
        Error::Invalid(error.to_string())
    }

    pub(crate) fn refused(code: RefusalCode, message: impl Into<String>) -> Error {
        Error::Refused(Refusal { code, message: message.into(), retry_after_ms: None, party: None })
    }

    /// From the `error` member of a reply.
    pub(crate) fn from_wire(error: Option<&Value>) -> Error {
        let text = |name: &str, otherwise: &str| {
            error.and_then(|error| error.get(name)?.as_str()).unwrap_or(otherwise).to_owned()
        };
        Error::Refused(Refusal {
            code: RefusalCode::from(text("code", "internal").as_str()),
            message: text("message", "the server gave no reason"),
            retry_after_ms: error.and_then(|error| error.get("retry_after_ms")?.as_u64()),
            party: error
                .and_then(|error| serde_json::from_value(error.get("party")?.clone()).ok())
                .map(Box::new),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.code(), self.message())
    }
}

impl std::error::Error for Error {}

macro_rules! refusal_codes {
    ($($variant:ident $name:literal $about:literal)*) => {
        /// Why the server refused something.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RefusalCode {
            $(#[doc = $about] $variant,)*
            /// A code that this version of the client does not know.
            Other(String),
        }

        impl RefusalCode {
            /// The code as the protocol writes it.
            pub fn as_str(&self) -> &str {
                match self {
                    $(RefusalCode::$variant => $name,)*
                    RefusalCode::Other(name) => name,
                }
            }
        }

        impl From<&str> for RefusalCode {
            fn from(name: &str) -> RefusalCode {
                match name {
                    $($name => RefusalCode::$variant,)*
                    other => RefusalCode::Other(other.to_owned()),
                }
            }
        }
    };
}

refusal_codes! {
    BadRequest "bad_request" "The request is malformed."
    Unauthenticated "unauthenticated" "A valid token or key is needed."
    NotAllowed "not_allowed" "The caller has no right to do this."
    NotFound "not_found" "It does not exist."
    MethodNotAllowed "method_not_allowed" "The path does not support this method."
    Conflict "conflict" "It was changed in the meantime."
    Claimed "claimed" "The topic belongs to another publisher."
    TooLarge "too_large" "A part of the request is larger than its limit."
    RateLimited "rate_limited" "Too many requests."
    Blocked "blocked" "The caller is blocked."
    Busy "busy" "Something else is in progress."
    Gone "gone" "It existed and has ended."
    Unavailable "unavailable" "The server cannot do this now."
    Internal "internal" "The server failed."
    NoSuchParty "no_such_party" "There is no such party."
    NotMember "not_member" "The caller is not a member of the party."
    NotLeader "not_leader" "Only the leader of the party may do this."
    VersionConflict "version_conflict" "The version of the party is another one."
    NoSuchGo "no_such_go" "The party has no such ticket."
    SelfTarget "self_target" "The caller cannot do this to themselves."
    NoSuchUser "no_such_user" "The server does not know this user."
    TargetNotMember "target_not_member" "The user named is not a member of the party."
    UserNotLogged "user_not_logged" "The user named is not online."
    AlreadyMember "already_member" "The user is already a member."
    UserInParty "user_in_party" "The user is in a party with others."
    NoInvite "no_invite" "There is no open invite."
    PartyFull "party_full" "Every seat of the party is taken."
}

impl fmt::Display for RefusalCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
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
    /// Something answered, but not as this transport needs it: try another one.
    Blocked(LinkEnd),
    /// No answer: try again.
    Lost(String),
    /// No token: try again.
    NoToken(String),
    /// A task of the link panicked.
    Failed(String),
}

impl OpenError {
    pub fn blocked(why: impl Into<String>) -> OpenError {
        OpenError::Blocked(LinkEnd::new(why))
    }
}

impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> OpenError {
        OpenError::Lost(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_keep_what_the_server_said() {
        let wire = json!({"code": "party_full", "message": "no seat", "retry_after_ms": 5, "party": {"party_id": 7}});
        let Error::Refused(refusal) = Error::from_wire(Some(&wire)) else { panic!("a refusal") };
        assert_eq!((refusal.code, refusal.retry_after_ms), (RefusalCode::PartyFull, Some(5)));
        assert_eq!(refusal.party.map(|party| party.party_id), Some(7));
        let newer = Error::from_wire(Some(&json!({"code": "something_new", "message": 7, "party": "?"})));
        assert_eq!(newer.to_string(), "something_new: the server gave no reason");
        assert_eq!(Error::from_wire(None).code(), "internal");
    }
}
