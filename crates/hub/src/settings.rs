//! The settings of the hub, fixed at boot: bounds, times, rules per channel kind. Plain values, no parsing.

use crate::connection::EventFormat;
use std::collections::BTreeMap;
use tavern_domain::delivery::RetryPolicy;
use tavern_domain::party::PartyLimits;
use tavern_domain::presence::{Activities, PresenceMode, Thresholds};
use tavern_domain::{Channel, Epoch, HistoryLimits, Verbs};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowReader {
    /// Drop the oldest unread events and report a gap.
    Gap,
    /// Close the connection; the session can be resumed.
    Close,
}

/// The settings of all channels of one kind.
#[derive(Clone, Copy, Debug)]
pub struct KindRules {
    pub grace_ms: u64,
    pub slow_reader: SlowReader,
    /// How watchers are notified; None: by the size of the channel.
    pub presence_mode: Option<PresenceMode>,
    /// The rights of every user in these channels.
    pub allow: Verbs,
    /// None: messages are not stored.
    pub history: Option<HistoryRules>,
    /// How long and how large a retained message may be where there is no history.
    pub retained: HistoryLimits,
}

/// The history of all channels of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryRules {
    pub limits: HistoryLimits,
    /// The right to subscribe includes reading the history. False: it needs the right `history`.
    pub with_subscribe: bool,
}

impl Default for KindRules {
    fn default() -> KindRules {
        KindRules {
            grace_ms: 15_000,
            slow_reader: SlowReader::Gap,
            presence_mode: None,
            allow: Verbs::NONE,
            history: None,
            retained: HistoryLimits { messages: 1, bytes: 1 << 20, ttl_ms: 3_600_000 },
        }
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub node: String,
    pub epoch: Epoch,
    /// The prefix of this cluster's names on engines that it shares with others.
    pub prefix: String,
    pub shards: usize,
    /// A disconnect shorter than this is not shown.
    pub resume_ms: u64,
    pub heartbeat_ms: u64,
    /// The longest frame of a JSON client, as `hello` reports it.
    pub frame_bytes: usize,
    pub poll_idle_ms: u64,
    pub message_bytes: usize,
    /// The largest state of a client in a channel.
    pub state_bytes: usize,
    pub mailbox_events: usize,
    pub mailbox_bytes: usize,
    pub mailbox_sent_ms: u64,
    /// A session without a connection whose mailbox holds so many unread events shares the logs of its channels.
    pub detached_unread: usize,
    pub mailbox_total_bytes: usize,
    /// Unread bytes of a Redis connection before it is closed; such a client cannot receive a gap.
    pub redis_pending_bytes: usize,
    /// From how many users on watchers get fewer events, and for how long changes are collected.
    pub crowds: Thresholds,
    pub tick_ms: u64,
    /// How a status is derived from the channels a user is in.
    pub activities: Activities,
    /// How long a disconnect is hidden from followers.
    pub disconnect_ms: u64,
    /// How many users one user may follow.
    pub following: usize,
    pub channels_per_session: usize,
    /// The same for the session of a gateway.
    pub gateway_channels: usize,
    pub patterns_per_session: usize,
    /// For one connection, and for all connections of a user on this node.
    pub commands_per_second: u32,
    pub address_commands_per_second: u32,
    pub address_hellos_per_second: u32,
    /// Hellos of the whole node, and how many of them are in progress; 0: no limit.
    pub hellos_per_second: u32,
    pub hellos_in_progress: usize,
    pub address_failed_logins_per_second: u32,
    /// Sessions of one user on this node; 0: no limit.
    pub sessions_per_user: usize,
    pub kinds: BTreeMap<String, KindRules>,
    pub other_kinds: KindRules,
    /// The app's authorize hook, called when the token does not grant a right. None: the configuration decides.
    pub authorize: Option<AuthorizeRules>,
    pub inbox: InboxRules,
    /// Bytes of all stored history: above this, the channels that expire first lose theirs.
    pub history_max_bytes: u64,
    pub parties: PartyRules,
    pub topics: TopicRules,
}

/// The configuration of topics and deliveries.
#[derive(Clone, Copy, Debug)]
pub struct TopicRules {
    pub patience: RetryPolicy,
    /// How long the previous secret of a subscription still signs.
    pub rotation_ms: u64,
    /// How many attempts of each subscription are stored.
    pub attempts_kept: u64,
    /// None: nothing is dropped from the log.
    pub retention: Option<RetentionRules>,
}

/// How much the log of topics keeps.
#[derive(Clone, Copy, Debug)]
pub struct RetentionRules {
    pub retention_ms: u64,
    /// Above this many bytes the oldest events are dropped.
    pub max_bytes: u64,
    pub low_bytes: u64,
    /// The maximum number of event ids kept for deduplication.
    pub dedupe_max: u64,
}

/// The configuration of parties.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartyRules {
    pub rules: PartyLimits,
    /// How long a user who is rate-limited too often is blocked.
    pub block_ms: u64,
}

/// How much an inbox keeps, and for how long after its user was last seen.
#[derive(Clone, Copy, Debug)]
pub struct InboxRules {
    pub messages: usize,
    pub bytes: usize,
    pub keep_ms: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct AuthorizeRules {
    pub cache_ms: u64,
}

impl Settings {
    /// So many events are cheaper in a mailbox of its own than what joining and leaving logs costs.
    pub const DETACHED_UNREAD: usize = 8;

    pub fn kind(&self, kind: &str) -> &KindRules {
        self.kinds.get(kind).unwrap_or(&self.other_kinds)
    }

    /// How many channels a session may subscribe to and be present in, and the key that says so.
    pub(crate) fn channels_of(&self, format: EventFormat) -> (&'static str, usize) {
        match format {
            EventFormat::Gateway(_) => ("limits.gateway_channels", self.gateway_channels),
            _ => ("limits.channels_per_session", self.channels_per_session),
        }
    }

    /// How long a lost client counts as present in a channel.
    pub(crate) fn grace_ms(&self, channel: &str) -> u64 {
        self.kind(Channel::parse(channel).map_or("", |channel| channel.kind)).grace_ms
    }

    /// The kinds of channels that have history. None: also all kinds without rules of their own.
    pub(crate) fn history_kinds(&self) -> Option<Vec<String>> {
        let with_history = self.kinds.iter().filter(|(_, rules)| rules.history.is_some());
        self.other_kinds.history.is_none().then(|| with_history.map(|(kind, _)| kind.clone()).collect())
    }

    /// Whether some kind of channel has history.
    pub fn has_history(&self) -> bool {
        self.other_kinds.history.is_some() || self.kinds.values().any(|rules| rules.history.is_some())
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node: "node".into(),
            epoch: Epoch(1),
            prefix: "tavern".into(),
            shards: 1,
            resume_ms: 2_000,
            heartbeat_ms: 15_000,
            frame_bytes: 69_632,
            poll_idle_ms: 45_000,
            message_bytes: 65_536,
            state_bytes: 4_096,
            mailbox_events: 1024,
            mailbox_bytes: 1 << 20,
            mailbox_sent_ms: 30_000,
            detached_unread: Settings::DETACHED_UNREAD,
            mailbox_total_bytes: 1 << 30,
            redis_pending_bytes: 32 << 20,
            crowds: Thresholds { coalesce_at: 200, counts_at: 5_000 },
            tick_ms: 250,
            activities: Activities { others: "online".into(), ..Activities::default() },
            disconnect_ms: 1_000,
            following: 5_000,
            channels_per_session: 256,
            gateway_channels: 1_024,
            patterns_per_session: 64,
            commands_per_second: 100,
            address_commands_per_second: 2_000,
            address_hellos_per_second: 2_000,
            hellos_per_second: 0,
            hellos_in_progress: 0,
            address_failed_logins_per_second: 10,
            sessions_per_user: 32,
            kinds: BTreeMap::new(),
            other_kinds: KindRules::default(),
            authorize: None,
            inbox: InboxRules { messages: 256, bytes: 65_536, keep_ms: 600_000 },
            history_max_bytes: 1 << 30,
            parties: PartyRules { block_ms: 60_000, ..PartyRules::default() },
            topics: TopicRules {
                patience: RetryPolicy { backoff_min_ms: 1_000, backoff_max_ms: 300_000, disable_after_ms: 0 },
                rotation_ms: 86_400_000,
                attempts_kept: 200,
                retention: None,
            },
        }
    }
}
