//! Commands that the server runs for a client that cannot send any.

use super::encode::string;
use super::request::{HelloRequest, ID_BYTES, Op, ParsedCommand, SubscribeRequest, SubscribeTarget};
use std::borrow::Cow;
use tavern_domain::HistoryPosition;

/// The command that a channel in the URL of a stream stands for. Its id is the channel, as far as an id may be long.
pub fn subscribe_command(
    channel: String,
    last: Option<u64>,
    since: Option<HistoryPosition>,
) -> ParsedCommand<'static> {
    let id = String::from_utf8(id(&channel)).ok().map(Cow::Owned);
    let target = SubscribeTarget::Channel(Cow::Owned(channel));
    ParsedCommand { id, op: Op::Subscribe(SubscribeRequest { target, presence: false, since, last }) }
}

/// The hello of a client whose token came with its connection.
pub fn hello_command(session: Option<String>, seq: Option<u64>) -> ParsedCommand<'static> {
    let session = session.map(Cow::Owned);
    ParsedCommand { id: None, op: Op::Hello(HelloRequest { token: None, session, seq, status: false }) }
}

fn id(channel: &str) -> Vec<u8> {
    let (mut id, mut longer) = (b"\"\"".to_vec(), Vec::new());
    for (at, character) in channel.char_indices() {
        longer.clear();
        string(&mut longer, &channel[..at + character.len_utf8()]);
        if longer.len() > ID_BYTES {
            break;
        }
        std::mem::swap(&mut id, &mut longer);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::is_json;

    #[test]
    fn id_of_the_command_is_the_channel_within_the_limit() {
        for channel in ["game#\"1\"", &"ü".repeat(100), &"\"".repeat(100)] {
            let id = subscribe_command(channel.to_owned(), None, None).id.unwrap();
            assert!(is_json(id.as_bytes()) && id.len() <= ID_BYTES, "{id}");
        }
        assert_eq!(subscribe_command("game#1".to_owned(), None, None).id.as_deref(), Some("\"game#1\""));
    }
}
