//! Where a subscriber that recovers gets messages from: recent ones, and a page of the store.

use super::reader::ReadPage;
use crate::core::Core;
use crate::event::{Author, Event, Message, Namespace};
use std::collections::VecDeque;
use std::rc::Rc;
use tavern_domain::{HistoryPosition, HistoryStamp, Time};
use tavern_store::HistoryMessage;
use tavern_wire::json;

/// A page as events.
pub(super) struct PageEvents {
    pub asked: ReadPage,
    pub events: Vec<Rc<Event>>,
    pub more: bool,
    pub head: HistoryPosition,
}

/// Where a subscriber that recovers gets messages from.
pub(super) struct EventSource<'a> {
    pub recent: &'a VecDeque<Rc<Event>>,
    pub page: Option<&'a PageEvents>,
    /// Everything up to here was delivered to the others.
    pub position: HistoryPosition,
    /// Messages up to this time are too old.
    pub expired: Time,
}

/// What is known about the message at an offset.
pub(super) enum FoundEvent<'a> {
    Event(&'a Rc<Event>),
    /// It is not stored any more; the next one that is has this offset.
    Lost(u64),
    /// The store must be asked.
    Unknown,
}

impl EventSource<'_> {
    /// The message at an offset, or the next stored one.
    pub fn find(&self, epoch: u64, offset: u64) -> FoundEvent<'_> {
        if epoch != self.position.epoch {
            return FoundEvent::Unknown;
        }
        if let Some(event) = at_offset(self.recent, offset) {
            return FoundEvent::Event(event);
        }
        let Some(page) = self.page else { return FoundEvent::Unknown };
        if page.head.epoch != epoch {
            // Cleared, if the epoch was known before the store was asked.
            let cleared = page.head.epoch < epoch && epoch <= page.asked.epoch;
            return if cleared { FoundEvent::Lost(self.position.offset + 1) } else { FoundEvent::Unknown };
        }
        let next = page.events.iter().find(|event| offset_of(event) >= offset);
        match next {
            Some(event) if offset_of(event) == offset => FoundEvent::Event(event),
            // The page begins at or before the offset, so what it leaves out is not stored.
            Some(event) if page.asked.covers(offset, page.more) => FoundEvent::Lost(offset_of(event)),
            // What is newer than the page may be stored.
            None if page.asked.covers(offset, page.more) && !page.more && offset <= page.head.offset => {
                FoundEvent::Lost(page.head.offset + 1)
            }
            _ => FoundEvent::Unknown,
        }
    }

    /// The end of the history in the store, if it was just read.
    pub fn page_head(&self) -> Option<HistoryPosition> {
        self.page.map(|page| page.head)
    }

    /// Whether the store was just read and does not have this position.
    pub fn is_beyond_store(&self, position: HistoryPosition) -> bool {
        self.page_head().is_some_and(|head| head < position)
    }

    /// A message that is too old counts as lost for a subscriber that begins.
    pub fn is_expired(&self, event: &Event) -> bool {
        event.history().is_some_and(|stamp| stamp.at <= self.expired)
    }

    /// The oldest message of a page with at least so many of the newest.
    pub fn first_of_newest(&self, count: u64) -> Option<u64> {
        let page = self.page.filter(|page| page.asked.newest.is_some_and(|asked| asked >= count))?;
        page.events.first().map(|event| offset_of(event))
    }
}

fn at_offset(recent: &VecDeque<Rc<Event>>, offset: u64) -> Option<&Rc<Event>> {
    let first = offset_of(recent.front()?);
    recent.get(usize::try_from(offset.checked_sub(first)?).ok()?)
}

pub(super) fn follows(last: &Event, next: &Event) -> bool {
    epoch_of(last) == epoch_of(next) && offset_of(last) + 1 == offset_of(next)
}

pub(super) fn offset_of(event: &Event) -> u64 {
    event.history().map_or(0, |stamp| stamp.position.offset)
}

pub(super) fn epoch_of(event: &Event) -> u64 {
    event.history().map_or(0, |stamp| stamp.position.epoch)
}

pub(super) fn gap_event(core: &Core, channel: &str) -> Rc<Event> {
    let mut tail = Vec::new();
    json::channel_gap_tail(&mut tail, channel);
    Event::history_gap(tail.into_boxed_slice(), core.now, channel.into(), &core.event_memory)
}

pub(super) fn message_of(channel: &str, is_numbered: bool, epoch: u64, row: &HistoryMessage) -> Message {
    let author = row.sender.clone().map(|sender| Author { user: sender.user, client: sender.client });
    let position = HistoryPosition { epoch, offset: row.offset };
    let message = Message::new(Namespace::Channel, channel.as_bytes(), &row.body, row.json, author);
    message.with_history(Some(HistoryStamp { position, at: row.at }), is_numbered)
}
