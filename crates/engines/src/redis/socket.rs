//! Commands on a connection that is not shared yet: logging in, finding the primary, reading settings.
//! Must hold: one command at a time; an error reply is an error.

use crate::remote::{BusSocket, broken, read_more};
use bytes::BytesMut;
use std::io;
use tavern_wire::resp::{self, RespValue};
use tokio::io::AsyncWriteExt;

/// The longest reply here: INFO, with room.
const REPLY_BYTES: usize = 1024 * 1024;

/// The first value of the input and its length. None: it is not complete.
pub(super) fn read(input: &[u8]) -> io::Result<Option<(RespValue, usize)>> {
    resp::read_value(input).map_err(|error| broken(&error.to_string()))
}

/// Sends one command and waits for its reply: the value, and the bytes that it refers to.
pub(super) async fn ask(
    socket: &mut BusSocket,
    input: &mut BytesMut,
    parts: &[&[u8]],
) -> io::Result<(RespValue, BytesMut)> {
    let mut out = Vec::new();
    resp::command(&mut out, parts);
    socket.write_all(&out).await?;
    socket.flush().await?;
    loop {
        if let Some((value, used)) = read(input)? {
            let received = input.split_to(used);
            if let RespValue::Error(text) = value {
                return Err(broken(&String::from_utf8_lossy(&received[text])));
            }
            return Ok((value, received));
        }
        read_more(socket, input, REPLY_BYTES).await?;
    }
}
