//! One shard of a node: routes commands to features, and notices between them. The only place that knows all features.
//! Must hold: when a call returns, every notice it caused was given to the features it concerns.

mod block;
mod channel_command;
mod command;
mod connections;
mod hello;
mod pack;
mod redis_publish;
mod service_command;
mod timers;
mod traffic;

pub use redis_publish::{RedisPublish, next_redis_reply, publish_stored};
pub use service_command::ServiceCommand;

use crate::connection::LinkId;
use crate::control::{self, UserControl};
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Notice, ShardMessage, loss};
use crate::history::History;
use crate::inbox::Inbox;
use crate::liveness::{LivenessTask, TakenOver};
use crate::migration::Migration;
use crate::node::{ChannelUpdate, ControlMessage, Node, RandomSource, UserNotice};
use crate::party::Parties;
use crate::people::{PEOPLE_LINK, People};
use crate::presence::{Presence, held_committed};
use crate::rows;
use crate::topics::{TopicCaller, TopicCommand, TopicEffects, Topics};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{AttendanceInput, UserUpdate};
use tavern_store::{Deadline, StoreAnswer, Ticket};
use tavern_wire::bus::migration::MigrationRequest;

pub struct Shard {
    pub core: Core,
    presence: Presence,
    people: People,
    inbox: Inbox,
    party: Parties,
    migration: Migration,
    topics: Topics,
    history: History,
    control: UserControl,
}

/// An input to a shard other than the commands of its connections.
#[derive(Debug)]
pub enum ShardEvent {
    /// The store has answered.
    Answer(Ticket, StoreAnswer),
    /// A message that was published on another shard or node.
    Message(ShardMessage),
    /// A presence change, from another shard or node.
    Presence(ChannelUpdate),
    /// An update about a user, from another shard or node.
    Status(UserNotice),
    /// A message of another node about a session that migrates.
    Migration { from: Arc<str>, request: MigrationRequest },
    /// The bus has confirmed, or refused, the subscriptions that these links waited for.
    BusReady(Vec<LinkId>),
    /// Messages of one channel were lost between nodes, or of all channels.
    BusLost(Option<Arc<[u8]>>),
    /// A command of an app; `Effects::service_replies` has its reply under this number.
    Service { number: u64, order: ServiceCommand },
    /// A command about topics; the topic effects have its reply under this number.
    Topic { number: u64, caller: TopicCaller, command: TopicCommand },
    /// An order about a user or a reply to one, from a shard or another node.
    Control(ControlMessage),
    /// From now on this shard keeps the bans of the node up to date.
    KeepBans,
    /// A topic has new events, from another shard or the delivery worker.
    TopicGrew(Arc<str>),
    /// A task of the node's liveness.
    Liveness(LivenessTask),
    /// The client of a session is lost in one channel, as if its connection had closed; the session lives on.
    LosePresence { session: ListenerId, channel: Box<str> },
}

impl Shard {
    pub fn new(node: Arc<Node>, index: usize, rng: Box<dyn RandomSource>, now: Time) -> Shard {
        let mut core = Core::new(node, index, rng, now);
        Shard {
            topics: Topics::new(&mut core),
            history: History::new(&mut core),
            core,
            presence: Presence::new(),
            people: People::default(),
            inbox: Inbox::new(),
            party: Parties::new(),
            migration: Migration::default(),
            control: UserControl::new(),
        }
    }

    pub fn handle(&mut self, now: Time, input: ShardEvent) {
        self.core.now = now;
        let core = &mut self.core;
        match input {
            ShardEvent::Answer(ticket, answer) => self.answered(ticket, answer),
            ShardEvent::Message(message) => core.receive(now, message),
            ShardEvent::Presence(update) => self.presence.apply_update(core, &update),
            ShardEvent::Status(update) => self.people.apply_update(core, &update),
            ShardEvent::Migration { from, request } => {
                self.migration.message(core, &self.presence, &from, request);
            }
            ShardEvent::BusReady(links) => self.bus_ready(links),
            ShardEvent::BusLost(channel) => {
                loss::messages_lost(core, channel.as_deref());
                let name = channel.as_deref().map(|name| std::str::from_utf8(name).unwrap_or_default());
                self.history.lost(core, name);
                if channel.is_none() {
                    self.people.check(core, true);
                }
            }
            ShardEvent::Service { number, order } => self.service_command(number, order),
            ShardEvent::Topic { number, caller, command } => {
                self.topics.handle(core, number, caller, command)
            }
            ShardEvent::Control(message) => self.control.message(core, message),
            ShardEvent::KeepBans => self.control.keep_bans(core),
            ShardEvent::TopicGrew(topic) => self.topics.topic_grew(core, &topic),
            ShardEvent::Liveness(task) => self.liveness_task(task),
            ShardEvent::LosePresence { session, channel } => self.presence.lose_in(core, session, &channel),
        }
        self.route();
    }

    fn answered(&mut self, ticket: Ticket, answer: StoreAnswer) {
        let core = &mut self.core;
        match Feature::of(ticket) {
            Feature::Presence => self.presence.answered(core, ticket, answer),
            Feature::People => self.people.answered(core, ticket, answer),
            Feature::Inbox => self.inbox.answered(core, ticket, answer),
            Feature::Party => self.party.answered(core, ticket, answer),
            Feature::Migration => {
                self.migration.answered(core, ticket, answer);
            }
            Feature::Topics => self.topics.answered(core, ticket, answer),
            Feature::History => self.history.answered(core, ticket, answer),
            Feature::Control => self.control.answered(core, ticket, answer),
            Feature::None => core.question_answered(ticket, answer),
        }
    }

    fn bus_ready(&mut self, links: Vec<LinkId>) {
        for link in links {
            if link == PEOPLE_LINK {
                self.people.bus_ready(&mut self.core);
            } else if Migration::owns_link(link) {
                self.migration.bus_ready(&mut self.core, &self.presence, link);
            } else {
                self.core.effects.ready.push(link);
            }
        }
    }

    fn liveness_task(&mut self, task: LivenessTask) {
        let core = &mut self.core;
        match task {
            LivenessTask::TakeOver(taken) => {
                let TakenOver { presence, node, loss, seen } = *taken;
                self.presence.take_over(core, &presence, AttendanceInput::LoseNode { node, loss, seen });
            }
            LivenessTask::Overdue(deadline) => self.overdue(&deadline),
            LivenessTask::Sweep(user) => self.presence.sweep_user(core, user),
            LivenessTask::Compare => {
                self.presence.rooms().compare_rooms(core);
                self.people.check(core, false);
                self.history.compare(core);
            }
            LivenessTask::Announce => self.presence.announce(core),
        }
    }

    /// Handles a deadline that some node stored and that is overdue.
    fn overdue(&mut self, deadline: &Deadline) {
        let core = &mut self.core;
        match &*deadline.kind {
            // Delete nothing by a clock that may be wrong: the deadline is found again later.
            rows::INBOX | rows::ONCE | rows::KEYED_PUBLISH | rows::MOVED | control::BAN
                if core.node.deletion_time(core.now).is_none_or(|time| time < deadline.due) => {}
            rows::INBOX => self.inbox.is_due(core, deadline),
            rows::ONCE => self.inbox.forget_once(core, deadline),
            rows::KEYED_PUBLISH => Topics::forget_keyed_publish(core, deadline),
            rows::MOVED => crate::migration::forget_forward(core, deadline),
            control::BAN => self.control.is_due(core, deadline),
            rows::PARTY | rows::MEMBERSHIP | rows::FORGET => self.party.is_due(core, deadline),
            _ => self.presence.is_due(core, deadline),
        }
    }

    /// Gives each notice to the features that need it, until there are none left.
    pub(crate) fn route(&mut self) {
        while let Some(notice) = self.core.next_notice() {
            self.notice(notice);
        }
    }

    fn notice(&mut self, notice: Notice) {
        let core = &mut self.core;
        match notice {
            Notice::SessionOpened { id } => {
                block::block_if_ordered(core, id);
                self.people.session_opened(core, id);
                self.presence.join_own(core, id);
            }
            Notice::SessionAttached { id, acknowledged } => {
                if let Some(seq) = acknowledged {
                    self.inbox.acknowledge(core, id, seq);
                }
                self.presence.come_back(core, id);
            }
            Notice::SessionReturns { id } => self.presence.come_back(core, id),
            Notice::RightsChanged { id, former } => self.presence.end_revoked(core, id, &former),
            Notice::UserAnnounced { user } => self.party.user_announced(core, &user),
            Notice::SessionEnds { id } => self.end_session(id),
            Notice::SessionBlocked { id, reason } => block::block_session(self, id, reason),
            Notice::ChannelUnwatched { channel } => self.presence.rooms().unwatched(core, &channel),
            Notice::ChannelStale { channel } => self.presence.rooms().read_again(core, &channel),
            Notice::ChannelLoaded { channel, base } => {
                self.migration.channel_loaded(core, &channel, base);
            }
            Notice::PresenceChanged(update) => self.presence.apply_update(core, &update),
            Notice::StatusUpdate { user, update } => self.people.publish(core, &user, update),
            Notice::InboxChanged { user } => {
                self.inbox.check(core, &user);
                self.party.party_changed(core, &user);
            }
            Notice::PartyCommitted { user, messages } => {
                self.people.publish_elsewhere(core, &user, UserUpdate::Inbox);
                self.inbox.deliver_committed(core, &user, &messages);
            }
            Notice::VisibilityLoaded { user } => self.presence.visibility_loaded(core, &user),
            Notice::VisibilityFailed { user, answer } => {
                self.presence.visibility_failed(core, &user, &answer);
            }
            Notice::VisibilityChanged { user } => self.presence.sync_visibility(core, &user),
            Notice::VisibilityChangedIn { key } => self.presence.sync_visibility_in(core, key),
            Notice::MemberChanged { user, recorded } => {
                self.party.check_membership(core, &user, recorded);
            }
            Notice::UserConnected { user } => self.party.user_connected(core, &user),
            Notice::HeldCommitted { held, receipt } => {
                held_committed(&mut self.presence, core, *held, &receipt)
            }
            Notice::ClientWithoutSession { key, client } => {
                if !self.migration.has_departed(client) {
                    self.presence.lose_client(core, key, client);
                }
            }
            Notice::SessionStays { id } => {
                self.presence.announce_session(core, id);
                block::block_if_ordered(core, id);
            }
            Notice::PresenceMoved { id, channel, state } => {
                self.presence.join_again(core, id, &channel, state);
            }
            Notice::ClientLost { identity, client, channel, loss } => {
                self.presence.lose_departed(core, &identity, client, &channel, loss);
            }
            Notice::StatusesMoved { id, known } => self.people.compare_statuses(core, id, known),
            Notice::SessionPacks { half } => self.pack_outgoing(half),
            Notice::HistoryMessage(message) => self.history.arrived(core, message),
            Notice::HistoryJoined { channel } => self.history.subscribed(core, &channel),
            Notice::HistoryMoved { id, channel, position } => {
                self.history.resume_at(core, id, &channel, position);
            }
            Notice::HistoryBrought { id, channel, position } => {
                self.history.brought(core, id, &channel, position);
            }
            Notice::HistoryLeft { id, channel } => self.history.left(core, id, &channel),
        }
    }

    /// Work for the server about topics.
    pub fn topic_effects(&mut self) -> &mut TopicEffects {
        &mut self.topics.effects
    }

    /// Every feature drops its state of a session, then the core does.
    fn end_session(&mut self, id: ListenerId) {
        let core = &mut self.core;
        self.presence.lose_all(core, id);
        if let Some(user) = core.user_of(id)
            && core.users.remove_session(&user, id)
        {
            self.presence.user_left(&user);
            self.people.user_left(core, &user);
            self.party.user_left(core, &user);
            core.users.remove(&user);
            core.node.population.remove_user(&user);
        }
        core.remove(id);
    }
}
