//! The Redis protocol, RESP2 and RESP3: commands in, replies and pushed messages out. It does not know the commands.
//! Must hold: error texts and types are those of Redis 7.2, so that existing clients work unchanged.

mod inline;
mod parse;
mod reply;
mod write;

pub use parse::{Limits, Parsed, Parser, UNAUTHENTICATED_ARG_BYTES, UNAUTHENTICATED_ARGS};
pub use reply::{REPLY_DEPTH, RespValue, read_value};
pub use write::{
    Proto, array, boolean, bulk, bulk_head, command, double, error, int, map, message_frame, null_array,
    null_bulk, pmessage_frame, push, set, simple, verbatim,
};

/// Why a byte stream is not valid RESP. Its text is the error reply, without the leading `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RespError {
    #[error("ERR Protocol error: invalid multibulk length")]
    MultibulkLength,
    #[error("ERR Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    #[error("ERR Protocol error: too big mbulk count string")]
    MultibulkCount,
    #[error("ERR Protocol error: expected '$', got '{}'", shown(*.0))]
    ExpectedBulk(u8),
    #[error("ERR Protocol error: invalid bulk length")]
    BulkLength,
    #[error("ERR Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("ERR Protocol error: too big bulk count string")]
    BulkCount,
    #[error("ERR Protocol error: too big inline request")]
    Inline,
    #[error("ERR Protocol error: unbalanced quotes in request")]
    Quotes,
    /// Redis closes the connection without a reply when its query buffer limit is exceeded; we send the reason.
    #[error("ERR Protocol error: too big request")]
    TooBig,
    /// An invalid reply, for clients.
    #[error("ERR Protocol error: {0}")]
    Reply(&'static str),
}

/// A byte in an error line. Line breaks become spaces, as in every error reply; bytes that are not printable are escaped, where
/// Redis would write the bare byte.
fn shown(byte: u8) -> String {
    match byte {
        b'\r' | b'\n' => " ".to_string(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\x{byte:02x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_texts_equal_those_of_redis() {
        assert_eq!(RespError::ExpectedBulk(b'x').to_string(), "ERR Protocol error: expected '$', got 'x'");
        assert_eq!(RespError::ExpectedBulk(b'\n').to_string(), "ERR Protocol error: expected '$', got ' '");
        assert_eq!(RespError::ExpectedBulk(b'\'').to_string(), "ERR Protocol error: expected '$', got '''");
        assert_eq!(RespError::ExpectedBulk(0).to_string(), "ERR Protocol error: expected '$', got '\\x00'");
    }
}
