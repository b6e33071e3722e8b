//! What a session does next after an error, a lost connection or a refused hello. Pure; `clients/spec.md` has the tables, and
//! `clients/vectors` the cases.

use crate::error::{Error, Refusal, RefusalCode};
use crate::link::{SUPERSEDED, TOKEN_EXPIRED};
use serde_json::Value;
use std::time::Duration;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const MAX_WAIT: Duration = Duration::from_secs(15);
/// Retries of a command that the server refused for now, and half of the first wait.
const RETRIES: u32 = 5;
const RETRY_MS: u64 = 125;
/// How long before its end a token is replaced, at most; and the shortest time between two attempts.
const RENEW_EARLY: Duration = Duration::from_secs(60);
const RENEW_PAUSE: Duration = Duration::from_millis(500);

/// The wait before the nth attempt in a row, from 1. `chance` is a random number in 0…1, so that clients do not come back all
/// at once.
pub(crate) fn backoff(attempt: u32, chance: f64, retry_after_ms: Option<u64>) -> Duration {
    let bound = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(MAX_WAIT);
    bound.mul_f64(chance) + Duration::from_millis(retry_after_ms.unwrap_or(0))
}

/// When a token that ends after this time is renewed.
pub(crate) fn renew_after(left: Duration) -> Duration {
    left.saturating_sub((left / 4).min(RENEW_EARLY)).max(RENEW_PAUSE)
}

/// Whether a command may be executed twice without harm.
pub(crate) fn is_repeatable(op: &str, members: &Value) -> bool {
    match op {
        "publish" => members.get("message_id").is_some(),
        "bye" | "party.say" => false,
        _ => true,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterReply {
    /// Send it again after this time.
    Retry(Duration),
    /// It was not executed: send it again on the next connection.
    Reconnect,
    /// The caller gets the error.
    Report,
}

/// An error is the reply to a command that was retried so many times. `renews`: there is a source of tokens.
pub(crate) fn after_reply(
    op: &str,
    repeatable: bool,
    renews: bool,
    retries: u32,
    refused: &Error,
) -> AfterReply {
    let Error::Refused(Refusal { code, retry_after_ms, .. }) = refused else { return AfterReply::Report };
    if retries >= RETRIES || op == "bye" {
        return AfterReply::Report;
    }
    let ended = *code == RefusalCode::Gone || (*code == RefusalCode::Unauthenticated && renews);
    if ended && op != "hello" {
        return AfterReply::Reconnect;
    }
    // The limits of parties are for the app to see.
    let limited = *code == RefusalCode::RateLimited && !op.starts_with("party.");
    if !repeatable || !(limited || *code == RefusalCode::Unavailable) {
        return AfterReply::Report;
    }
    AfterReply::Retry(Duration::from_millis(retry_after_ms.unwrap_or(RETRY_MS << (retries + 1))))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// Before the commands that wait.
    Resend,
    /// It was not sent and stays in its place.
    Keep,
    Drop,
    /// The caller gets this error.
    UnknownOutcome,
}

/// The connection is lost before the reply to a command.
pub(crate) fn after_loss(op: &str, repeatable: bool, sent: bool) -> AfterLoss {
    match (op, sent) {
        ("ack" | "ping", _) => AfterLoss::Drop,
        (_, false) => AfterLoss::Keep,
        _ if repeatable => AfterLoss::Resend,
        _ => AfterLoss::UnknownOutcome,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterHello {
    /// After the backoff and at least this many milliseconds.
    Retry(Option<u64>),
    /// At once, with a new token.
    NewToken,
    Close,
}

/// Hello is refused. `fresh`: the token was fetched for this attempt.
pub(crate) fn after_hello(refused: &Error, renews: bool, fresh: bool) -> AfterHello {
    let Error::Refused(Refusal { code, retry_after_ms, .. }) = refused else { return AfterHello::Close };
    match code {
        RefusalCode::Unauthenticated if renews && !fresh => AfterHello::NewToken,
        RefusalCode::RateLimited
        | RefusalCode::Busy
        | RefusalCode::Unavailable
        | RefusalCode::Internal
        | RefusalCode::Gone
        | RefusalCode::Conflict
        | RefusalCode::Blocked => AfterHello::Retry(*retry_after_ms),
        _ => AfterHello::Close,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AfterClose {
    Reconnect,
    /// Reconnect with a new token.
    NewToken,
    Close(Error),
}

/// The server closed the connection with this code.
pub(crate) fn after_close(code: Option<u16>, renews: bool, why: &str) -> AfterClose {
    match code {
        Some(SUPERSEDED) => AfterClose::Close(Error::Superseded),
        Some(TOKEN_EXPIRED) if renews => AfterClose::NewToken,
        Some(TOKEN_EXPIRED) => AfterClose::Close(Error::refused(
            RefusalCode::Unauthenticated,
            "the token has expired; Auth::source renews it",
        )),
        Some(4002..=4499) => AfterClose::Close(Error::refused(
            RefusalCode::Gone,
            format!("the server ended the session for good: {why}"),
        )),
        _ => AfterClose::Reconnect,
    }
}
