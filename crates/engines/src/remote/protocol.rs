//! What an engine knows about its server: how to log in, how to write commands, how to read frames.
//! Must hold: a server answers pings in order with the subscriptions before them, so a pong confirms those; an
//! announced length never causes an allocation.

use super::address::Host;
use super::socket::BusSocket;
use bytes::{Bytes, BytesMut};
use std::future::Future;
use std::io;
use tavern_store::Subject;

pub trait BusProtocol: Send + 'static {
    const NAME: &'static str;

    /// The servers, tried in turn.
    fn hosts(&self) -> &[Host];

    /// Connects to a server and logs in; returns what it sent after that. The connection has no subscriptions.
    fn connect(&mut self, host: &Host) -> impl Future<Output = io::Result<(BusSocket, BytesMut)>>;

    /// The longest message that the server accepts.
    fn max_message(&self) -> usize;

    /// Starts a message of `length` bytes. They follow, then a line break.
    fn begin(&self, subject: &Subject, length: usize, out: &mut Vec<u8>);

    fn subscribe(&mut self, subject: &Subject, out: &mut Vec<u8>);

    fn unsubscribe(&mut self, subject: &Subject, out: &mut Vec<u8>);

    fn ping(out: &mut Vec<u8>);

    fn pong(out: &mut Vec<u8>);

    /// Takes the next frame from the input. None: it is not complete.
    fn read(input: &mut BytesMut) -> io::Result<Option<BusFrame>>;
}

#[derive(Debug, PartialEq, Eq)]
pub enum BusFrame {
    Message {
        subject: Bytes,
        body: Bytes,
    },
    /// The server expects a pong.
    Ping,
    Pong,
    /// The server refused a command.
    Refused(String),
    /// Anything else.
    Other,
}
