//! The commands about topics, their callers and the replies. Nothing here decides.

use super::attempts::AttemptFilter;
use super::settings::SubscriptionChange;
use std::sync::Arc;
use tavern_domain::delivery::DeliveryProgress;
use tavern_domain::{Identity, Scope, Time};
use tavern_wire::json::event::PublishedEvent;
use tavern_wire::record::{AttemptRecord, DeadLetterRecord, PublishReply, SubscriptionSettings};

/// The owner and publisher when no API key is used.
pub const ANONYMOUS_PUBLISHER: &str = "dev";

/// The publisher of events that applications emit from SQL.
pub const SQL_PUBLISHER: &str = "sql";

/// The API key of a command, by its id. A topic or subscription belongs to the key that created it; an admin has the same
/// rights as its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicCaller {
    pub id: Arc<str>,
    pub admin: bool,
}

impl TopicCaller {
    pub fn of(identity: &Identity) -> TopicCaller {
        let id = identity.key.clone().unwrap_or_else(|| ANONYMOUS_PUBLISHER.into());
        TopicCaller { id, admin: identity.scopes.has(Scope::Admin) }
    }

    pub fn owns(&self, owner: &str) -> bool {
        *self.id == *owner
    }

    pub fn may(&self, owner: &str) -> bool {
        self.admin || self.owns(owner)
    }
}

#[derive(Debug)]
pub enum TopicCommand {
    /// Adds events to a topic. `once` is the `Idempotency-Key`, short enough for an id: events without an id get an
    /// id derived from it.
    Publish {
        topic: Arc<str>,
        once: Option<String>,
        events: Vec<PublishedEvent>,
    },
    /// A page of all topics, by name.
    ListTopics {
        after: String,
        limit: u32,
    },
    ShowTopic {
        topic: Arc<str>,
    },
    /// A page of the stored events of a topic.
    BrowseTopic {
        topic: Arc<str>,
        from: BrowseFrom,
        limit: u32,
    },
    /// Transfers the topic to another key, or to the next key that publishes.
    AssignTopic {
        topic: Arc<str>,
        publisher: Option<Arc<str>>,
    },
    DeleteTopic {
        topic: Arc<str>,
    },
    /// A page of the caller's subscriptions, or of all for an admin, by name.
    ListSubscriptions {
        after: String,
        limit: u32,
    },
    ShowSubscription {
        name: Arc<str>,
    },
    /// Creates a subscription, or changes the given settings.
    PutSubscription {
        name: Arc<str>,
        change: Box<SubscriptionChange>,
    },
    DeleteSubscription {
        name: Arc<str>,
    },
    /// Signs with a new secret; the previous one still signs for a while.
    RotateSecret {
        name: Arc<str>,
        secret: String,
    },
    /// The stored attempts to deliver to a subscription, the newest first.
    ListAttempts {
        name: Arc<str>,
        filter: AttemptFilter,
    },
    /// One stored attempt, with the body that it sent.
    ShowAttempt {
        name: Arc<str>,
        number: u64,
    },
    /// Enables or disables a subscription.
    SwitchSubscription {
        name: Arc<str>,
        on: bool,
    },
    /// Acknowledges everything through `after`, and requests the next events. Waits if there are none.
    Pull {
        name: Arc<str>,
        after: Option<u64>,
        limit: u32,
        wait_ms: u64,
    },
    /// Delivers everything from there on again.
    Replay {
        name: Arc<str>,
        from: ReplayFrom,
    },
    /// A page of the dead letters of a subscription, by number.
    ListDeadLetters {
        name: Arc<str>,
        after: Option<u64>,
        limit: u32,
    },
    RetryDeadLetters {
        name: Arc<str>,
        choice: DeadLetterChoice,
    },
}

/// Where a page of a topic begins, by the number of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrowseFrom {
    /// The events after it, the oldest first.
    After(u64),
    /// The events before it, the newest first.
    Before(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayFrom {
    /// From 1 on.
    Seq(u64),
    /// Milliseconds since 1970.
    Time(u64),
}

/// Selects dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeadLetterChoice {
    #[default]
    All,
    /// Those with one of these numbers or ids.
    Some { seqs: Vec<u64>, ids: Vec<String> },
}

impl DeadLetterChoice {
    pub(super) fn has(&self, letter: &DeadLetterRecord) -> bool {
        match self {
            DeadLetterChoice::All => true,
            DeadLetterChoice::Some { seqs, ids } => {
                seqs.contains(&letter.seq) || ids.iter().any(|id| **id == *letter.id)
            }
        }
    }
}

/// The result for the events of a publish.
pub type PublishResult = PublishReply;

#[derive(Debug, PartialEq, Eq)]
pub enum TopicReply {
    /// Done; there is nothing to return.
    Done,
    Published(PublishResult),
    Topics {
        topics: Vec<TopicState>,
        /// The name after which the next page begins.
        next: Option<Arc<str>>,
    },
    Topic(TopicState),
    /// The topic has this publisher now.
    Assigned {
        topic: TopicState,
        created: bool,
    },
    Subscriptions {
        subscriptions: Vec<SubscriptionState>,
        next: Option<Arc<str>>,
    },
    Subscription(Box<SubscriptionState>),
    Put {
        subscription: Box<SubscriptionSettings>,
        created: bool,
        /// Returned only this once.
        secret: Option<String>,
    },
    Pulled(Pulled),
    Replayed {
        from_seq: u64,
        /// False: the requested position has not been sent yet.
        rewound: bool,
    },
    /// Events of a topic as JSON, with commas between; the position after which the next page begins.
    Browsed {
        entries: Vec<u8>,
        next: Option<u64>,
    },
    Attempts {
        attempts: Vec<AttemptRecord>,
        /// The number before which the next page begins.
        next: Option<u64>,
    },
    Attempt(Box<AttemptRecord>),
    DeadLetters {
        letters: Vec<DeadLetterRecord>,
        next: Option<u64>,
    },
    Retried {
        retried: usize,
        /// There are more than can be retried at once.
        more: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicState {
    pub name: Arc<str>,
    pub publisher: Option<Arc<str>>,
    /// How many events it has had.
    pub events: u64,
    pub subscriptions: u64,
    pub created_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionState {
    pub subscription: SubscriptionSettings,
    pub progress: DeliveryProgress,
    /// The number of its last event.
    pub seq: u64,
    /// When the oldest waiting event was accepted.
    pub oldest: Option<Time>,
    /// Not included in lists.
    pub dead_letters: Option<usize>,
}

/// Events for a client that pulls.
#[derive(Debug, PartialEq, Eq)]
pub struct Pulled {
    /// As JSON, with commas between.
    pub entries: Vec<u8>,
    pub count: u32,
    pub first_seq: u64,
    /// The number of the last event, or of the last that was acknowledged if there is none.
    pub last_seq: u64,
}
