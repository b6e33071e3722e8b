//! What an engine knows about its server: how to log in, how to say what is said, how to read what comes.
//! Must hold: a server answers pings in order with the subscriptions before them, so a pong confirms those; reading
//! never reserves memory because of an announced length.

use super::address::Host;
use super::socket::Socket;
use bytes::{Bytes, BytesMut};
use std::future::Future;
use std::io;
use tavern_store::subject::Subject;

pub trait Dialect: Send + 'static {
    const NAME: &'static str;

    /// The servers, to be tried in turn.
    fn hosts(&self) -> &[Host];

    /// Reaches a server and logs in; gives the bytes that came after that. Nothing is subscribed to there.
    fn connect(&mut self, host: &Host) -> impl Future<Output = io::Result<(Socket, BytesMut)>>;

    /// The longest message that the server takes.
    fn longest(&self) -> usize;

    /// Begins a message of `length` bytes. They follow, then a line's end.
    fn begin(&self, subject: &Subject, length: usize, out: &mut Vec<u8>);

    fn subscribe(&mut self, subject: &Subject, out: &mut Vec<u8>);

    fn unsubscribe(&mut self, subject: &Subject, out: &mut Vec<u8>);

    fn ping(out: &mut Vec<u8>);

    fn pong(out: &mut Vec<u8>);

    /// Takes the next frame out of what was read. None: it is not complete.
    fn read(input: &mut BytesMut) -> io::Result<Option<Frame>>;
}

#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    Word {
        subject: Bytes,
        body: Bytes,
    },
    /// The server wants to know whether we are there.
    Ping,
    Pong,
    /// The server did not do something that it was asked.
    Refused(String),
    /// Nothing that needs an answer.
    Other,
}

/// The longest line without a payload.
const LINE_BYTES: usize = 64 * 1024;
/// The longest text of a server that is repeated in the log.
const SAID: usize = 200;

/// The first line, and where the next one begins.
pub fn line(input: &[u8]) -> io::Result<Option<(&[u8], usize)>> {
    match input.windows(2).take(LINE_BYTES).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((&input[..end], end + 2))),
        None if input.len() > LINE_BYTES => Err(broken("a line of the server is too long")),
        None => Ok(None),
    }
}

pub fn broken(what: &str) -> io::Error {
    let shown: String = what.chars().filter(|c| !c.is_control()).take(SAID).collect();
    io::Error::new(io::ErrorKind::InvalidData, shown)
}
