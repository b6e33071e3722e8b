//! Lines from a server, and errors about what it sent.

use std::io;

/// The longest line without a payload.
const LINE_BYTES: usize = 64 * 1024;
/// The longest text of a server that is repeated in an error.
const SHOWN_CHARS: usize = 200;

/// The first line, and where the next one begins.
pub fn line(input: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    match input.windows(2).take(LINE_BYTES).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((&input[..end], end + 2))),
        None if input.len() > LINE_BYTES => Err(broken("a line of the server is too long")),
        None => Ok(None),
    }
}

/// The server sent something that ends the connection, or an error.
pub fn broken(what: &str) -> io::Error {
    let shown: String = what.chars().filter(|c| !c.is_control()).take(SHOWN_CHARS).collect();
    io::Error::new(io::ErrorKind::InvalidData, shown)
}
