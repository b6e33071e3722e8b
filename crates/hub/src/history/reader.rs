//! A subscriber that gets older messages of a channel before live ones: it recovers from a position, or asked for the last
//! messages. It gets them as it reads: its mailbox is filled to half at most.
//! Must hold: it gets messages in order; it is finished when it has everything that the others have.

use super::tracker::{EventSource, FoundEvent, gap_event};
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

/// What a subscriber is told: messages after this position follow.
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
    /// Its mailbox is full enough: it goes on when the client has read.
    full: bool,
    done: bool,
}

/// What was asked of the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPage {
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
        HistoryReader { id, link, start, claim: None, answer: None, answered, full: false, done: false }
    }

    /// It has begun on another node, or its mailbox overflowed.
    pub fn after(id: ListenerId, position: HistoryPosition) -> HistoryReader {
        HistoryReader::new(id, LinkId(0), ReaderStart::After(position))
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
        self.done && self.answered
    }

    pub fn wants_read(&self) -> bool {
        !self.done && !self.full && self.start != ReaderStart::Now
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
            (self.done, self.answered) = (true, true);
            return;
        }
        if !self.done {
            self.begin(source);
        }
        let mut room = MailboxRoom::of(core, self.id);
        while let ReaderStart::After(after) = self.start
            && !self.done
            && !self.full
        {
            if after.epoch != source.position.epoch {
                if after.epoch > 0 {
                    // The history was cleared: what was not read is gone.
                    let event = gap_event(core, channel);
                    core.deliver_event(self.id.index, &event);
                }
                self.start = ReaderStart::After(HistoryPosition { offset: 0, ..source.position });
                continue;
            }
            if after.offset >= source.position.offset {
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
        if let Some(listener) = core.listeners.get_mut(self.id) {
            listener.recovering = self.full && !self.done;
        }
    }

    /// Finds out where it begins, as soon as that is known.
    fn begin(&mut self, source: &EventSource<'_>) {
        let head = source.position;
        match self.start {
            ReaderStart::After(_) => {}
            ReaderStart::Now => self.end(Subscribed { position: head, recovered: None }),
            ReaderStart::Since(since) => {
                let lost = Subscribed { position: head, recovered: Some(false) };
                let recovered = Subscribed { position: since, recovered: Some(true) };
                if since.epoch != head.epoch || since.offset > head.offset {
                    return self.end(lost);
                }
                if since.offset == head.offset {
                    return self.end(recovered);
                }
                match source.find(since.epoch, since.offset + 1) {
                    FoundEvent::Event(event) if !source.is_expired(event) => self.go_on(recovered),
                    FoundEvent::Event(_) | FoundEvent::Lost(_) => self.end(lost),
                    FoundEvent::Unknown => {}
                }
            }
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

    fn end(&mut self, answer: Subscribed) {
        self.answer = Some(answer);
        self.start = ReaderStart::After(answer.position);
        self.done = true;
    }
}

/// What the mailbox of a client takes: half of it stays free for other events.
struct MailboxRoom {
    unread: usize,
    bytes: usize,
    most: usize,
    most_bytes: usize,
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
            most: settings.mailbox_events / 2,
            most_bytes: settings.mailbox_bytes / 2,
        }
    }

    fn is_full(&self) -> bool {
        self.unread > 0 && (self.unread >= self.most || self.bytes >= self.most_bytes)
    }

    fn take(&mut self, bytes: usize) {
        self.unread += 1;
        self.bytes += bytes;
    }
}
