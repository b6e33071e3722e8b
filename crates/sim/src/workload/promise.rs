//! The promises to a session about messages, checked as it receives them: numbers without holes, each publisher in
//! order, no duplicates, nothing missing unless a gap was announced. Knows nothing of how events are delivered.

use std::collections::BTreeMap;

/// One publisher's messages on one channel, counted from 1.
pub type MessageSource = (usize, usize);

/// The promises to one session and what it has received.
#[derive(Clone, Debug, Default)]
pub struct Promise {
    /// The last sequence number that was received.
    pub seq: u64,
    /// By channel: the counts of each publisher when the subscription was confirmed or a gap was received, and what
    /// arrived.
    channels: BTreeMap<usize, ReceivedMessages>,
}

#[derive(Clone, Debug, Default)]
struct ReceivedMessages {
    /// Messages published before the confirmation of the subscription may arrive, but need not.
    floor: BTreeMap<usize, u64>,
    /// The next count of each publisher that must arrive; absent: the first after the floor, or any after a gap.
    next: BTreeMap<usize, u64>,
    /// The highest count received of each publisher.
    highest: BTreeMap<usize, u64>,
    /// After a gap the first message of a publisher sets the count again.
    open: bool,
}

impl ReceivedMessages {
    fn open(&mut self) {
        self.next.clear();
        self.open = true;
    }
}

impl Promise {
    pub fn listens(&self, channel: usize) -> bool {
        self.channels.contains_key(&channel)
    }

    /// A subscription was confirmed while the publishers had these `counts`.
    pub fn subscribed(&mut self, channel: usize, counts: &BTreeMap<MessageSource, u64>) {
        if self.listens(channel) {
            return;
        }
        let received = self.channels.entry(channel).or_default();
        let here = counts.iter().filter(|((_, on), _)| *on == channel);
        received.floor = here.map(|(&(publisher, _), &count)| (publisher, count)).collect();
    }

    pub fn unsubscribed(&mut self, channel: usize) {
        self.channels.remove(&channel);
    }

    /// An event with this number arrived.
    pub fn numbered(&mut self, seq: u64) -> Result<(), String> {
        if seq != self.seq + 1 {
            return Err(format!("seq {seq} arrived after {}", self.seq));
        }
        self.seq = seq;
        Ok(())
    }

    /// A gap arrived in the place of `from..=to`.
    pub fn gap(&mut self, from: u64, to: u64) -> Result<(), String> {
        if from != self.seq + 1 || to < from {
            return Err(format!("gap {from}..{to} arrived after {}", self.seq));
        }
        self.seq = to;
        self.channels.values_mut().for_each(ReceivedMessages::open);
        Ok(())
    }

    /// A gap for one channel arrived: messages of another node may have been lost.
    pub fn channel_gap(&mut self, channel: usize) {
        if let Some(received) = self.channels.get_mut(&channel) {
            received.open();
        }
    }

    /// A message arrived: the `count`th of this publisher on this channel.
    pub fn message(&mut self, (publisher, channel): MessageSource, count: u64) -> Result<(), String> {
        // Messages in flight when the subscription ended may still arrive from another shard.
        let Some(received) = self.channels.get_mut(&channel) else { return Ok(()) };
        let highest = received.highest.get(&publisher).copied().unwrap_or(0);
        if count <= highest {
            return Err(format!(
                "message {count} of publisher {publisher} on {channel} arrived after {highest}"
            ));
        }
        let floor = received.floor.get(&publisher).copied().unwrap_or(0);
        if count > floor {
            let fresh = if received.open { count } else { floor + 1 };
            let next = *received.next.entry(publisher).or_insert(fresh);
            if count != next {
                return Err(format!(
                    "message {next} of publisher {publisher} on {channel} is missing, {count} arrived"
                ));
            }
            received.next.insert(publisher, count + 1);
        }
        received.highest.insert(publisher, count);
        Ok(())
    }

    /// Everything has been delivered: no promised message may be missing.
    pub fn complete(&self, counts: &BTreeMap<MessageSource, u64>) -> Result<(), String> {
        for (&channel, received) in &self.channels {
            for (&(publisher, _), &count) in counts.iter().filter(|((_, on), _)| *on == channel) {
                let next = match received.next.get(&publisher) {
                    Some(next) => *next,
                    None if received.open => continue,
                    None => received.floor.get(&publisher).copied().unwrap_or(0) + 1,
                };
                if next <= count {
                    let last = next - 1;
                    return Err(format!(
                        "of publisher {publisher} on {channel} only {last} of {count} arrived"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise() -> Promise {
        let mut promise = Promise::default();
        promise.subscribed(7, &BTreeMap::from([((1, 7), 4)]));
        promise
    }

    #[test]
    fn holes_duplicates_and_disorder_are_detected() {
        let mut ok = promise();
        assert!(ok.message((1, 7), 5).is_ok());
        assert!(ok.message((1, 7), 5).is_err(), "twice");
        assert!(promise().message((1, 7), 6).is_err(), "5 is missing");
        assert!(promise().message((2, 7), 2).is_err(), "a new publisher begins with 1");
        assert!(promise().complete(&BTreeMap::from([((1, 7), 5)])).is_err(), "5 never arrived");
        assert!(promise().numbered(2).is_err());
    }

    #[test]
    fn gap_covers_missing_messages() {
        let mut promise = promise();
        promise.gap(1, 3).unwrap();
        assert!(promise.message((1, 7), 9).is_ok());
        assert!(promise.message((1, 7), 11).is_err(), "after the gap the order holds again");
        assert!(promise.gap(3, 4).is_err(), "gaps follow the numbers");
    }
}
