//! A connection as the hub sees it: its number, how events are written to it, and why it is closed.

use std::sync::Arc;
use tavern_wire::bus::control::{Ban, Disconnect};

/// The close code of a banned user.
const BANNED_CODE: u16 = 4005;
/// Of a WebSocket close frame.
const REASON_BYTES: usize = 123;

/// The server's number for an attached connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// How events are written to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    WebSocket,
    Sse,
    Poll,
    Resp2,
    Resp3,
    /// To a gateway in this process: JSON events, each followed by a comma.
    Gateway(GatewayProtocol),
}

/// What the clients of a gateway speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayProtocol {
    Radar,
    Pusher,
}

impl EventFormat {
    /// The transport, as reports name it.
    pub fn transport(self) -> &'static str {
        match self {
            EventFormat::WebSocket => "websocket",
            EventFormat::Sse => "sse",
            EventFormat::Poll => "poll",
            EventFormat::Resp2 | EventFormat::Resp3 => "redis",
            EventFormat::Gateway(GatewayProtocol::Radar) => "radar",
            EventFormat::Gateway(GatewayProtocol::Pusher) => "pusher",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: LinkId,
    pub format: EventFormat,
}

/// Why the server closes a connection, and whether the client should reconnect.
/// Close codes: 4000–4499 mean "do not retry unchanged", 4500–4999 mean "reconnect".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A newer connection was attached to the session.
    Superseded,
    /// The client sent `bye`.
    Bye,
    /// The token expired; a fresh one is needed.
    TokenExpired,
    /// The API key was revoked.
    KeyRevoked,
    /// No hello arrived in time, or the token was refused.
    Unauthenticated,
    /// Too many refused commands in a row.
    Abuse,
    /// The client did not read fast enough; the session can be resumed.
    SlowReader,
    /// The client did not answer a ping; the session can be resumed.
    Silent,
    /// The server is stopping; the session can be resumed, here or on another node.
    Closing,
    /// The session was ended over another connection; a new one can begin.
    Ended,
    /// The app disconnected the user.
    Disconnected { code: u16, reason: Arc<str> },
    /// The user is banned.
    Banned { reason: Arc<str> },
}

impl CloseReason {
    pub(crate) fn disconnected(order: &Disconnect) -> CloseReason {
        CloseReason::Disconnected { code: order.code, reason: order.reason.clone() }
    }

    pub(crate) fn banned(ban: &Ban) -> CloseReason {
        CloseReason::Banned { reason: ban_text(ban).into() }
    }

    pub fn code(&self) -> u16 {
        match self {
            CloseReason::Bye => 1000,
            CloseReason::Superseded => 4000,
            CloseReason::TokenExpired => 4001,
            CloseReason::KeyRevoked => 4004,
            CloseReason::Unauthenticated => 4002,
            CloseReason::Abuse => 4003,
            CloseReason::SlowReader => 4500,
            CloseReason::Silent => 4501,
            CloseReason::Closing => 4502,
            CloseReason::Ended => 4503,
            CloseReason::Disconnected { code, .. } => *code,
            CloseReason::Banned { .. } => BANNED_CODE,
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            CloseReason::Superseded => "superseded",
            CloseReason::Bye => "bye",
            CloseReason::TokenExpired => "token expired",
            CloseReason::KeyRevoked => "API key was revoked",
            CloseReason::Unauthenticated => "unauthenticated",
            CloseReason::Abuse => "too many refused commands",
            CloseReason::SlowReader => "slow reader",
            CloseReason::Silent => "silent",
            CloseReason::Closing => "closing",
            CloseReason::Ended => "the session has ended",
            CloseReason::Disconnected { reason, .. } | CloseReason::Banned { reason } => reason,
        }
    }
}

/// The message to a banned user; it fits into a close frame.
pub(crate) fn ban_text(ban: &Ban) -> String {
    let mut text = match ban.reason.is_empty() {
        true => "this user is banned".to_owned(),
        false => format!("this user is banned: {}", ban.reason),
    };
    text.truncate(text.floor_char_boundary(REASON_BYTES));
    text
}
