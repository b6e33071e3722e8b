//! The messages that one subscriber has not read yet. Bounded: a new message drops the oldest, and a gap reports that.

use crate::message::{Message, Publication};
use std::collections::VecDeque;

/// What a message costs beside its own bytes.
const MESSAGE_OVERHEAD: usize = 64;

#[derive(Debug)]
pub struct ProcessMailbox {
    messages: VecDeque<Message>,
    bytes: usize,
    max_messages: usize,
    max_bytes: usize,
    /// Messages dropped at the front; the subscriber reads a gap first.
    gap: Option<u64>,
}

impl ProcessMailbox {
    pub fn new(max_messages: u64, max_bytes: u64) -> ProcessMailbox {
        let (max_messages, max_bytes) = (max_messages.max(1) as usize, max_bytes.max(1) as usize);
        ProcessMailbox { messages: VecDeque::new(), bytes: 0, max_messages, max_bytes, gap: None }
    }

    pub fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        self.messages.push_back(message);
        while self.messages.len() > self.max_messages
            || self.bytes > self.max_bytes && self.messages.len() > 1
        {
            let Some(dropped) = self.messages.pop_front() else { break };
            self.bytes -= size(&dropped);
            *self.gap.get_or_insert(0) += match dropped {
                Message::Gap { lost } => lost,
                _ => 1,
            };
        }
    }

    /// Records messages that were lost before they reached this mailbox, at the place where they would have been.
    pub fn push_gap(&mut self, lost: u64) {
        match self.messages.back_mut() {
            Some(Message::Gap { lost: sum }) => *sum += lost,
            Some(_) => {
                self.bytes += size(&Message::Gap { lost });
                self.messages.push_back(Message::Gap { lost });
            }
            None => *self.gap.get_or_insert(0) += lost,
        }
    }

    pub fn take(&mut self) -> Option<Message> {
        if let Some(lost) = self.gap.take() {
            return Some(Message::Gap { lost });
        }
        let message = self.messages.pop_front()?;
        self.bytes -= size(&message);
        if self.messages.is_empty() {
            // Release the memory of a burst.
            self.messages.shrink_to(64);
        }
        Some(message)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.gap.is_none()
    }
}

fn size(message: &Message) -> usize {
    message.publication().map_or(0, Publication::size) + MESSAGE_OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ChannelNamespace;
    use std::sync::Arc;

    fn message(id: i64) -> Message {
        let (channel, header, payload) = (b"c"[..].into(), Box::default(), b"xyz"[..].into());
        let namespace = ChannelNamespace::Public;
        Message::Channel(Arc::new(Publication {
            id,
            process: 0,
            subscriber: 0,
            namespace,
            channel,
            header,
            payload,
        }))
    }

    #[test]
    fn a_full_mailbox_drops_the_oldest_and_reports_a_gap_first() {
        let mut mailbox = ProcessMailbox::new(2, 1 << 20);
        (1..=5).for_each(|id| mailbox.push(message(id)));
        assert_eq!(mailbox.take(), Some(Message::Gap { lost: 3 }));
        assert_eq!(mailbox.take(), Some(message(4)));
        assert_eq!(mailbox.take(), Some(message(5)));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn bytes_are_bounded_and_a_single_message_always_fits() {
        let mut mailbox = ProcessMailbox::new(100, 150);
        (1..=4).for_each(|id| mailbox.push(message(id)));
        assert_eq!(mailbox.take(), Some(Message::Gap { lost: 2 }));
        let mut tiny = ProcessMailbox::new(100, 1);
        tiny.push(message(1));
        assert_eq!(tiny.take(), Some(message(1)));
    }

    #[test]
    fn a_gap_is_read_where_the_messages_were_lost() {
        let mut mailbox = ProcessMailbox::new(100, 1 << 20);
        mailbox.push(message(1));
        mailbox.push_gap(2);
        mailbox.push_gap(3);
        mailbox.push(message(7));
        let read: Vec<Message> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(read, [message(1), Message::Gap { lost: 5 }, message(7)]);
    }
}
