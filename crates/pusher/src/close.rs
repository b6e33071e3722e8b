//! The error codes of the protocol. What a client does is in the range: below 4100 it stops, from 4100 it retries after a while,
//! from 4200 at once; 43xx is a refusal on a connection that lives.

use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PusherError {
    /// None: a refusal without a number.
    pub code: Option<u16>,
    pub message: Cow<'static, str>,
}

impl PusherError {
    const fn new(code: u16, message: &'static str) -> PusherError {
        PusherError { code: Some(code), message: Cow::Borrowed(message) }
    }

    pub const UNKNOWN_KEY: PusherError =
        PusherError::new(4001, "no app has this key: check the key, and [[pusher.apps]] of the server");
    pub const BAD_VERSION: PusherError = PusherError::new(4006, "the parameter `protocol` is not a number");
    pub const UNSUPPORTED_VERSION: PusherError = PusherError::new(4007, "the protocol must be 5, 6 or 7");
    pub const NO_VERSION: PusherError =
        PusherError::new(4008, "the parameter `protocol` is missing; send protocol=7");
    pub const UNAUTHORIZED: PusherError = PusherError::new(4009, "the connection is not authorized");
    /// The same with its reason.
    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> PusherError {
        PusherError { code: PusherError::UNAUTHORIZED.code, message: message.into() }
    }

    pub const BUSY: PusherError = PusherError::new(4100, "over capacity; retry later");
    pub const RECONNECT: PusherError = PusherError::new(4200, "the server is stopping; reconnect");
    pub const NO_PONG: PusherError = PusherError::new(4201, "no pong in time");
    pub const NO_CLIENT_EVENTS: PusherError =
        PusherError::new(4301, "client events are off: set client_events = true in [[pusher.apps]]");
    pub const CLIENT_EVENT_RATE: PusherError =
        PusherError::new(4301, "too many client events: at most 10 a second");

    /// A watchlist of which not all users are watched.
    pub fn watchlist(is_too_long: bool) -> PusherError {
        let message = match is_too_long {
            true => "a watchlist has at most 100 users: only the first are watched",
            false => {
                "not all users of the watchlist are watched: their ids are not allowed, or there are too many channels"
            }
        };
        PusherError::new(4302, message)
    }

    /// A client event that is not allowed.
    pub fn client_event(message: impl Into<Cow<'static, str>>) -> PusherError {
        PusherError { code: Some(4301), message: message.into() }
    }

    pub fn refusal(message: impl Into<Cow<'static, str>>) -> PusherError {
        PusherError { code: None, message: message.into() }
    }

    /// The code of the close frame.
    pub fn close_code(&self) -> u16 {
        self.code.unwrap_or(4200)
    }
}
