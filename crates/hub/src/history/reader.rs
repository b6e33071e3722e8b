//! A subscriber that gets older messages of a channel before live ones: it recovers from a position, or asked for the last
//! messages. It gets them as it reads: its mailbox is filled to half at most.
//! Must hold: it gets messages in order; it is finished when it has everything that the others have.

use super::source::{EventSource, FoundEvent, gap_event};
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, ReplyTo};
use tavern_domain::HistoryPosition;

/// Where a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderStart {
    /// With the next message.
    Now,
    /// With so many of the last messages.
    Last(u64),
    /// After a position, if everything after it is stored.
    Since(HistoryPosition),
    /// It has begun and has everything up to here.
    After(HistoryPosition),
}

/// The answer to a subscriber: messages after this position follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subscribed {
    pub position: HistoryPosition,
    /// None: it named no position.
    pub recovered: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HistoryReader {
    pub id: ListenerId,
    pub link: LinkId,
    pub start: ReaderStart,
    /// The command that waits for the answer.
    pub claim: Option<ReplyTo>,
    answer: Option<Subscribed>,
    answered: bool,
    /// The answer is being written: messages may follow it.
    answer_sent: bool,
    /// The store was asked since it began.
    asked: bool,
    /// Its mailbox is full enough: it goes on when the client has read.
    full: bool,
    done: bool,
}

/// What was asked of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadPage {
    /// The epoch of the channel that was known here.
    pub epoch: u64,
    pub after: u64,
    /// So many of the newest instead.
    pub newest: Option<u64>,
}

impl ReadPage {
    /// Whether the page shows if the message at an offset is stored.
    pub fn covers(&self, offset: u64, more: bool) -> bool {
        match self.newest {
            None => self.after < offset,
            Some(_) => !more,
        }
    }
}

impl HistoryReader {
    pub fn new(id: ListenerId, link: LinkId, start: ReaderStart) -> HistoryReader {
        let answered = matches!(start, ReaderStart::After(_));
        HistoryReader {
            id,
            link,
            start,
            claim: None,
            answer: None,
            answered,
            answer_sent: answered,
            asked: false,
            full: false,
            done: false,
        }
    }

    /// It has begun on another node, or its mailbox overflowed.
    pub fn after(id: ListenerId, position: HistoryPosition) -> HistoryReader {
        HistoryReader::new(id, LinkId(0), ReaderStart::After(position))
    }

    /// It subscribes again, and has unread messages after a position.
    pub fn again(id: ListenerId, link: LinkId, position: HistoryPosition) -> HistoryReader {
        let mut reader = HistoryReader::new(id, link, ReaderStart::Now);
        reader.go_on(Subscribed { position, recovered: None });
        reader
    }

    pub fn is_unanswered(&self) -> bool {
        !self.answered && self.answer.is_none()
    }

    pub fn take_answer(&mut self) -> Option<Subscribed> {
        let answer = self.answer.take();
        self.answered |= answer.is_some();
        answer
    }

    pub fn is_finished(&self) -> bool {
        self.done && self.answered && self.answer_sent
    }

    /// Messages may follow from now on.
    pub fn set_answer_sent(&mut self) {
        self.answer_sent = true;
    }

    /// The first message that it needs, if the others have everything up to `position`.
    pub fn first(&self, position: HistoryPosition) -> u64 {
        match self.start {
            ReaderStart::Since(since) if since.epoch == 0 => 1,
            ReaderStart::Since(after) | ReaderStart::After(after) if after.epoch == position.epoch => {
                after.offset + 1
            }
            ReaderStart::Last(count) => (position.offset + 1).saturating_sub(count).max(1),
            ReaderStart::Since(_) | ReaderStart::After(_) | ReaderStart::Now => 0,
        }
    }

    /// Whether it needs older messages than those that everybody gets next after `position`.
    pub fn wants_read(&self, position: Option<HistoryPosition>) -> bool {
        let waits = self.done || self.full || self.start == ReaderStart::Now || self.is_ahead(position);
        !waits && (self.answer_sent || self.is_unanswered())
    }

    /// It has more than the other subscribers here: this node has missed messages.
    pub fn is_ahead(&self, position: Option<HistoryPosition>) -> bool {
        match self.start {
            ReaderStart::After(after) => position.is_some_and(|position| after > position),
            _ => false,
        }
    }

    /// What its client has, if the store was asked since it came.
    pub fn checked_position(&self) -> Option<HistoryPosition> {
        self.position().filter(|_| self.asked && matches!(self.start, ReaderStart::After(_)))
    }

    /// The store is being asked.
    pub fn set_asked(&mut self) {
        self.asked = true;
    }

    pub fn has_room(&mut self) {
        self.full = false;
    }

    /// Everything up to here is in its mailbox.
    pub fn position(&self) -> Option<HistoryPosition> {
        match self.start {
            ReaderStart::Since(position) | ReaderStart::After(position) => Some(position),
            ReaderStart::Now | ReaderStart::Last(_) => None,
        }
    }

    /// Takes what is at hand.
    pub fn serve(&mut self, core: &mut Core, channel: &str, source: &EventSource<'_>) {
        if core.listeners.get(self.id).is_none() {
            (self.done, self.answered, self.answer_sent) = (true, true, true);
            return;
        }
        self.begin(source);
        let mut room = MailboxRoom::of(core, self.id);
        while let ReaderStart::After(after) = self.start
            && self.answer_sent
            && !self.done
            && !self.full
        {
            if after > source.position {
                if !(self.asked && source.is_beyond_store(after)) {
                    break;
                }
                // The store has lost what this client has.
                let event = gap_event(core, channel);
                core.deliver_event(self.id.index, &event);
                self.start = ReaderStart::After(source.position);
                continue;
            }
            if after.epoch != source.position.epoch {
                // It began when no message was stored. This node may not know yet that the history was cleared: only the
                // store knows whether the messages here are newer.
                let stored = source.page_head().filter(|_| self.asked);
                let Some(stored) = stored.or((after.epoch > 0).then_some(source.position)) else { break };
                let is_current = stored.epoch == source.position.epoch;
                if after.epoch > 0 || !is_current {
                    // The history was cleared: what was not read is gone.
                    let event = gap_event(core, channel);
                    core.deliver_event(self.id.index, &event);
                }
                let offset = if is_current { 0 } else { source.position.offset };
                self.start = ReaderStart::After(HistoryPosition { offset, ..source.position });
                continue;
            }
            if after == source.position {
                self.done = true;
                break;
            }
            if room.is_full() {
                self.full = true;
                break;
            }
            match source.find(after.epoch, after.offset + 1) {
                FoundEvent::Event(event) => {
                    room.take(event.size());
                    core.deliver_event(self.id.index, event);
                    self.start = ReaderStart::After(HistoryPosition { offset: after.offset + 1, ..after });
                }
                FoundEvent::Lost(next) => {
                    let event = gap_event(core, channel);
                    core.deliver_event(self.id.index, &event);
                    let offset = next.saturating_sub(1).max(after.offset + 1);
                    self.start = ReaderStart::After(HistoryPosition { offset, ..after });
                }
                FoundEvent::Unknown => break,
            }
        }
        // Other channels may be recovering too: only `History::feed` clears it.
        if self.full
            && !self.done
            && let Some(listener) = core.listeners.get_mut(self.id)
        {
            listener.recovering = true;
        }
    }

    /// Finds out where it begins, as soon as that is known.
    fn begin(&mut self, source: &EventSource<'_>) {
        let head = source.position;
        match self.start {
            ReaderStart::After(_) => {}
            ReaderStart::Now => self.go_on(Subscribed { position: head, recovered: None }),
            ReaderStart::Since(mut since) => {
                if since.epoch == 0 && head.epoch > 0 {
                    // It was there before the first message: everything is new to it.
                    since = HistoryPosition { epoch: head.epoch, offset: 0 };
                    self.start = ReaderStart::Since(since);
                }
                let lost = Subscribed { position: head, recovered: Some(false) };
                let recovered = Subscribed { position: since, recovered: Some(true) };
                if since == head {
                    return self.go_on(recovered);
                }
                if since.epoch < head.epoch {
                    return self.go_on(lost);
                }
                // Only the store knows whether the history was cleared, and what the client got elsewhere.
                let Some(stored) = source.page_head().filter(|_| self.asked) else { return };
                if since > head {
                    let is_stored = since.epoch == stored.epoch && since <= stored;
                    return self.go_on(if is_stored { recovered } else { lost });
                }
                match source.find(since.epoch, since.offset + 1) {
                    FoundEvent::Event(event) if !source.is_expired(event) => self.go_on(recovered),
                    FoundEvent::Event(_) | FoundEvent::Lost(_) => self.go_on(lost),
                    FoundEvent::Unknown => {}
                }
            }
            // What is kept here may have been cleared: only the store knows.
            ReaderStart::Last(_) if source.page.is_none() || !self.asked => {}
            ReaderStart::Last(count) => {
                let mut offset = head.offset.saturating_sub(count) + 1;
                offset = offset.max(source.first_of_newest(count).unwrap_or(0));
                while offset <= head.offset {
                    match source.find(head.epoch, offset) {
                        FoundEvent::Event(event) if source.is_expired(event) => offset += 1,
                        FoundEvent::Event(_) => break,
                        FoundEvent::Lost(next) => offset = next.max(offset + 1),
                        FoundEvent::Unknown => return,
                    }
                }
                let position = HistoryPosition { offset: offset.min(head.offset + 1) - 1, ..head };
                self.go_on(Subscribed { position, recovered: None });
            }
        }
    }

    fn go_on(&mut self, answer: Subscribed) {
        self.start = ReaderStart::After(answer.position);
        self.answer = Some(answer);
    }
}

/// What the mailbox of a client takes: half of it stays free for other events.
struct MailboxRoom {
    unread: usize,
    bytes: usize,
    max: usize,
    max_bytes: usize,
    /// The mailboxes of all sessions are as large as they may be.
    no_memory: bool,
}

impl MailboxRoom {
    fn of(core: &Core, id: ListenerId) -> MailboxRoom {
        let settings = &core.node.settings;
        let mailbox = core.listeners.get(id).map(|listener| &listener.mailbox);
        let unread = mailbox.into_iter().flat_map(|mailbox| mailbox.unread_events());
        let (unread, bytes) =
            unread.fold((0, 0), |(unread, bytes), (_, event)| (unread + 1, bytes + event.size()));
        MailboxRoom {
            unread,
            bytes,
            max: settings.mailbox_events / 2,
            max_bytes: settings.mailbox_bytes / 2,
            no_memory: core.event_memory.bytes() >= core.node.budget_bytes(),
        }
    }

    fn is_full(&self) -> bool {
        let is_full = self.unread >= self.max || self.bytes >= self.max_bytes;
        self.unread > 0 && (is_full || self.no_memory)
    }

    fn take(&mut self, bytes: usize) {
        self.unread += 1;
        self.bytes += bytes;
    }
}
