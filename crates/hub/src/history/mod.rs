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
use crate::core::{Core, Feature, Timer, refusal};
use crate::event::{Message, Namespace};
use crate::replica::Replicas;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use publisher::HistoryWriter;
use reader::HistoryReader;
use std::sync::Arc;
use sweep::Sweep;
use tavern_domain::HistoryPosition;
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{StoreAnswer, Ticket};
use tracker::Tracker;

pub(crate) struct History {
    publisher: HistoryWriter,
    trackers: Replicas<Tracker>,
    /// Answers for subscribe commands that are not written yet.
    answers: HashMap<LinkId, SubscribeAnswer, RandomState>,
    sweep: Sweep,
}

/// Where a subscriber begins; its messages follow when it knows that.
struct SubscribeAnswer {
    id: ListenerId,
    channel: Arc<str>,
    subscribed: Subscribed,
}

impl History {
    pub fn new(core: &mut Core) -> History {
        let mut sweep = Sweep::default();
        if core.node.settings.has_history() {
            sweep.start(core);
        }
        History {
            publisher: HistoryWriter::default(),
            trackers: Replicas::new(Feature::History),
            answers: HashMap::default(),
            sweep,
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

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        if self.publisher.owns(ticket) {
            for channel in self.publisher.answered(core, answer) {
                if self.trackers.get(&channel).is_some() {
                    core.agenda.set(core.now + RETRY_AFTER_MS, Timer::HistoryCheck(channel));
                }
            }
            return;
        }
        match self.trackers.owns(ticket) {
            true => self.page_read(core, ticket, answer),
            false => self.sweep.answered(core, ticket, answer),
        }
    }

    /// A message of a channel with history arrived, from this shard, another one or another node.
    pub fn arrived(&mut self, core: &mut Core, message: Arc<Message>) {
        let Ok(channel) = std::str::from_utf8(message.channel()) else { return };
        if let Some(tracker) = self.trackers.update(core, channel, &message) {
            if !tracker.is_settled() {
                let channel = tracker.channel().clone();
                self.go_on(core, &channel);
            }
            return;
        }
        let channel: Arc<str> = channel.into();
        let has_subscribers = has_subscribers(core, &channel);
        self.tracker(core, &channel);
        if let Some(tracker) = self.trackers.update(core, &channel, &message)
            && !has_subscribers
        {
            // Only listeners by pattern: they asked for no position.
            tracker.begin_with_arrived(core);
        }
        self.go_on(core, &channel);
    }

    fn tracker(&mut self, core: &mut Core, channel: &Arc<str>) -> &mut Tracker {
        if self.trackers.get(channel).is_some_and(Tracker::is_by_pattern) {
            // Its position may be old: a subscriber begins with what the store says.
            self.trackers.drop(core, channel);
        }
        let is_new = self.trackers.get(channel).is_none();
        let tracker = self.trackers.make(channel);
        if !is_new {
            return tracker;
        }
        let limits = core.node.history_limits(channel.as_bytes());
        let is_numbered = limits.is_some();
        let kept = limits.or_else(|| core.node.retained_limits(channel.as_bytes()));
        let ttl_ms = kept.map_or(u64::MAX, |limits| limits.ttl_ms);
        *tracker = Tracker::new(channel.clone(), ttl_ms, is_numbered);
        tracker
    }

    /// A listener subscribed without a position: Redis connections, and sessions that arrive from other nodes.
    pub fn subscribed(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.tracker(core, channel);
        self.go_on(core, channel);
    }

    /// A listener left the channel, or ended.
    pub fn left(&mut self, core: &mut Core, id: ListenerId, channel: &Arc<str>) {
        if !has_subscribers(core, channel) {
            self.trackers.drop(core, channel);
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
        if tracker.wants_read() {
            self.trackers.read(core, channel);
        }
    }

    fn page_read(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.trackers.answered(core, ticket, answer) else { return };
        let Some(failed) = read.failed else { return self.go_on(core, &read.name) };
        let Some(tracker) = self.trackers.get_mut(&read.name) else { return };
        for claim in tracker.failed().into_iter().filter_map(|reader| reader.claim) {
            core.finish(claim, Err(refusal(&failed)));
        }
    }

    /// An update is missing, or a read has failed.
    pub fn replica_is_due(&mut self, core: &mut Core, channel: &Arc<str>) {
        self.trackers.due(core, channel);
    }

    /// Messages of a channel may be missing here: reads them.
    pub fn check(&mut self, core: &mut Core, channel: &Arc<str>) {
        if let Some(tracker) = self.trackers.get_mut(channel) {
            tracker.suspect();
        }
        self.go_on(core, channel);
    }

    /// Messages of one channel were lost on the bus, or of all channels.
    pub fn lost(&mut self, core: &mut Core, channel: Option<&str>) {
        let channels = match channel {
            Some(name) => {
                self.trackers.get(name).map(|tracker| tracker.channel().clone()).into_iter().collect()
            }
            None => self.trackers.names(|_| true),
        };
        channels.iter().for_each(|channel| self.check(core, channel));
    }

    /// It is time to compare with the store: the last message of another node may have been lost unnoticed.
    pub fn compare(&mut self, core: &mut Core) {
        if core.node.bus_interests.reaches_others() {
            self.trackers.compare(core);
        }
    }

    /// A client that recovers has read what it had.
    pub fn feed(&mut self, core: &mut Core, id: ListenerId) {
        let Some(listener) = core.listeners.get_mut(id) else { return };
        listener.recovering = false;
        for name in core.subscriptions(id, Namespace::Channel) {
            let known = std::str::from_utf8(&name).ok().and_then(|name| self.trackers.get_mut(name));
            if let Some(tracker) = known
                && tracker.feed(core, id)
            {
                let channel = tracker.channel().clone();
                self.go_on(core, &channel);
            }
        }
    }

    /// Where a session is in the history of its channels: everything up to there was put into its mailbox.
    pub fn positions_of(&self, core: &Core, id: ListenerId) -> Vec<(Arc<str>, HistoryPosition)> {
        let names = core.subscriptions(id, Namespace::Channel);
        let position = |name: &Arc<[u8]>| {
            let tracker = self.trackers.get(std::str::from_utf8(name).ok()?)?;
            Some((tracker.channel().clone(), tracker.position_of(id)?))
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

    /// It is time to remove expired history.
    pub fn sweep_is_due(&mut self, core: &mut Core) {
        let now = core.now;
        self.trackers.all_mut().for_each(|tracker| tracker.tidy(now));
        self.trackers.drop_all_unused(core);
        self.sweep.wake(core);
    }
}

fn has_subscribers(core: &Core, channel: &str) -> bool {
    let place = core.routing.find(Namespace::Channel, channel.as_bytes());
    place.is_some_and(|place| !core.routing.place(place).listeners.is_empty())
}
