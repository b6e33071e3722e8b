//! The history of a channel: positions in it, pages of it, and where this client is.
//! Must hold: a message is delivered once and in the order of its offsets; missing ones are asked for.

use crate::Error;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A place in the history of a channel: everything up to it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelPosition {
    /// Another one means that the history was cleared, or lost, and began again.
    pub epoch: u64,
    /// Counts by one.
    pub offset: u64,
}

impl ChannelPosition {
    pub(crate) fn of(frame: &Value) -> Option<ChannelPosition> {
        Some(ChannelPosition { epoch: frame["epoch"].as_u64()?, offset: frame["offset"].as_u64()? })
    }
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubscribeFrom {
    /// With so many of the last messages.
    Last(u64),
    /// After a position.
    Since(ChannelPosition),
}

/// Which part of a history to read. Without an offset: its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Messages after this offset.
    pub after: Option<u64>,
    /// Messages before this offset.
    pub before: Option<u64>,
    /// At most so many; 100 by default.
    pub limit: Option<u64>,
}

/// A part of the history of a channel, the oldest message first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastMessages {
    /// The epoch of the history; 0: there is none.
    pub epoch: u64,
    /// The last offset.
    pub offset: u64,
    /// The messages.
    pub messages: Vec<PastMessage>,
    /// There are more in the direction that was asked for.
    pub more: bool,
}

/// A stored message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastMessage {
    /// Its place.
    pub offset: u64,
    /// When it was stored, in milliseconds.
    pub at: u64,
    /// The payload.
    pub data: Value,
    /// The publisher, if it was a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<PastSender>,
    /// `base64` when the payload is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The id that its publisher gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

impl PastMessage {
    /// The payload as a type of the app.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T, Error> {
        T::deserialize(&self.data).map_err(Error::unexpected)
    }
}

/// The publisher of a stored message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastSender {
    /// Their user; none: an anonymous client.
    pub user: Option<String>,
    /// Their client.
    pub client: Option<String>,
}

/// The reply to a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishReceipt {
    /// How many subscriptions on the server's node received it.
    pub receivers: u64,
    /// Its place, if the channel keeps history.
    pub position: Option<ChannelPosition>,
    /// Its id was published before: it is not delivered again.
    pub duplicate: bool,
}

/// Where this client is in one channel.
#[derive(Debug, Default)]
pub(crate) struct HistoryCursor {
    pub position: Option<ChannelPosition>,
    /// A subscription from a position is under way: over HTTP its messages may arrive before the answer.
    pub awaited: bool,
    /// Missing messages were asked for.
    pub heals: bool,
    /// A gap was announced: any later message may follow.
    pub jumps: bool,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageTurn {
    Deliver,
    Drop,
    /// Messages after this position are missing.
    Heal(ChannelPosition),
}

impl HistoryCursor {
    pub fn take(&mut self, place: Option<ChannelPosition>) -> MessageTurn {
        let Some(place) = place else { return MessageTurn::Deliver };
        if let Some(known) = self.position {
            if place <= known {
                return MessageTurn::Drop;
            }
            if place.epoch == known.epoch && place.offset > known.offset + 1 && !self.jumps {
                let asked = std::mem::replace(&mut self.heals, true);
                return if asked { MessageTurn::Drop } else { MessageTurn::Heal(known) };
            }
        }
        (self.position, self.jumps) = (Some(place), false);
        MessageTurn::Deliver
    }

    /// The server answered where the subscription begins.
    pub fn answered(&mut self, ok: &Value) {
        (self.awaited, self.heals) = (false, false);
        if self.position.is_none() || ok["recovered"] == false {
            self.position = ChannelPosition::of(ok);
        }
    }

    /// A new session subscribes again, from here. Until the answer any message may follow.
    pub fn restart(&mut self) -> Option<ChannelPosition> {
        (self.awaited, self.heals) = (self.position.is_some(), false);
        self.position.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(offset: u64) -> Option<ChannelPosition> {
        Some(ChannelPosition { epoch: 7, offset })
    }

    #[test]
    fn messages_are_taken_once_and_in_order() {
        let mut cursor = HistoryCursor::default();
        assert_eq!(cursor.take(None), MessageTurn::Deliver, "a channel without history");
        cursor.answered(&json!({"epoch": 7, "offset": 3}));
        assert_eq!(cursor.take(at(3)), MessageTurn::Drop);
        assert_eq!(cursor.take(at(4)), MessageTurn::Deliver);
        assert_eq!(cursor.take(at(6)), MessageTurn::Heal(at(4).expect("a position")));
        assert_eq!(cursor.take(at(7)), MessageTurn::Drop, "it comes again");
        cursor.answered(&json!({"epoch": 7, "offset": 4, "recovered": true}));
        assert_eq!(cursor.take(at(5)), MessageTurn::Deliver);
        cursor.jumps = true;
        assert_eq!(cursor.take(at(9)), MessageTurn::Deliver, "a gap was announced");
        let begun = Some(ChannelPosition { epoch: 8, offset: 1 });
        assert_eq!(cursor.take(begun), MessageTurn::Deliver, "the history began again");
    }

    #[test]
    fn what_is_lost_moves_the_position() {
        let mut cursor = HistoryCursor { position: at(9), ..HistoryCursor::default() };
        assert_eq!(cursor.restart(), at(9));
        cursor.answered(&json!({"epoch": 7, "offset": 4, "recovered": false}));
        assert_eq!(cursor.take(at(5)), MessageTurn::Deliver);
    }
}
