//! What goes beside the payload of a channel message between nodes. Must hold: a header that cannot be read is dropped
//! alone, never with its message.

use super::message::{HistoryPlace, MessageHeader};
use prost::Message as _;
use tavern_domain::{ClientId, HistoryPosition, HistoryStamp, Time};

/// The header of a channel message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelHeader<'a> {
    /// The payload is known to be JSON.
    pub json: bool,
    /// The client that published it, if it was one.
    pub client: Option<ClientId>,
    /// The client's user, if they have one.
    pub user: Option<&'a str>,
    /// Its place in the history of its channel.
    pub history: Option<HistoryStamp>,
}

/// A header as it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedHeader {
    pub json: bool,
    pub client: Option<ClientId>,
    /// Only with a client.
    pub user: Option<String>,
    pub history: Option<HistoryStamp>,
}

pub fn encode(header: ChannelHeader<'_>) -> Vec<u8> {
    let client = header.client.map(|client| client.to_string());
    let history = header.history.map(|HistoryStamp { position, at }| HistoryPlace {
        epoch: position.epoch,
        offset: position.offset,
        at: at.ms(),
    });
    MessageHeader { json: header.json, client, user: header.user.map(Into::into), history }.encode_to_vec()
}

pub fn decode(bytes: &[u8]) -> ReceivedHeader {
    let Ok(message) = MessageHeader::decode(bytes) else { return ReceivedHeader::default() };
    let client = message.client.as_deref().and_then(ClientId::parse);
    let history = message.history.map(|place| HistoryStamp {
        position: HistoryPosition { epoch: place.epoch, offset: place.offset },
        at: Time(place.at),
    });
    ReceivedHeader { json: message.json, client, user: message.user.filter(|_| client.is_some()), history }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_as_it_was_written() {
        let client = Some(ClientId::from_random(77));
        for (json, client, user) in
            [(true, client, Some("anné")), (false, client, None), (true, None, None), (false, None, None)]
        {
            let position = HistoryPosition { epoch: 7, offset: 9 };
            for history in [None, Some(HistoryStamp { position, at: Time(5) })] {
                let read = decode(&encode(ChannelHeader { json, client, user, history }));
                assert_eq!(read, ReceivedHeader { json, client, user: user.map(Into::into), history });
            }
        }
        assert!(encode(ChannelHeader::default()).is_empty());
    }

    #[test]
    fn a_header_that_cannot_be_read_is_empty() {
        let nameless =
            MessageHeader { json: true, client: Some("?".into()), user: Some("ann".into()), history: None };
        assert_eq!(
            decode(&nameless.encode_to_vec()),
            ReceivedHeader { json: true, ..ReceivedHeader::default() }
        );
        for broken in [&b"\xff"[..], b"\x12\x7f", b"{}"] {
            assert_eq!(decode(broken), ReceivedHeader::default(), "{broken:?}");
        }
    }
}
