//! Faults that are planted around the production code, to check that the judges find them. Each belongs to the
//! workload whose judges must find it.

use crate::rng::Rng;
use std::collections::BTreeMap;
use tavern_store::BusPacket;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlantedFault {
    // Messages.
    /// A frame on its way to a client is lost.
    LostFrame,
    /// A frame reaches a client twice.
    RepeatedFrame,
    /// A message from one shard to another is lost.
    LostShardMessage,
    /// Messages from one shard to another are reordered.
    SwappedShardMessages,
    /// Bytes that a socket refused are dropped.
    ForgottenBytes,
    /// Events are marked as written that the socket did not accept.
    EarlySettle,

    // History.
    /// A message is answered and not written.
    LostHistoryMessage,
    /// The id of a message is forgotten: what is repeated is taken for new.
    ForgottenMessageId,
    /// A message is missing in a page of the history.
    LostHistoryRow,
    /// A message arrives on another node with an offset that is one too high.
    WrongOffset,
    /// A session migrates with a position that is too far.
    WrongPosition,
    /// A session migrates without knowing which messages its mailbox has dropped.
    ForgottenDrops,
    /// A clear is answered and not written.
    LostClear,

    // Migration.
    /// The new node takes a session without removing it from the store.
    SharedSession,
    /// A session migrates without its unread events.
    LostMailbox,
    /// The new node does not know which messages a session has received on the old one.
    LostMarks,
    /// A session that was in the store gets no gap for the messages it missed.
    UntoldGap,
    /// A node asks for a session and gets no answer.
    DeafNode,

    // Parties and inboxes.
    /// A commit loses an inbox message.
    LostInboxMessage,
    /// A commit stores an inbox message twice.
    RepeatedInboxMessage,
    /// A party has a member whose membership is not stored.
    LostMembership,
    /// The idempotency key of a request is not stored.
    ForgottenRequest,
    /// A party command is answered and not written.
    FalseParty,

    // People.
    /// A follow is answered and not written.
    LostFollow,
    /// A change of visibility is answered and not written.
    LostVisibility,
    /// The time a user was last seen is not stored.
    LostLastSeen,

    // Topics.
    /// An event is answered and not written.
    LostAppend,
    /// The id of an event is dropped: a duplicate counts as new.
    ForgottenId,
    /// A replay is answered and not written.
    LostReplay,
    /// The progress of a delivery is not written.
    LostProgress,
    /// A refused event is not kept.
    LostDeadLetter,
    /// Two workers may have one subscription.
    NoDeliveryLease,
    /// Retention drops events that a subscription has not received, and no gap reports them.
    UntoldLoss,
    /// Retention drops more events than the limits allow.
    GreedyRetention,
    /// A deleted topic stays in its subscriptions: events of a new topic of that name are delivered.
    KeptTopic,
    /// A new topic takes the ids of a deleted topic of the same name for its own.
    ForgottenTopic,
    /// A change of a subscription is answered and not written.
    LostSettings,
    /// A dead letter is retried: it is removed, and not delivered.
    LostRetry,

    // Presence.
    /// Presence changes are lost on the bus, and nothing is compared with the store.
    NoResync,
    /// An answer of the store never arrives.
    LostAnswer,
    /// A presence change carries a version that is one too high.
    WrongVersion,
    /// Two presence changes of a channel arrive with each other's version.
    SwappedVersions,
    /// An old presence change arrives again as if it were new.
    RepeatedChange,
    /// The deadline of a grace period is not stored, and the shard forgets it.
    MissingDeadline,
    /// A commit is written although its node's epoch is closed.
    NoFencing,
    /// A commit is written even if the row has changed since it was read.
    NoVersionCheck,
    /// No node takes over the presences of a dead node.
    NoTakeover,
    /// A node that was declared dead does not announce its clients.
    NoAnnounce,
    /// A loss is written with a deadline that is later than its grace period.
    LateDeadline,
    /// The clients of a live node are taken over.
    FalseTakeover,
    /// An event is delivered twice.
    RepeatedEvent,
    /// An event is not delivered.
    LostEvent,
    /// The node does not learn that a connection was lost.
    MissedDisconnect,
    /// A node's clock runs far ahead.
    ClockAhead,
    /// A loss is sent to watchers before the time for resuming is over.
    ShortResume,
    /// A clean stop stores no sessions.
    LostSessions,
    /// A join is answered before it is written.
    EarlyReply,
    /// A commit counts fewer changes than it sends.
    LowVersion,
}

impl PlantedFault {
    pub const HISTORY: &[PlantedFault] = &[
        PlantedFault::LostHistoryMessage,
        PlantedFault::ForgottenMessageId,
        PlantedFault::LostHistoryRow,
        PlantedFault::WrongOffset,
        PlantedFault::WrongPosition,
        PlantedFault::ForgottenDrops,
        PlantedFault::LostClear,
        PlantedFault::LostAnswer,
        PlantedFault::NoResync,
    ];
    pub const MESSAGES: &[PlantedFault] = &[
        PlantedFault::LostFrame,
        PlantedFault::RepeatedFrame,
        PlantedFault::LostShardMessage,
        PlantedFault::SwappedShardMessages,
        PlantedFault::ForgottenBytes,
        PlantedFault::EarlySettle,
    ];
    pub const MIGRATION: &[PlantedFault] = &[
        PlantedFault::SharedSession,
        PlantedFault::LostMailbox,
        PlantedFault::LostMarks,
        PlantedFault::UntoldGap,
        PlantedFault::DeafNode,
    ];
    pub const PARTIES: &[PlantedFault] = &[
        PlantedFault::LostInboxMessage,
        PlantedFault::RepeatedInboxMessage,
        PlantedFault::LostMembership,
        PlantedFault::ForgottenRequest,
        PlantedFault::FalseParty,
        PlantedFault::NoVersionCheck,
        PlantedFault::MissingDeadline,
        PlantedFault::LostAnswer,
        PlantedFault::NoResync,
    ];
    pub const PEOPLE: &[PlantedFault] = &[
        PlantedFault::LostFollow,
        PlantedFault::LostVisibility,
        PlantedFault::LostLastSeen,
        PlantedFault::LostInboxMessage,
        PlantedFault::RepeatedInboxMessage,
        PlantedFault::ForgottenRequest,
        PlantedFault::LostAnswer,
        PlantedFault::NoResync,
    ];
    pub const TOPICS: &[PlantedFault] = &[
        PlantedFault::LostAppend,
        PlantedFault::ForgottenId,
        PlantedFault::LostReplay,
        PlantedFault::LostProgress,
        PlantedFault::LostDeadLetter,
        PlantedFault::NoDeliveryLease,
        PlantedFault::LostAnswer,
        PlantedFault::UntoldLoss,
        PlantedFault::GreedyRetention,
        PlantedFault::KeptTopic,
        PlantedFault::ForgottenTopic,
        PlantedFault::LostSettings,
        PlantedFault::LostRetry,
    ];
    pub const PRESENCE: &[PlantedFault] = &[
        PlantedFault::NoResync,
        PlantedFault::LostAnswer,
        PlantedFault::WrongVersion,
        PlantedFault::SwappedVersions,
        PlantedFault::RepeatedChange,
        PlantedFault::MissingDeadline,
        PlantedFault::NoFencing,
        PlantedFault::NoVersionCheck,
        PlantedFault::NoTakeover,
        PlantedFault::NoAnnounce,
        PlantedFault::LateDeadline,
        PlantedFault::FalseTakeover,
        PlantedFault::RepeatedEvent,
        PlantedFault::LostEvent,
        PlantedFault::MissedDisconnect,
        PlantedFault::ClockAhead,
        PlantedFault::ShortResume,
        PlantedFault::LostSessions,
        PlantedFault::EarlyReply,
        PlantedFault::LowVersion,
    ];
}

/// The fault of a run, if it has one.
pub struct Planted {
    fault: Option<PlantedFault>,
    struck: bool,
    pub rng: Rng,
    /// Bus messages that are held back or duplicated, by node and subject.
    pub kept: BTreeMap<(usize, String), BusPacket>,
}

impl Planted {
    pub fn new(fault: Option<PlantedFault>, rng: Rng) -> Planted {
        Planted { fault, struck: false, rng, kept: BTreeMap::new() }
    }

    pub fn fault(&self) -> Option<PlantedFault> {
        self.fault
    }

    pub fn is(&self, fault: PlantedFault) -> bool {
        self.fault == Some(fault)
    }

    /// Whether it has happened at least once.
    pub fn has_struck(&self) -> bool {
        self.struck
    }

    pub fn strike(&mut self) {
        self.struck = true;
    }

    /// Whether this fault happens now, with this probability in percent.
    pub fn strikes(&mut self, fault: PlantedFault, percent: usize) -> bool {
        let now = self.is(fault) && self.rng.chance(percent);
        self.struck |= now;
        now
    }
}
