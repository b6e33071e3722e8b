//! The order of one channel's messages on this shard. Messages arrive from several shards and nodes; each is given out once,
//! in the order of the history. Knows no listeners and no store.
//! Must hold: positions only grow; a message is given out only if everything before it was, or was skipped as lost.

use crate::event::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::HistoryPosition;
use tavern_domain::history::Arrival;

/// Messages that wait for earlier ones. Beyond this they are dropped here and read from the store.
const AHEAD_MAX: usize = 1_024;

#[derive(Default)]
pub(super) struct MessageOrder {
    /// Listeners have everything up to here; None: not known yet.
    position: Option<HistoryPosition>,
    ahead: BTreeMap<HistoryPosition, Arc<Message>>,
}

impl MessageOrder {
    pub fn position(&self) -> Option<HistoryPosition> {
        self.position
    }

    /// Takes a message that arrived; `next` gives it out when it is its turn.
    pub fn arrive(&mut self, message: Arc<Message>) {
        let Some(stamp) = message.history() else { return };
        let is_known = self.position.is_some_and(|last| last.arrival(stamp.position) == Arrival::Known);
        if !is_known {
            self.ahead.insert(stamp.position, message);
            if self.ahead.len() > AHEAD_MAX {
                self.ahead.pop_last();
            }
        }
    }

    /// The next message to deliver.
    pub fn next(&mut self) -> Option<Arc<Message>> {
        let last = self.position?;
        loop {
            let first = self.ahead.first_entry()?;
            let position = *first.key();
            match last.arrival(position) {
                Arrival::Known => drop(first.remove()),
                Arrival::Next => {
                    self.position = Some(position);
                    return Some(first.remove());
                }
                Arrival::Ahead => return None,
            }
        }
    }

    /// Whether a message is missing.
    pub fn has_hole(&self) -> bool {
        self.position.is_some() && !self.ahead.is_empty()
    }

    /// The history is known to end at `head`. Messages that arrived before are given out, also if they are not after it:
    /// sessions that subscribed before they were published must get them.
    pub fn begin(&mut self, head: HistoryPosition) {
        if self.position.is_none() {
            let first = self.ahead.keys().next().filter(|first| first.epoch == head.epoch);
            let before = first.map_or(head.offset, |first| head.offset.min(first.offset - 1));
            self.position = Some(HistoryPosition { offset: before, ..head });
        }
    }

    /// Without knowing the end of the history: begins with the first message that arrived.
    pub fn begin_with_arrived(&mut self) {
        if let Some(first) = self.ahead.keys().next() {
            self.position.get_or_insert(HistoryPosition { offset: first.offset - 1, ..*first });
        }
    }

    /// What lies between is lost.
    pub fn skip_to(&mut self, position: HistoryPosition) {
        if self.position.is_none_or(|last| last < position) {
            self.position = Some(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Namespace;
    use tavern_domain::{HistoryStamp, Time};

    fn at(epoch: u64, offset: u64) -> HistoryPosition {
        HistoryPosition { epoch, offset }
    }

    fn arrive(order: &mut MessageOrder, positions: &[(u64, u64)]) -> Vec<(u64, u64)> {
        for &(epoch, offset) in positions {
            let stamp = HistoryStamp { position: at(epoch, offset), at: Time(1) };
            let message = Message::new(Namespace::Channel, b"chat#1", b"x", true, None);
            order.arrive(Arc::new(message.with_history(Some(stamp), true)));
        }
        let given = std::iter::from_fn(|| order.next()).filter_map(|message| message.history());
        given.map(|stamp| (stamp.position.epoch, stamp.position.offset)).collect()
    }

    fn begun(epoch: u64, offset: u64) -> MessageOrder {
        let mut order = MessageOrder::default();
        order.begin(at(epoch, offset));
        order
    }

    #[test]
    fn messages_are_given_out_in_order_and_once() {
        let mut order = begun(7, 3);
        assert_eq!(arrive(&mut order, &[(7, 5)]), []);
        assert!(order.has_hole());
        assert_eq!(arrive(&mut order, &[(7, 3), (7, 6), (7, 4), (7, 4)]), [(7, 4), (7, 5), (7, 6)]);
        assert_eq!(arrive(&mut order, &[(7, 5), (6, 9)]), []);
        assert!(!order.has_hole());
    }

    #[test]
    fn a_new_epoch_begins_with_its_first_message() {
        let mut order = begun(7, 3);
        assert_eq!(arrive(&mut order, &[(8, 2)]), []);
        assert_eq!(arrive(&mut order, &[(8, 1)]), [(8, 1), (8, 2)]);
        assert_eq!(arrive(&mut order, &[(7, 4)]), []);
    }

    #[test]
    fn messages_that_arrived_before_the_end_was_known_are_given_out() {
        let mut order = MessageOrder::default();
        assert_eq!(arrive(&mut order, &[(7, 4), (7, 5)]), []);
        order.begin(at(7, 4));
        assert_eq!(arrive(&mut order, &[]), [(7, 4), (7, 5)]);
    }

    #[test]
    fn lost_messages_are_skipped() {
        let mut order = begun(7, 3);
        assert_eq!(arrive(&mut order, &[(7, 9)]), []);
        order.skip_to(at(7, 8));
        assert_eq!(arrive(&mut order, &[]), [(7, 9)]);
        order.skip_to(at(7, 1));
        assert_eq!(order.position(), Some(at(7, 9)), "positions only grow");
    }

    #[test]
    fn waiting_messages_are_bounded() {
        let mut order = begun(7, 0);
        let many: Vec<(u64, u64)> = (2..AHEAD_MAX as u64 + 100).map(|offset| (7, offset)).collect();
        assert_eq!(arrive(&mut order, &many), []);
        assert_eq!(order.ahead.len(), AHEAD_MAX);
        assert_eq!(arrive(&mut order, &[(7, 1)]).len(), AHEAD_MAX);
    }
}
