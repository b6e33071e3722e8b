//! Channel history: positions in it, and which message may be delivered next.
//! Must hold: subscribers get the messages of an epoch in the order of their offsets, each once.

use crate::time::Time;

/// A position in the history of a channel. Offsets count from 1 within an epoch; a history that starts again after it
/// was cleared or lost has a higher epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryPosition {
    /// 0: there is no history.
    pub epoch: u64,
    pub offset: u64,
}

/// The position and time that the store gave to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryStamp {
    pub position: HistoryPosition,
    pub at: Time,
}

/// How much the history of a channel keeps. The newest message is kept, however large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    pub messages: u64,
    /// Of all bodies.
    pub bytes: u64,
    pub ttl_ms: u64,
}

/// What to do with a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It follows the last one that was delivered.
    Next,
    /// It was already delivered, or belongs to an epoch that has ended.
    Known,
    /// Messages before it are missing.
    Ahead,
}

impl HistoryPosition {
    /// How a message at `position` relates to subscribers that have everything up to `self`.
    pub fn arrival(self, position: HistoryPosition) -> Arrival {
        if position <= self {
            return Arrival::Known;
        }
        let next = HistoryPosition { offset: self.offset + 1, ..self };
        // A new epoch: no message of the one before can follow.
        let first = position.epoch > self.epoch && position.offset == 1;
        if position == next || first { Arrival::Next } else { Arrival::Ahead }
    }

    /// Whether everything after `self` is stored, when the history ends at `head` and `next` is the oldest stored offset
    /// after `self`.
    pub fn is_recoverable(self, head: HistoryPosition, next: Option<u64>) -> bool {
        self.epoch == head.epoch
            && self.offset <= head.offset
            && (self.offset == head.offset || next == Some(self.offset + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, offset: u64) -> HistoryPosition {
        HistoryPosition { epoch, offset }
    }

    #[test]
    fn messages_are_delivered_in_the_order_of_their_offsets() {
        for (position, expected) in [
            (at(7, 4), Arrival::Next),
            (at(7, 3), Arrival::Known),
            (at(7, 1), Arrival::Known),
            (at(7, 5), Arrival::Ahead),
            (at(6, 9), Arrival::Known),
            (at(8, 1), Arrival::Next),
            (at(8, 2), Arrival::Ahead),
        ] {
            assert_eq!(at(7, 3).arrival(position), expected, "{position:?}");
        }
        assert_eq!(HistoryPosition::default().arrival(at(7, 1)), Arrival::Next);
    }

    #[test]
    fn a_position_is_recoverable_while_everything_after_it_is_stored() {
        let since = at(7, 3);
        for (head, next, expected) in [
            (at(7, 3), None, true),
            (at(7, 9), Some(4), true),
            (at(7, 9), Some(5), false),
            (at(7, 9), None, false),
            (at(7, 2), None, false),
            (at(8, 3), None, false),
            (at(0, 0), None, false),
        ] {
            assert_eq!(since.is_recoverable(head, next), expected, "{head:?} {next:?}");
        }
        assert!(HistoryPosition::default().is_recoverable(at(0, 0), None), "an empty history stays empty");
    }
}
