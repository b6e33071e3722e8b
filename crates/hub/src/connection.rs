//! What the hub knows of a connection: its number, how events are written to it, and why it is closed.

/// The server's number for an attached transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkId(pub u32);

/// How events are written for a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    WebSocket,
    Sse,
    Poll,
    Resp2,
    Resp3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub id: LinkId,
    pub format: Format,
}

/// Why the server closes a transport, and whether the client should come back.
/// Close codes: 4000–4499 mean "do not retry as you are", 4500–4999 mean "come back".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// A newer transport was attached to the session.
    Superseded,
    /// The client said `bye`.
    Bye,
    /// The token ended; a fresh one is needed.
    TokenExpired,
    /// No hello came in time, or the token was refused.
    Unauthenticated,
    /// Too many refused commands in a row.
    Abuse,
    /// It did not read fast enough; the session may be resumed.
    SlowReader,
    /// It did not answer a ping; the session may be resumed.
    Silent,
    /// The server is stopping; the session may be resumed, here or elsewhere.
    Closing,
    /// Its session was ended over another transport; a new one can begin.
    Ended,
}

impl Goodbye {
    pub fn code(self) -> u16 {
        match self {
            Goodbye::Bye => 1000,
            Goodbye::Superseded => 4000,
            Goodbye::TokenExpired => 4001,
            Goodbye::Unauthenticated => 4002,
            Goodbye::Abuse => 4003,
            Goodbye::SlowReader => 4500,
            Goodbye::Silent => 4501,
            Goodbye::Closing => 4502,
            Goodbye::Ended => 4503,
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Goodbye::Superseded => "superseded",
            Goodbye::Bye => "bye",
            Goodbye::TokenExpired => "token expired",
            Goodbye::Unauthenticated => "unauthenticated",
            Goodbye::Abuse => "too many refused commands",
            Goodbye::SlowReader => "slow reader",
            Goodbye::Silent => "silent",
            Goodbye::Closing => "closing",
            Goodbye::Ended => "the session has ended",
        }
    }
}
