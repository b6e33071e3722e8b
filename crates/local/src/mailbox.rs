//! What one subscriber has not read yet: bounded; what does not fit pushes out the oldest, and that is told.

use crate::message::Message;
use std::collections::VecDeque;

#[derive(Debug)]
pub struct Mailbox {
    messages: VecDeque<Message>,
    bytes: usize,
    most_messages: usize,
    most_bytes: usize,
    /// Messages dropped at the front; the next thing to be read is a gap.
    gap: Option<u64>,
}

impl Mailbox {
    pub fn new(most_messages: u64, most_bytes: u64) -> Mailbox {
        let (most_messages, most_bytes) = (most_messages.max(1) as usize, most_bytes.max(1) as usize);
        Mailbox { messages: VecDeque::new(), bytes: 0, most_messages, most_bytes, gap: None }
    }

    pub fn push(&mut self, message: Message) {
        self.bytes += size(&message);
        self.messages.push_back(message);
        while self.messages.len() > self.most_messages
            || self.bytes > self.most_bytes && self.messages.len() > 1
        {
            let Some(dropped) = self.messages.pop_front() else { break };
            self.bytes -= size(&dropped);
            *self.gap.get_or_insert(0) += match dropped {
                Message::Gap { lost } => lost,
                _ => 1,
            };
        }
    }

    /// Messages were lost before they came here. The gap stands where they would have.
    pub fn lose(&mut self, lost: u64) {
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
            // One burst must not hold its memory for ever.
            self.messages.shrink_to(64);
        }
        Some(message)
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.gap.is_none()
    }
}

fn size(message: &Message) -> usize {
    message.words().map_or(0, |words| words.size()) + 64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Space, Words};
    use std::sync::Arc;

    fn message(id: i64) -> Message {
        let (channel, note, payload) = (b"c"[..].into(), Box::default(), b"xyz"[..].into());
        let words = Words { id, process: 0, subscriber: 0, space: Space::Public, channel, note, payload };
        Message::Message(Arc::new(words))
    }

    #[test]
    fn the_oldest_make_room_and_are_told_first() {
        let mut mailbox = Mailbox::new(2, 1 << 20);
        (1..=5).for_each(|id| mailbox.push(message(id)));
        assert_eq!(mailbox.take(), Some(Message::Gap { lost: 3 }));
        assert_eq!(mailbox.take(), Some(message(4)));
        assert_eq!(mailbox.take(), Some(message(5)));
        assert_eq!(mailbox.take(), None);
    }

    #[test]
    fn bytes_are_bounded_too_but_one_message_always_fits() {
        let mut mailbox = Mailbox::new(100, 150);
        (1..=4).for_each(|id| mailbox.push(message(id)));
        assert_eq!(mailbox.take(), Some(Message::Gap { lost: 2 }));
        let mut tiny = Mailbox::new(100, 1);
        tiny.push(message(1));
        assert_eq!(tiny.take(), Some(message(1)));
    }

    #[test]
    fn a_loss_stands_in_its_place() {
        let mut mailbox = Mailbox::new(100, 1 << 20);
        mailbox.push(message(1));
        mailbox.lose(2);
        mailbox.lose(3);
        mailbox.push(message(7));
        let read: Vec<Message> = std::iter::from_fn(|| mailbox.take()).collect();
        assert_eq!(read, [message(1), Message::Gap { lost: 5 }, message(7)]);
    }
}
