//! Channel history: messages of such a channel are stored first, then delivered to every subscriber on every node in the order
//! of their offsets. A subscriber may begin after a position or with the last messages; what a node missed on the bus is read
//! from the store. Must hold: a publisher is answered when the store has the message; subscribers get no message twice and
//! miss none that is stored, or get a gap.

mod command;
mod order;
mod publisher;
mod reader;
mod source;
mod sweep;
mod tracker;

pub use command::write_page;
pub(crate) use command::{MessageAuthor, message_id, readable};
pub(crate) use publisher::{HistoryPublish, PublisherReply};
pub(crate) use reader::Subscribed;

use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::publish::take_unread_of;
use crate::core::{Core, Feature, ReplyTo, Timer, refusal};
use crate::event::{Message, Namespace};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use publisher::HistoryWriter;
use reader::{HistoryReader, ReadPage};
use std::collections::BTreeMap;
use std::sync::Arc;
use sweep::Sweep;
use tavern_domain::HistoryPosition;
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Found, Read, StoreAnswer, Ticket, Work};
use tracker::Tracker;

/// How long a message that was overtaken may be on its way before the store is asked.
const HOLE_MS: u64 = 20;
/// How many channels are compared with the store at each heartbeat.
const COMPARE_CHANNELS: usize = 1_000;

pub(crate) struct History {
    publisher: HistoryWriter,
    /// Ordered, so that equal runs visit channels in the same order.
    trackers: BTreeMap<Arc<str>, Tracker>,
    requests: HashMap<Ticket, HistoryTask, RandomState>,
    /// Answers for subscribe commands that are not written yet.
    answers: HashMap<LinkId, SubscribeAnswer, RandomState>,
    sweep: Sweep,
    /// How often channels were compared with the store.
    round: usize,
}

/// Where a subscriber begins; its messages follow when it knows that.
struct SubscribeAnswer {
    id: ListenerId,
    channel: Arc<str>,
    subscribed: Subscribed,
}

/// What a store operation is for.
enum HistoryTask {
    /// A page for the subscribers of a channel.
    Page {
        channel: Arc<str>,
        page: ReadPage,
    },
    /// A page for the command `history`.
    Command {
        to: ReplyTo,
        ttl_ms: u64,
    },
    Clear {
        to: ReplyTo,
    },
    Sweep,
}

impl History {
    pub fn new(core: &mut Core) -> History {
        let mut sweep = Sweep::default();
        if core.node.settings.has_history() {
            sweep.start(core);
        }
        History {
            publisher: HistoryWriter::default(),
            trackers: BTreeMap::new(),
            requests: HashMap::default(),
            answers: HashMap::default(),
            sweep,
            round: 0,
        }
    }

    /// Stores a message, then delivers it and answers its publisher.
    pub fn publish(&mut self, core: &mut Core, publish: HistoryPublish) {
        self.sweep.start(core);
        self.publisher.publish(core, publish);
    }

    /// The messages published in this turn are stored.
    pub fn commit(&mut self, core: &mut Core) {
        self.publisher.commit(core);
    }

    fn submit(&mut self, core: &mut Core, task: HistoryTask, work: Work) {
        self.requests.insert(core.submit(Feature::History, work), task);
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.publisher.owns(ticket) {
            for channel in self.publisher.answered(core, answer) {
                if self.trackers.contains_key(&channel) {
                    core.agenda.set(core.now + RETRY_AFTER_MS, Timer::HistoryCheck(channel));
                }
            }
            return;
        }
        match self.requests.remove(&ticket) {
            Some(HistoryTask::Page { channel, page }) => self.page_read(core, &channel, page, answer),
            Some(HistoryTask::Command { to, ttl_ms }) => {
                let reply = command::page_reply(core, ttl_ms, answer);
                core.finish(to, reply);
            }
            Some(HistoryTask::Clear { to }) => match answer {
                StoreAnswer::Committed(_) => core.finish(to, Ok(Vec::new())),
                failed => core.finish(to, Err(refusal(&failed))),
            },
            Some(HistoryTask::Sweep) => self.swept(core, answer),
            None => {}
        }
    }

    /// A message of a channel with history arrived, from this shard, another one or another node.
    pub fn arrived(&mut self, core: &mut Core, message: Arc<Message>) {
        let Ok(channel) = std::str::from_utf8(message.channel()) else { return };
        if let Some(tracker) = self.trackers.get_mut(channel) {
            tracker.arrive(core, message);
            let channel = tracker.channel().clone();
            return self.go_on(core, &channel);
        }
        let channel: Arc<str> = channel.into();
        let has_subscribers = has_subscribers(core, &channel);
        let tracker = self.tracker(core, &channel);
        tracker.arrive(core, message);
        if !has_subscribers {
            // Only listeners by pattern: they asked for no position.
            tracker.begin_with_arrived(core);
        }
        self.go_on(core, &channel);
    }

    fn tracker(&mut self, core: &Core, channel: &Arc<str>) -> &mut Tracker {
        let limits = core.node.history_limits(channel.as_bytes());
        let is_numbered = limits.is_some();
        let kept = limits.or_else(|| core.node.retained_limits(channel.as_bytes()));
        let ttl_ms = kept.map_or(u64::MAX, |limits| limits.ttl_ms);
        if self.trackers.get(channel).is_some_and(Tracker::is_by_pattern) {
            // Its position may be old: a subscriber begins with what the store says.
            self.trackers.remove(channel);
        }
        self.trackers
            .entry(channel.clone())
            .or_insert_with(|| Tracker::new(channel.clone(), ttl_ms, is_numbered))
    }

    /// A listener subscribed without a position: Redis connections, and sessions that arrive from other nodes.
    pub fn subscribed(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.tracker(core, channel);
        self.go_on(core, channel);
    }

    /// A listener left the channel, or ended.
    pub fn left(&mut self, core: &mut Core, id: ListenerId, channel: &Arc<str>) {
        if !has_subscribers(core, channel) {
            self.trackers.remove(channel);
        } else if let Some(tracker) = self.trackers.get_mut(channel) {
            tracker.leave(id);
        }
    }

    /// The answer to a subscribe command is written, or its connection is gone, or runs another command.
    pub fn answer_written(&mut self, core: &mut Core, link: LinkId) {
        if let Some(SubscribeAnswer { id, channel, .. }) = self.answers.remove(&link) {
            // Not in this command: events that are in the mailbox now precede its answer.
            core.agenda.set(core.now, Timer::HistoryBegins(id, channel));
        }
    }

    /// The client knows where it begins: messages follow.
    pub fn begins(&mut self, core: &mut Core, id: ListenerId, channel: &Arc<str>) {
        if let Some(tracker) = self.trackers.get_mut(channel) {
            tracker.answer_sent(core, id);
        }
        self.go_on(core, channel);
    }

    /// Asks the store for what is missing, answers who waited.
    fn go_on(&mut self, core: &mut Core, channel: &Arc<str>) {
        let Some(tracker) = self.trackers.get_mut(channel) else { return };
        for (reader, subscribed) in tracker.answers() {
            match reader.claim.filter(|claim| core.replies.is_expected(*claim)) {
                Some(claim) => {
                    let answer = SubscribeAnswer { id: reader.id, channel: channel.clone(), subscribed };
                    self.answers.insert(reader.link, answer);
                    core.finish(claim, Ok(Vec::new()));
                }
                // Its connection is gone.
                None => tracker.answer_sent(core, reader.id),
            }
        }
        if tracker.reading.is_some() {
            return;
        }
        if tracker.wants_read() {
            let (page, read) = tracker.next_read();
            tracker.reading = Some(page);
            let task = HistoryTask::Page { channel: channel.clone(), page };
            return self.submit(core, task, Work::Read(read));
        }
        if tracker.has_hole() && !tracker.check_due {
            tracker.check_due = true;
            core.agenda.set(core.now + HOLE_MS, Timer::HistoryCheck(channel.clone()));
        }
    }

    fn page_read(&mut self, core: &mut Core, channel: &Arc<str>, page: ReadPage, answer: StoreAnswer) {
        let Some(tracker) = self.trackers.get_mut(channel) else { return };
        tracker.reading = None;
        if let StoreAnswer::Read(Found::History(found)) = answer {
            tracker.read(core, page, found);
            return self.go_on(core, channel);
        }
        for reader in tracker.failed() {
            if let Some(claim) = reader.claim {
                core.finish(claim, Err(refusal(&answer)));
            }
        }
        core.agenda.set(core.now + RETRY_AFTER_MS, Timer::HistoryCheck(channel.clone()));
        tracker.check_due = true;
    }

    /// A message was overtaken and has not arrived since, or the store failed.
    pub fn check(&mut self, core: &mut Core, channel: &Arc<str>) {
        let Some(tracker) = self.trackers.get_mut(channel) else { return };
        let was_due = std::mem::take(&mut tracker.check_due);
        if tracker.has_hole() || !was_due {
            tracker.suspect();
        }
        self.go_on(core, channel);
    }

    /// Messages of one channel were lost on the bus, or of all channels.
    pub fn lost(&mut self, core: &mut Core, channel: Option<&str>) {
        let channels = match channel {
            Some(channel) => {
                self.trackers.get_key_value(channel).map(|(name, _)| name.clone()).into_iter().collect()
            }
            None => self.trackers.keys().cloned().collect(),
        };
        self.compare(core, channels);
    }

    /// It is time to compare with the store: the last message of another node may have been lost unnoticed. A part of the
    /// channels at a time.
    pub fn compare_some(&mut self, core: &mut Core) {
        if !core.node.bus_interests.reaches_others() {
            return;
        }
        self.round += 1;
        let parts = self.trackers.len() / COMPARE_CHANNELS + 1;
        let is_turn = |name: &&Arc<str>| {
            let sum = name
                .bytes()
                .fold(self.round, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)));
            sum % parts == 0
        };
        let channels = self.trackers.keys().filter(is_turn).cloned().collect();
        self.compare(core, channels);
    }

    fn compare(&mut self, core: &mut Core, channels: Vec<Arc<str>>) {
        for channel in channels {
            if let Some(tracker) = self.trackers.get_mut(&channel) {
                tracker.suspect();
            }
            self.go_on(core, &channel);
        }
    }

    /// A client that recovers has read what it had.
    pub fn feed(&mut self, core: &mut Core, id: ListenerId) {
        let Some(listener) = core.listeners.get_mut(id) else { return };
        listener.recovering = false;
        for name in core.subscriptions(id, Namespace::Channel) {
            let known = std::str::from_utf8(&name).ok().and_then(|name| self.trackers.get_key_value(name));
            let Some(channel) = known.map(|(channel, _)| channel.clone()) else { continue };
            let fed = self.trackers.get_mut(&channel).is_some_and(|tracker| tracker.feed(core, id));
            if fed {
                self.go_on(core, &channel);
            }
        }
    }

    /// Where a session is in the history of its channels: everything up to there was put into its mailbox.
    pub fn positions_of(&self, core: &Core, id: ListenerId) -> Vec<(Arc<str>, HistoryPosition)> {
        let names = core.subscriptions(id, Namespace::Channel);
        let position = |name: &Arc<[u8]>| {
            let (channel, tracker) = self.trackers.get_key_value(std::str::from_utf8(name).ok()?)?;
            Some((channel.clone(), tracker.position_of(id)?))
        };
        names.iter().filter_map(position).collect()
    }

    /// A session arrived from another node, where it was at this position. The listener that collected messages for it may be
    /// recovering from an earlier one.
    pub fn brought(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &Arc<str>,
        position: HistoryPosition,
    ) {
        if let Some(tracker) = self.trackers.get_mut(channel) {
            tracker.leave(id);
        }
        self.resume_at(core, id, channel, position);
    }

    /// A session gets what follows this position: it moved here, or its mailbox overflowed.
    pub fn resume_at(
        &mut self,
        core: &mut Core,
        id: ListenerId,
        channel: &Arc<str>,
        position: HistoryPosition,
    ) {
        let place = core.routing.find(Namespace::Channel, channel.as_bytes());
        let Some(listener) = core.listeners.get_mut(id) else { return };
        if !place.is_some_and(|place| listener.subscriptions.contains_key(&place)) {
            return;
        }
        // Messages that were delivered since its mailbox overflowed.
        let taken = take_unread_of(listener, channel.as_bytes());
        let tracker = self.tracker(core, channel);
        if tracker.waiting(id).is_none() {
            let known = [taken.before, tracker.position_of_reader(id)];
            let position = known.into_iter().flatten().fold(position, HistoryPosition::min);
            tracker.subscribe(core, HistoryReader::after(id, position));
        }
        self.go_on(core, channel);
    }

    fn swept(&mut self, core: &mut Core, answer: StoreAnswer) {
        if let Some(work) = self.sweep.answered(core, answer) {
            self.submit(core, HistoryTask::Sweep, work);
        }
    }

    /// It is time to remove expired history.
    pub fn sweep_is_due(&mut self, core: &mut Core) {
        let now = core.now;
        self.trackers.retain(|channel, tracker| {
            tracker.tidy(now);
            !tracker.is_idle(now) || has_subscribers(core, channel)
        });
        if let Some(work) = self.sweep.wake(core) {
            self.submit(core, HistoryTask::Sweep, work);
        }
    }

    pub(super) fn read_page(&mut self, core: &mut Core, read: Read, to: ReplyTo, ttl_ms: u64) {
        self.submit(core, HistoryTask::Command { to, ttl_ms }, Work::Read(read));
    }
}

fn has_subscribers(core: &Core, channel: &str) -> bool {
    let place = core.routing.find(Namespace::Channel, channel.as_bytes());
    place.is_some_and(|place| !core.routing.place(place).listeners.is_empty())
}
