//! A mailbox: the events that one consumer has not yet read, bounded, in order, with a cursor.
//! Events are numbered from 1; the mailbox holds references. Events that were sent on a push connection stay for a
//! resume while there is room. Knows no transports and no policies.
//! Must hold: numbers have no holes; `first - 1 <= last`; the reader gets a gap for events that were dropped unread.

pub use crate::core::dropped::{DroppedHistory, HealedGap};
use crate::event::Event;
use std::collections::VecDeque;
use std::rc::Rc;
use tavern_domain::Time;
use tavern_store::planted;

#[derive(Debug)]
pub struct Mailbox {
    ring: VecDeque<Rc<Event>>,
    /// The number of the oldest event kept, or of the next one when none is kept.
    first: u64,
    /// The last number that the reader has for certain, or that a push transport took.
    sent: u64,
    /// The last number handed to the reader. A poll's answer is handed out, and sent when the next poll names its cursor.
    handed: u64,
    bytes: usize,
    /// Messages of channels with history that were dropped before the reader acknowledged them.
    dropped: Option<Box<DroppedHistory>>,
}

#[derive(Clone, Copy, Debug)]
pub struct MailboxLimits {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox { ring: VecDeque::new(), first: 1, sent: 0, handed: 0, bytes: 0, dropped: None }
    }
}

impl Mailbox {
    /// A mailbox that continues after `last`, for a session that migrated here.
    pub fn after(last: u64, sent: u64) -> Mailbox {
        let sent = sent.min(last);
        Mailbox { first: last + 1, sent, handed: sent, ..Mailbox::default() }
    }

    /// Goes on with what another mailbox of the same session has dropped.
    pub fn with_dropped(self, dropped: DroppedHistory) -> Mailbox {
        Mailbox { dropped: Some(Box::new(dropped)), ..self }
    }

    /// What was dropped before the reader acknowledged it.
    pub fn dropped(&self) -> Option<&DroppedHistory> {
        self.dropped.as_deref()
    }

    /// Drops everything, and numbers that were never here.
    pub fn skip(&mut self, count: u64) {
        while !self.ring.is_empty() {
            self.drop_oldest();
        }
        self.first += count;
    }

    /// The reader goes back to events that are not kept. Messages of channels with history among them can be read again: if
    /// the gap consists of nothing else, it is closed, and later events get smaller numbers.
    pub fn heal_gap(&mut self) -> Option<HealedGap> {
        // What was handed out may have arrived: its numbers stay until the reader says what it has.
        let (from, to) = self.gap().filter(|_| self.handed == self.sent)?;
        let healed = self.dropped.as_mut()?.heal(from, to);
        if healed.is_closed {
            self.first = from;
        }
        Some(healed)
    }

    /// Frees sent events for one more of this size. Some: there is still no room, and this unread event would be dropped.
    pub fn make_room(&mut self, size: usize, bounds: MailboxLimits) -> Option<&Rc<Event>> {
        let overflows = |mailbox: &Mailbox| {
            mailbox.ring.len() + 1 > bounds.events
                || (mailbox.bytes + size > bounds.bytes && !mailbox.ring.is_empty())
        };
        while overflows(self) && self.first <= self.handed {
            self.drop_oldest();
        }
        if overflows(self) { self.ring.front() } else { None }
    }

    /// Takes the events that `is_meant` and that were never handed out, as if they had never been added; later ones get
    /// smaller numbers. Returns those that are gone with their numbers.
    pub fn take_unread(&mut self, is_meant: impl Fn(&Event) -> bool) -> Vec<(u64, Rc<Event>)> {
        let (first, handed) = (self.first, self.handed);
        let (mut gone, mut seq, mut bytes) = (Vec::new(), first, 0);
        self.ring.retain(|event| {
            let taken = seq > handed && is_meant(event);
            if taken {
                gone.push((seq, event.clone()));
                bytes += event.size();
            }
            seq += 1;
            !taken
        });
        self.bytes -= bytes;
        gone
    }

    /// Adds an event; returns how many unread ones were dropped to make room. Sent events are dropped first.
    pub fn push(&mut self, event: Rc<Event>, bounds: MailboxLimits) -> usize {
        self.bytes += event.size();
        self.ring.push_back(event);
        let mut dropped = 0;
        while self.ring.len() > bounds.events || (self.bytes > bounds.bytes && self.ring.len() > 1) {
            dropped += usize::from(self.first > self.handed);
            self.drop_oldest();
        }
        if planted("hub-gap") {
            self.sent = self.sent.max(self.first - 1);
        }
        dropped
    }

    fn drop_oldest(&mut self) {
        let seq = self.first;
        if let Some(event) = self.free_oldest()
            && event.history().is_some()
        {
            self.dropped.get_or_insert_default().note(seq, &event);
        }
    }

    fn free_oldest(&mut self) -> Option<Rc<Event>> {
        let event = self.ring.pop_front()?;
        self.bytes -= event.size();
        self.first += 1;
        Some(event)
    }

    pub fn first(&self) -> u64 {
        self.first
    }

    pub fn last(&self) -> u64 {
        self.first + self.ring.len() as u64 - 1
    }

    pub fn sent(&self) -> u64 {
        self.sent
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.ring.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Whether there is something to send: an event or a gap.
    pub fn has_unread(&self) -> bool {
        self.last() > self.sent
    }

    pub fn unread(&self) -> usize {
        (self.last() - self.sent.max(self.first - 1)) as usize
    }

    /// The numbers that were dropped before the reader got them.
    pub fn gap(&self) -> Option<(u64, u64)> {
        (self.sent + 1 < self.first).then(|| (self.sent + 1, self.first - 1))
    }

    /// The unread events that were not dropped, with their numbers. A gap, if any, comes before them.
    pub fn unread_events(&self) -> impl Iterator<Item = (u64, &Rc<Event>)> {
        let skip = (self.sent + 1).saturating_sub(self.first) as usize;
        let from = self.first + skip as u64;
        self.ring
            .range(skip.min(self.ring.len())..)
            .enumerate()
            .map(move |(i, event)| (from + i as u64, event))
    }

    /// The reader has been handed everything up to `seq`.
    pub fn mark_sent(&mut self, seq: u64) {
        debug_assert!(seq <= self.last());
        self.sent = self.sent.max(seq);
        self.handed = self.handed.max(self.sent);
    }

    /// The reader is being given everything up to `seq`, and has it if it says so.
    pub fn mark_handed(&mut self, seq: u64) {
        self.handed = self.handed.max(seq.min(self.last()));
    }

    /// Sets the reader's cursor; later events are unread again. False: the cursor is beyond the last event.
    pub fn rewind(&mut self, seq: u64) -> bool {
        let known = seq <= self.last();
        self.sent = seq.min(self.last());
        self.handed = self.sent;
        known
    }

    /// Frees everything up to `seq`: the reader has acknowledged it.
    pub fn acknowledge(&mut self, seq: u64) {
        let seq = seq.min(self.last());
        self.sent = self.sent.max(seq);
        self.handed = self.handed.max(self.sent);
        while self.first <= seq && !self.ring.is_empty() {
            self.free_oldest();
        }
        if let Some(dropped) = &mut self.dropped {
            dropped.acknowledge(seq);
            if dropped.is_empty() {
                self.dropped = None;
            }
        }
    }

    /// Frees sent events older than `before`.
    pub fn forget_sent(&mut self, before: Time) {
        while self.first <= self.sent && self.ring.front().is_some_and(|event| event.at < before) {
            self.drop_oldest();
        }
        if self.ring.is_empty() && self.ring.capacity() > 0 {
            self.ring = VecDeque::new();
        }
    }

    /// Frees the oldest events until at most `bytes` are left; returns how many of them were unread.
    pub fn shrink_to(&mut self, bytes: usize) -> usize {
        let mut dropped = 0;
        while self.bytes > bytes && !self.ring.is_empty() {
            dropped += usize::from(self.first > self.handed);
            self.drop_oldest();
        }
        dropped
    }

    /// Removes and returns the oldest event, for readers that cannot resume.
    pub fn take(&mut self) -> Option<Rc<Event>> {
        let event = self.free_oldest()?;
        (self.sent, self.handed) = (self.first - 1, self.first - 1);
        Some(event)
    }

    /// All events, the oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Rc<Event>> {
        self.ring.iter()
    }

    pub fn take_many(&mut self, count: usize) {
        for event in self.ring.drain(..count) {
            self.bytes -= event.size();
        }
        self.first += count as u64;
        (self.sent, self.handed) = (self.first - 1, self.first - 1);
    }

    /// Frees the ring's memory when nothing is kept.
    pub fn release(&mut self) {
        if self.ring.is_empty() {
            self.ring = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventMemory;
    use crate::settings::SlowReader;
    use proptest::prelude::*;

    const ROOMY: MailboxLimits = MailboxLimits { events: 1000, bytes: 1 << 20 };

    fn event(at: u64) -> Rc<Event> {
        Event::json(Box::from(*b"}"), Time(at), SlowReader::Gap, &Rc::new(EventMemory::default()))
    }

    fn numbers(mailbox: &Mailbox) -> Vec<u64> {
        mailbox.unread_events().map(|(seq, _)| seq).collect()
    }

    #[test]
    fn numbers_count_from_one_and_continue_after_everything_was_read() {
        let mut mailbox = Mailbox::default();
        mailbox.push(event(1), ROOMY);
        mailbox.push(event(2), ROOMY);
        assert_eq!(numbers(&mailbox), [1, 2]);
        mailbox.acknowledge(2);
        assert!(mailbox.is_empty());
        mailbox.push(event(3), ROOMY);
        assert_eq!(numbers(&mailbox), [3]);
    }

    #[test]
    fn sent_events_are_dropped_before_unread_ones() {
        let bounds = MailboxLimits { events: 3, bytes: 1 << 20 };
        let mut mailbox = Mailbox::default();
        for at in 0..3 {
            assert_eq!(mailbox.push(event(at), bounds), 0);
        }
        mailbox.mark_sent(2);
        assert_eq!(mailbox.push(event(3), bounds), 0, "a sent event is dropped");
        assert_eq!(mailbox.push(event(4), bounds), 0, "another sent event is dropped");
        assert_eq!(mailbox.gap(), None);
        assert_eq!(mailbox.push(event(5), bounds), 1);
        assert_eq!(mailbox.gap(), Some((3, 3)));
        assert_eq!(numbers(&mailbox), [4, 5, 6]);
    }

    #[test]
    fn slow_reader_gets_a_gap_for_dropped_messages() {
        let mut mailbox = Mailbox::default();
        for at in 0..5 {
            mailbox.push(event(at), ROOMY);
        }
        mailbox.mark_sent(5);
        mailbox.forget_sent(Time(2));
        assert!(mailbox.rewind(1));
        assert_eq!(mailbox.gap(), Some((2, 2)));
        assert_eq!(numbers(&mailbox), [3, 4, 5]);
        assert!(mailbox.rewind(4));
        assert_eq!(mailbox.gap(), None);
        assert_eq!(numbers(&mailbox), [5]);
        assert!(!mailbox.rewind(9), "ahead of the mailbox");
    }

    #[test]
    fn one_event_larger_than_the_mailbox_is_kept_alone() {
        let bounds = MailboxLimits { events: 10, bytes: 1 };
        let mut mailbox = Mailbox::default();
        mailbox.push(event(1), bounds);
        assert_eq!(numbers(&mailbox), [1]);
        assert_eq!(mailbox.push(event(2), bounds), 1);
        assert_eq!(numbers(&mailbox), [2]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Send(u64),
        Acknowledge(u64),
        Rewind(u64),
        Forget(u64),
        Shrink(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Push),
            2 => (0..6u64).prop_map(Step::Send),
            1 => (0..40u64).prop_map(Step::Acknowledge),
            1 => (0..40u64).prop_map(Step::Rewind),
            1 => (0..40u64).prop_map(Step::Forget),
            1 => (0..1000usize).prop_map(Step::Shrink),
        ]
    }

    proptest! {
        /// After any sequence of operations: gap and unread events together are exactly the numbers after the last
        /// sent event.
        #[test]
        fn gap_and_unread_cover_everything_after_the_cursor(steps in prop::collection::vec(step(), 0..120)) {
            let bounds = MailboxLimits { events: 6, bytes: 800 };
            let mut mailbox = Mailbox::default();
            let mut pushed = 0;
            for step in steps {
                match step {
                    Step::Push => { pushed += 1; mailbox.push(event(pushed), bounds); }
                    Step::Send(n) => mailbox.mark_sent((mailbox.sent() + n).min(mailbox.last())),
                    Step::Acknowledge(seq) => mailbox.acknowledge(seq),
                    Step::Rewind(seq) => { mailbox.rewind(seq); }
                    Step::Forget(at) => mailbox.forget_sent(Time(at)),
                    Step::Shrink(bytes) => { mailbox.shrink_to(bytes); }
                }
                prop_assert_eq!(mailbox.last(), pushed);
                prop_assert!(mailbox.len() <= bounds.events);
                let mut next = mailbox.sent() + 1;
                if let Some((from, to)) = mailbox.gap() {
                    prop_assert_eq!(from, next);
                    next = to + 1;
                }
                for seq in numbers(&mailbox) {
                    prop_assert_eq!(seq, next);
                    next += 1;
                }
                prop_assert_eq!(next, pushed + 1);
                let kept: usize = mailbox.events().map(|event| event.size()).sum();
                prop_assert_eq!(kept, mailbox.bytes());
            }
        }
    }
}
