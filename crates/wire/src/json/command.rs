//! Commands that the server runs for a client that cannot send any.

use super::encode::string;
use super::request::ID_BYTES;

/// The command that a channel in the URL of a stream stands for. Its id is the channel, as far as an id may be long.
pub fn subscribe_command(channel: &str) -> Vec<u8> {
    let mut frame = b"{\"id\":".to_vec();
    frame.extend_from_slice(&id(channel));
    frame.extend_from_slice(b",\"op\":\"subscribe\",\"channel\":");
    string(&mut frame, channel);
    frame.push(b'}');
    frame
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
    use super::super::{Op, SubscribeRequest, parse_request};
    use super::*;

    #[test]
    fn it_reads_back_as_a_subscribe_whose_id_is_the_channel() {
        for channel in ["game#\"1\"", &"ü".repeat(100), &"\"".repeat(100)] {
            let frame = subscribe_command(channel);
            let request = parse_request(&frame).unwrap();
            assert!(request.id.is_some());
            assert!(matches!(request.op, Op::Subscribe(SubscribeRequest { .. })), "{channel}");
        }
    }
}
