//! One channel with history as this shard's subscribers see it: live messages in order, and older ones for subscribers that
//! recover. Such a subscriber is held back: it gets no live message of the channel before everything older.
//! Must hold: every subscriber gets the messages after its position in order, each once; what cannot be read any more is
//! announced as a gap.

use super::has_subscribers;
use super::order::MessageOrder;
use super::reader::{HistoryReader, ReadPage, ReaderStart, Subscribed};
use super::source::{EventSource, PageEvents, epoch_of, follows, gap_event, message_of, offset_of};
use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::core::publish::deliver_in_turn;
use crate::event::{Event, Message, Namespace};
use crate::replica::{PageLoad, Replica};
use crate::settings::SlowReader;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::presence::Applied;
use tavern_domain::{HistoryPosition, Time};
use tavern_store::{Found, HistoryMessage, HistoryPage, Read, planted};

/// Messages in one read.
pub(super) const PAGE: u32 = 256;
/// How long recent messages are kept for others that recover too, how many and how large. They are given out only after
/// the store was asked whether their epoch is still stored: a history may be cleared on any node.
const RECENT_MS: u64 = 5_000;
const RECENT_MESSAGES: usize = 1_024;
const RECENT_BYTES: usize = 1 << 20;
/// How long the order of a channel is remembered for listeners by pattern.
const IDLE_MS: u64 = 30_000;

#[derive(Default)]
pub(super) struct Tracker {
    channel: Arc<str>,
    ttl_ms: u64,
    is_numbered: bool,
    order: MessageOrder,
    readers: Vec<HistoryReader>,
    /// The last messages, without holes, for subscribers that recover.
    recent: VecDeque<Rc<Event>>,
    recent_bytes: usize,
    recent_until: Time,
    /// What is read, or was read last.
    asked: ReadPage,
    page: Option<HistoryPage>,
    /// Messages may be missing: the store must be asked.
    must_read: bool,
    by_pattern: bool,
    used_at: Time,
}

impl Replica for Tracker {
    type Host = Core;
    type Update = Arc<Message>;
    type Waiter = ();

    const ORDERED: bool = true;
    /// A subscriber waits for the messages behind it.
    const MISSING_MS: u64 = 20;
    const COMPARED: usize = 1_000;

    fn begin(&mut self, _: &mut Core, _: &Arc<str>) -> Option<Read> {
        // If no subscriber needs a page, the driver knows that messages are missing.
        self.must_read |= self.order.has_hole() || !self.wants_read();
        Some(self.next_read())
    }

    fn load(&mut self, _: &mut Core, _: &Arc<str>, found: Found) -> PageLoad {
        let Found::History(page) = found else { return PageLoad::Unusable };
        self.page = Some(page);
        PageLoad::Complete
    }

    fn install(&mut self, core: &mut Core, _: &Arc<str>) {
        if let Some(page) = self.page.take() {
            self.take_page(core, page);
        }
    }

    /// A live message.
    fn apply(&mut self, core: &mut Core, _: &Arc<str>, message: &Arc<Message>) -> Applied {
        self.used_at = core.now;
        self.order.arrive(message.clone());
        self.deliver_next(core);
        if self.order.has_hole() { Applied::Gap } else { Applied::Emitted }
    }

    fn has_gap(&self) -> bool {
        self.order.has_hole()
    }

    fn compare(&self, channel: &Arc<str>) -> Option<Read> {
        let after = self.order.position()?.offset;
        Some(Read::History { channel: channel.clone(), after, before: u64::MAX, newest: false, limit: 1 })
    }

    fn is_behind(&self, found: &Found) -> bool {
        let (Some(position), Found::History(page)) = (self.order.position(), found) else { return false };
        let is_cleared = page.head.epoch < position.epoch && !self.recent.is_empty();
        page.head > position || is_cleared
    }

    /// Listeners by pattern keep it for a while.
    fn is_used(&self, core: &Core, channel: &Arc<str>) -> bool {
        let is_idle = self.readers.is_empty() && core.now >= self.used_at + IDLE_MS;
        !is_idle || has_subscribers(core, channel)
    }
}

impl Tracker {
    /// `is_numbered`: subscribers see positions; without history only the last message is kept.
    pub fn new(channel: Arc<str>, ttl_ms: u64, is_numbered: bool) -> Tracker {
        Tracker { channel, ttl_ms, is_numbered, ..Tracker::default() }
    }

    pub fn channel(&self) -> &Arc<str> {
        &self.channel
    }

    /// Whether the store must be asked, now that nothing is being read.
    pub fn wants_read(&self) -> bool {
        let position = self.order.position();
        position.is_none()
            || self.must_read
            || self.readers.iter().any(|reader| reader.wants_read(position) || reader.is_ahead(position))
    }

    /// Only listeners by pattern hear the channel here: they have no position, and may come and go unnoticed.
    pub fn is_by_pattern(&self) -> bool {
        self.by_pattern
    }

    /// Frees the messages that no reader can recover from any more.
    pub fn tidy(&mut self, now: Time) {
        if self.readers.is_empty() && now >= self.recent_until {
            self.forget_recent();
        }
    }

    /// Nobody waits for anything: live messages are all that it deals with.
    pub fn is_settled(&self) -> bool {
        self.readers.is_empty() && !self.wants_read()
    }

    /// Something may be missing.
    pub fn suspect(&mut self) {
        self.must_read = true;
    }

    /// No position is known and no subscriber waits for one: begins with what arrived.
    pub fn begin_with_arrived(&mut self, core: &mut Core) {
        self.by_pattern = true;
        self.order.begin_with_arrived();
        self.deliver_next(core);
    }

    fn deliver_next(&mut self, core: &mut Core) {
        let mut held: Option<Vec<u32>> = None;
        while let Some(message) = self.order.next() {
            let held = held.get_or_insert_with(|| {
                let alive = |reader: &&HistoryReader| core.listeners.get(reader.id).is_some();
                let mut held: Vec<u32> =
                    self.readers.iter().filter(alive).map(|reader| reader.id.index).collect();
                held.sort_unstable();
                held
            });
            let event = deliver_in_turn(core, message, held);
            self.remember(core.now, event);
        }
        self.serve(core, None);
    }

    fn remember(&mut self, now: Time, event: Rc<Event>) {
        if self.readers.is_empty() && now >= self.recent_until {
            return self.forget_recent();
        }
        let follows = self.recent.back().is_none_or(|last| follows(last, &event));
        if !follows {
            self.forget_recent();
        }
        self.recent_bytes += event.size();
        self.recent.push_back(event);
        self.bound_recent();
    }

    fn bound_recent(&mut self) {
        while self.recent.len() > RECENT_MESSAGES
            || (self.recent_bytes > RECENT_BYTES && self.recent.len() > 1)
        {
            if let Some(event) = self.recent.pop_front() {
                self.recent_bytes -= event.size();
            }
        }
    }

    pub fn forget_recent(&mut self) {
        self.recent = VecDeque::new();
        self.recent_bytes = 0;
    }

    /// A subscriber begins; Some: it can be answered at once. Otherwise it waits for `answers`.
    pub fn subscribe(&mut self, core: &mut Core, reader: HistoryReader) -> Option<Subscribed> {
        self.used_at = core.now;
        self.readers.retain(|known| known.id != reader.id);
        self.recent_until = core.now + RECENT_MS;
        self.readers.push(reader);
        self.serve(core, None);
        let at = self.readers.iter().position(|known| known.id == reader.id);
        match at {
            Some(at) => {
                let answer = self.readers[at].take_answer();
                self.remove_finished();
                answer
            }
            None => None,
        }
    }

    /// Whether this subscriber still waits for its answer; it goes to another claim then.
    pub fn waiting(&mut self, id: ListenerId) -> Option<&mut HistoryReader> {
        self.readers.iter_mut().find(|reader| reader.id == id && reader.is_unanswered())
    }

    /// A subscriber left.
    pub fn leave(&mut self, id: ListenerId) {
        self.readers.retain(|reader| reader.id != id);
    }

    /// The subscriber has its answer: messages follow it.
    pub fn answer_sent(&mut self, core: &mut Core, id: ListenerId) {
        // One that subscribed again meanwhile waits for its own answer.
        let is_answered = |reader: &&mut HistoryReader| reader.id == id && !reader.is_unanswered();
        if let Some(reader) = self.readers.iter_mut().find(is_answered) {
            reader.set_answer_sent();
            self.serve(core, None);
        }
    }

    /// Where a subscriber is that recovers.
    pub fn position_of_reader(&self, id: ListenerId) -> Option<HistoryPosition> {
        self.readers.iter().find(|reader| reader.id == id)?.position()
    }

    /// Where a subscriber is.
    pub fn position_of(&self, id: ListenerId) -> Option<HistoryPosition> {
        let reader = self.readers.iter().find(|reader| reader.id == id);
        match reader {
            Some(reader) => reader.position(),
            None => self.order.position(),
        }
    }

    /// The read that serves most: from the oldest position that is needed.
    fn next_read(&mut self) -> Read {
        let position = self.order.position();
        self.must_read |= self.readers.iter().any(|reader| reader.is_ahead(position));
        self.readers.iter_mut().for_each(HistoryReader::set_asked);
        // What is kept here needs no page: only whether it is still stored.
        let (kept, wanted): (Vec<&HistoryReader>, Vec<&HistoryReader>) = (self.readers.iter())
            .filter(|reader| reader.wants_read(position))
            .partition(|reader| position.is_some_and(|position| self.keeps(reader.first(position))));
        let epoch = position.map_or(0, |position| position.epoch);
        let mut page = ReadPage { epoch, after: u64::MAX, newest: None };
        for reader in wanted {
            match reader.start {
                ReaderStart::Last(count) => page.newest = page.newest.max(Some(count)),
                ReaderStart::Since(position) | ReaderStart::After(position) => {
                    page.after = page.after.min(position.offset);
                }
                ReaderStart::Now => {}
            }
        }
        if self.must_read || (!kept.is_empty() && page.newest.is_none()) {
            page.after = page.after.min(self.order.position().map_or(u64::MAX, |position| position.offset));
        }
        self.must_read = false;
        let channel = self.channel.clone();
        // One kind at a time: a page after a position first, which may serve the others too.
        let read = match page.newest {
            Some(count) if page.after == u64::MAX => {
                let limit = u32::try_from(count).unwrap_or(u32::MAX).max(1);
                Read::History { channel, after: 0, before: u64::MAX, newest: true, limit }
            }
            _ => {
                page.newest = None;
                Read::History { channel, after: page.after, before: u64::MAX, newest: false, limit: PAGE }
            }
        };
        self.asked = page;
        read
    }

    /// Whether recent messages reach back to an offset.
    fn keeps(&self, offset: u64) -> bool {
        self.recent.front().is_some_and(|first| offset_of(first) <= offset)
    }

    /// The store has answered.
    fn take_page(&mut self, core: &mut Core, found: HistoryPage) {
        let asked = self.asked;
        self.order.begin(found.head);
        let known = self.order.position().map_or(0, |position| position.epoch);
        if found.head.epoch < known && known <= asked.epoch && !planted("hub-history-clear") {
            // Cleared, and nothing was published since.
            self.forget_recent();
        }
        self.skip_cleared(core, found.head);
        let changed = self.order.position().is_some_and(|position| position.epoch < found.head.epoch);
        if changed {
            self.begin_epoch(core, found.head.epoch, asked.after > 0 || asked.newest.is_some());
        }
        let events = self.events(core, found.head.epoch, &found.page.rows);
        self.fill_hole(core, &asked, &found);
        self.prepend_recent(&events);
        self.recent_until = core.now + RECENT_MS;
        self.serve(core, Some(&PageEvents { asked, events, more: found.page.more, head: found.head }));
    }

    /// A client has messages of an epoch that is not stored any more, and that this node has missed: no one can get the
    /// messages up to there.
    fn skip_cleared(&mut self, core: &mut Core, head: HistoryPosition) {
        let brought = self.readers.iter().filter_map(HistoryReader::checked_position).max();
        let Some(brought) = brought.filter(|brought| brought.epoch > head.epoch) else { return };
        if self.order.position().is_some_and(|known| known < brought) {
            self.order.skip_to(brought);
            self.forget_recent();
            self.gap(core);
        }
    }

    /// The history was cleared and began again.
    fn begin_epoch(&mut self, core: &mut Core, epoch: u64, read_again: bool) {
        let begins = self.order.position().is_none_or(|position| position.epoch == 0);
        self.order.skip_to(HistoryPosition { epoch, offset: 0 });
        self.forget_recent();
        if !begins {
            self.gap(core);
        }
        self.must_read |= read_again;
    }

    /// Delivers what the store has after the position, and skips what it has no more.
    fn fill_hole(&mut self, core: &mut Core, asked: &ReadPage, found: &HistoryPage) {
        let Some(position) = self.order.position().filter(|position| position.epoch == found.head.epoch)
        else {
            return;
        };
        for row in found.page.rows.iter().filter(|row| row.offset > position.offset) {
            self.order.arrive(Arc::new(message_of(&self.channel, self.is_numbered, found.head.epoch, row)));
        }
        self.deliver_next(core);
        let reached = self.order.position().map_or(0, |position| position.offset);
        let covers = asked.newest.is_none() && asked.after <= reached;
        let next = found.page.rows.iter().map(|row| row.offset).find(|offset| *offset > reached);
        let first_stored = next.unwrap_or(found.head.offset + 1);
        if covers && first_stored > reached + 1 && (next.is_some() || !found.page.more) {
            self.order.skip_to(HistoryPosition { epoch: found.head.epoch, offset: first_stored - 1 });
            self.forget_recent();
            self.gap(core);
            self.deliver_next(core);
        }
        // More than one page is missing.
        let reached = self.order.position().map_or(0, |position| position.offset);
        let ends_here = found.page.rows.last().is_some_and(|row| row.offset == reached);
        self.must_read |= covers && found.page.more && ends_here;
    }

    fn gap(&self, core: &mut Core) {
        let Some(place) = core.routing.find(Namespace::Channel, self.channel.as_bytes()) else { return };
        let listeners = core.routing.place(place).listeners.clone();
        let event = gap_event(core, &self.channel);
        let is_held = |index: u32| self.readers.iter().any(|reader| reader.id.index == index);
        for listener in listeners.into_iter().filter(|index| !is_held(*index)) {
            if !core.listeners.at(listener).is_redis() {
                core.deliver_event(listener, &event);
            }
        }
    }

    fn events(&self, core: &Core, epoch: u64, rows: &[HistoryMessage]) -> Vec<Rc<Event>> {
        let slow_reader = SlowReader::Gap;
        let event = |row| {
            let message = Arc::new(message_of(&self.channel, self.is_numbered, epoch, row));
            Event::message(message, core.now, slow_reader, &core.event_memory)
        };
        rows.iter().map(event).collect()
    }

    /// Recent messages reach further back now, if the page ends where they begin.
    fn prepend_recent(&mut self, events: &[Rc<Event>]) {
        let Some(position) = self.order.position() else { return };
        let begin = match self.recent.front() {
            Some(first) => offset_of(first),
            None => position.offset + 1,
        };
        let older: Vec<&Rc<Event>> = events.iter().filter(|event| offset_of(event) < begin).collect();
        let joins =
            older.last().is_some_and(|last| offset_of(last) + 1 == begin && epoch_of(last) == position.epoch);
        if joins {
            for event in older.into_iter().rev() {
                self.recent_bytes += event.size();
                self.recent.push_front(event.clone());
            }
            self.bound_recent();
        }
    }

    /// Gives subscribers that recover what is at hand.
    fn serve(&mut self, core: &mut Core, page: Option<&PageEvents>) {
        let Some(position) = self.order.position().filter(|_| !self.readers.is_empty()) else { return };
        let expired = Time(core.now.ms().saturating_sub(self.ttl_ms));
        let mut readers = std::mem::take(&mut self.readers);
        for reader in &mut readers {
            let source = EventSource { recent: &self.recent, page, position, expired };
            reader.serve(core, &self.channel, &source);
        }
        // Serving puts events into mailboxes, which adds no reader here.
        self.readers = readers;
        self.remove_finished();
    }

    fn remove_finished(&mut self) {
        self.readers.retain(|reader| !reader.is_finished());
    }

    /// Answers for subscribers that waited.
    pub fn answers(&mut self) -> Vec<(HistoryReader, Subscribed)> {
        let mut answers = Vec::new();
        for reader in &mut self.readers {
            if reader.claim.is_some()
                && let Some(answer) = reader.take_answer()
            {
                answers.push((*reader, answer));
                reader.claim = None;
            }
        }
        self.remove_finished();
        answers
    }

    /// The store failed: those who wait for an answer are refused, the others try again later.
    pub fn failed(&mut self) -> Vec<HistoryReader> {
        let (unanswered, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.readers).into_iter().partition(HistoryReader::is_unanswered);
        self.readers = rest;
        self.must_read = true;
        unanswered
    }

    /// A client that recovers has read what it had.
    pub fn feed(&mut self, core: &mut Core, id: ListenerId) -> bool {
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.id == id) else { return false };
        reader.has_room();
        self.serve(core, None);
        true
    }
}
