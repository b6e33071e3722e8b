//! The bus on a Redis server: SUBSCRIBE for one subject, PSUBSCRIBE for a wide one, PUBLISH, all on one connection, which
//! RESP3 allows: Redis 6 or newer, or a compatible server. Databases do not separate pub/sub, so their number in the address
//! has no effect here, and the prefix of the subjects keeps clusters apart.
//!
//! Addresses are those of the store (`address`). On a cluster any server that answers is used: it forwards to the others.

use super::address::RedisAddress;
use super::socket::{self, ask};
use crate::options::BusOptions;
use crate::remote::{BusFrame, BusProtocol, BusSocket, Host, RemoteBus, SocketLink, broken};
use bytes::BytesMut;
use std::io;
use std::sync::Arc;
use tavern_store::{BusError, BusReceiver, Subject};
use tavern_wire::resp::{self, RespValue};

/// Redis accepts far more; a server with shorter messages stays responsive for others.
const MAX_MESSAGE: usize = 1024 * 1024;

pub fn open(
    url: &str,
    options: &BusOptions<'_>,
    receiver: Arc<dyn BusReceiver>,
) -> Result<RemoteBus, BusError> {
    RemoteBus::open(SocketLink::new(RedisProtocol(RedisAddress::parse(url)?)), options, receiver)
}

struct RedisProtocol(RedisAddress);

/// The command and its argument. No character of a subject is special in a pattern.
fn listening<'a>(exact: &'a str, wide: &'a str, subject: &Subject) -> (&'a str, String) {
    match subject.as_str().strip_suffix('>') {
        Some(front) => (wide, format!("{front}*")),
        None => (exact, subject.to_string()),
    }
}

impl BusProtocol for RedisProtocol {
    const NAME: &'static str = "redis";

    fn hosts(&self) -> &[Host] {
        &self.0.hosts
    }

    async fn connect(&mut self, host: &Host) -> io::Result<(BusSocket, BytesMut)> {
        let host = self.0.primary(host).await?;
        let (mut socket, mut input) = self.0.log_in(&host).await?;
        // A server that is still loading its file accepts messages and subscriptions, but answers no ping.
        ask(&mut socket, &mut input, &[b"PING"]).await?;
        Ok((socket, input))
    }

    fn max_message(&self) -> usize {
        MAX_MESSAGE
    }

    fn begin(&self, subject: &Subject, length: usize, out: &mut Vec<u8>) {
        resp::array(out, 3);
        resp::bulk(out, b"PUBLISH");
        resp::bulk(out, subject.as_str().as_bytes());
        resp::bulk_head(out, length);
    }

    fn subscribe(&mut self, subject: &Subject, out: &mut Vec<u8>) {
        let (command, name) = listening("SUBSCRIBE", "PSUBSCRIBE", subject);
        resp::command(out, &[command.as_bytes(), name.as_bytes()]);
    }

    fn unsubscribe(&mut self, subject: &Subject, out: &mut Vec<u8>) {
        let (command, name) = listening("UNSUBSCRIBE", "PUNSUBSCRIBE", subject);
        resp::command(out, &[command.as_bytes(), name.as_bytes()]);
    }

    fn ping(out: &mut Vec<u8>) {
        resp::command(out, &[b"PING"]);
    }

    /// A Redis server sends no pings.
    fn pong(_out: &mut Vec<u8>) {}

    fn read(input: &mut BytesMut) -> io::Result<Option<BusFrame>> {
        let Some((value, used)) = socket::read(input)? else { return Ok(None) };
        let whole = input.split_to(used).freeze();
        Ok(Some(match value {
            RespValue::Simple(text) if &whole[text.clone()] == b"PONG" => BusFrame::Pong,
            RespValue::Error(text) => {
                BusFrame::Refused(broken(&String::from_utf8_lossy(&whole[text])).to_string())
            }
            RespValue::List(parts) => match &parts[..] {
                [RespValue::Bulk(kind), .., RespValue::Bulk(subject), RespValue::Bulk(body)]
                    if matches!(&whole[kind.clone()], b"message" | b"pmessage") =>
                {
                    BusFrame::Message {
                        subject: whole.slice(subject.clone()),
                        body: whole.slice(body.clone()),
                    }
                }
                _ => BusFrame::Other,
            },
            _ => BusFrame::Other,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_whole() {
        let received = b">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n>3\r\n$7\r\nmessage\r\n$8\r\np.game.A\r\n$5\r\nhe\r\no\r\n+PONG\r\n\
            >4\r\n$8\r\npmessage\r\n$3\r\np.*\r\n$5\r\np.b.c\r\n$0\r\n\r\n:1\r\n-NOPERM no\r\n";
        let mut read = Vec::new();
        let mut input = BytesMut::new();
        for &byte in received {
            input.extend_from_slice(&[byte]);
            read.extend(RedisProtocol::read(&mut input).unwrap());
        }
        let message = |subject: &'static str, body: &'static str| BusFrame::Message {
            subject: subject.into(),
            body: body.into(),
        };
        assert_eq!(
            read,
            [
                BusFrame::Other,
                message("p.game.A", "he\r\no"),
                BusFrame::Pong,
                message("p.b.c", ""),
                BusFrame::Other,
                BusFrame::Refused("NOPERM no".into())
            ]
        );
    }
}
