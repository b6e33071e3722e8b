//! The contract of a store: one write verb, typed reads, answers into an inbox. No async runtime, no rule.
//! Must hold: each submitted work gets exactly one answer, also after a failure; a commit is all or nothing.

use crate::lease::{Lease, Take};
use crate::letter::{Freed, Letters, NewLetter};
use crate::limits;
use crate::log::{Append, Appended, Entry, Stretch, Topics, Trim};
use crate::presence::{Held, Hold, Presence, PresenceKey, Raise, Roster, Stray};
use crate::row::{
    ApiKey, Deadline, Document, DocumentKey, Node, Page, Row, RowKey, RowKind, StoredSession, Versioned,
    Writer,
};
use crate::social::{Edges, Person, Seen};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch, Time};

/// Names one submitted work; its answer carries it. Chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

pub trait Store: Send + Sync {
    /// Takes independent works. Never blocks. Answers arrive in the inbox, one per work, in no promised order;
    /// a read submitted after a commit was answered sees that commit.
    fn submit(&self, work: Vec<(Ticket, Work)>);

    fn name(&self) -> &'static str;

    /// Whether its time comes from a server that all nodes share, and not from the clock it was opened with.
    fn keeps_time(&self) -> bool;

    /// Grows when its server was reached anew and may be another than before, or have lost something.
    fn arrivals(&self) -> u64 {
        0
    }

    /// Its server may come back with an older state than the one it has answered from.
    fn forgets(&self) -> bool {
        false
    }

    /// Finishes what was submitted, then joins the threads. Later work is answered `Unavailable`.
    /// Not to be called from inside the inbox.
    fn stop(&self);
}

/// Given to an engine when it is opened. Only takes: it must be quick and must not wait for the engine.
pub trait Inbox: Send + Sync {
    fn answer(&self, answers: Vec<(Ticket, Answer)>);
}

#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "most works are commits: a box each would cost more than it saves"
)]
pub enum Work {
    Commit(Commit),
    Read(Read),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Committed(Receipt),
    Read(Found),
    Failed(StoreError),
}

/// Everything that one command changes. Checked first: the writer's epoch, the expectations, the leases to take. Carried
/// out in the order: node, deletes, puts, raises, seen, deadlines, leases, log, letters.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Who writes. `None` only for operator tools and for the commit that opens the epoch.
    pub writer: Option<Writer>,
    pub node: Option<NodeChange>,
    pub expects: Vec<Expect>,
    pub puts: Vec<Row>,
    /// Deleting what is not there is no error.
    pub deletes: Vec<RowKey>,
    /// The channels whose presences change, each once.
    pub raises: Vec<Raise>,
    /// When users were last seen; never goes back.
    pub seen: Vec<Seen>,
    pub deadlines: Vec<Deadline>,
    /// Leases for the writer, each once.
    pub takes: Vec<Take>,
    /// Into the log at their own positions, with their own counts and times, in the order of their positions: for operator
    /// tools that move a store. What is not above the head is left out. Before `appends`.
    pub restores: Vec<Entry>,
    /// To the log, in this order.
    pub appends: Vec<Append>,
    pub trim: Option<Trim>,
    /// Before letters are posted.
    pub freed: Vec<Freed>,
    pub letters: Vec<NewLetter>,
}

/// The version a row must have; 0: it must not exist. A deadline's version is its due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    pub key: RowKey,
    pub version: u64,
}

/// A step in the life of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Begins a new epoch. An epoch of the same name that is still open is closed: a name is one node.
    Open { name: Arc<str>, lease_ms: u64 },
    /// Prolongs the lease; never shortens it. A closed epoch is `Fenced`.
    Renew { node: Writer, lease_ms: u64 },
    /// The first step of a take-over. Closing again changes nothing and answers the same `closed_at`.
    Close { node: Writer, proof: Proof },
    /// A clean goodbye.
    Stop { node: Writer },
    /// The last step of a take-over: nothing of the closed epoch is left.
    Forget { node: Writer },
}

/// Why somebody else's epoch may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Its lease has ended by the store's time; checked by the store.
    LeaseEnded,
    /// Its process is known to be gone (its lock file is free).
    ProcessGone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The store's time of this commit.
    pub time: Time,
    /// New versions, in the order of `puts`.
    pub put: Vec<u64>,
    /// Deleting is a change and takes a version too, in the order of `deletes`; 0 for deadlines.
    pub deleted: Vec<u64>,
    /// The version that each channel has now, in the order of `raises`.
    pub raised: Vec<u64>,
    /// Whether nobody was in it before: its numbers begin anew.
    pub begun: Vec<bool>,
    /// The channels in which an app holds those whose presence was put or deleted.
    pub held: Vec<Held>,
    /// The number of each lease, in the order of `takes`. A later commit that expects it is refused when somebody else
    /// has taken the lease.
    pub taken: Vec<u64>,
    /// In the order of `appends`.
    pub appended: Vec<Appended>,
    /// The number of each letter in its inbox, in the order of `letters`.
    pub letters: Vec<u64>,
    /// The epoch that was opened.
    pub epoch: Option<Epoch>,
    /// When the epoch that was closed or stopped was closed first.
    pub closed_at: Option<Time>,
}

/// Lists come in pages: `after` is the last row of the page before, `limit` at most `limits::PAGE_ROWS`.
#[derive(Clone, Debug)]
pub enum Read {
    Time,
    KeyByHash([u8; 32]),
    /// By id.
    Keys {
        after: Option<Arc<str>>,
        limit: u32,
    },
    Session(ClientId),
    /// By the text of the client id; of one node by name, or all.
    Sessions {
        node: Option<Arc<str>>,
        after: Option<ClientId>,
        limit: u32,
    },
    /// By name and epoch, closed ones too.
    Nodes {
        after: Option<Writer>,
        limit: u32,
    },
    /// Due at `by` or before, the earliest first.
    DueDeadlines {
        by: Time,
        after: Option<Deadline>,
        limit: u32,
    },
    Document(DocumentKey),
    Presence(PresenceKey),
    /// Who is in a channel, by user.
    Roster {
        channel: Arc<str>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Where a user is, by channel.
    ChannelsOf {
        user: Arc<str>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Several at once, of one moment each, answered in the order asked; at most a page of them.
    People {
        users: Vec<Arc<str>>,
        /// Who asks.
        viewer: Option<Arc<str>>,
    },
    Hold(PresenceKey),
    /// Whom a user follows, by followee.
    Following {
        user: Arc<str>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Who follows a user, by follower.
    Followers {
        user: Arc<str>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Presences with a client that one life of a node vouches for, by channel and user.
    PresencesAt {
        home: Writer,
        after: Option<PresenceKey>,
        limit: u32,
    },
    /// Presences with a client that came by `before` and for which no node vouches that the store knows, open or
    /// closed; and those whose last deadline was over by `before`. By user and channel: a user is swept as a whole.
    Strays {
        before: Time,
        limit: u32,
    },
    /// Everything of a kind, by key: documents by kind and name, presences and holds by channel and user, follows by
    /// follower and followee. `after` is of the same kind.
    Rows {
        kind: RowKind,
        after: Option<RowKey>,
        limit: u32,
    },
    Lease(Arc<str>),
    /// Events of these topics, or of all when none is named, by position.
    Log {
        topics: Vec<Arc<str>>,
        after: u64,
        limit: u32,
    },
    /// Topics by name; only these, when some are named.
    Topics {
        names: Vec<Arc<str>>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// A user's letters, the oldest first.
    Letters {
        user: Arc<str>,
        after: u64,
        limit: u32,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Time(Time),
    Key(Option<Versioned<ApiKey>>),
    Keys(Page<Versioned<ApiKey>>),
    Session(Option<Versioned<StoredSession>>),
    Sessions(Page<Versioned<StoredSession>>),
    Nodes(Page<Node>),
    Deadlines(Page<Deadline>),
    Document(Option<Versioned<Document>>),
    Presence(Option<Versioned<Presence>>),
    Roster(Roster),
    People(Vec<Person>),
    Hold(Option<Versioned<Hold>>),
    Edges(Edges),
    Presences(Page<Versioned<Presence>>),
    Strays(Page<Stray>),
    Rows(Page<Versioned<Row>>),
    Lease(Option<Versioned<Lease>>),
    Log(Stretch),
    Topics(Topics),
    Letters(Letters),
}

pub type Cause = Arc<dyn Error + Send + Sync>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Read again and decide again.
    #[error("{key} is at version {found}, not at {expected}")]
    Conflict { key: RowKey, expected: u64, found: u64 },
    /// Open a new epoch and announce the living clients again.
    #[error("epoch {} of node {node} is closed", epoch.0)]
    Fenced { node: Arc<str>, epoch: Epoch },
    /// Leave that node alone.
    #[error("node {node} is alive until {}", until.0)]
    Leased { node: Writer, until: Time },
    /// An unknown node is not a dead node: nothing to take over.
    #[error("node {node} is unknown")]
    UnknownNode { node: Writer },
    /// Somebody else works on it; try again when it has ended.
    #[error("the lease {name} is held by {by} until {}", until.0)]
    Taken { name: Arc<str>, by: Writer, until: Time },
    /// Try again later. Whether a commit happened is not known: expectations make trying again safe.
    #[error("the store is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    /// Never try this again.
    #[error("{what}: {found}, at most {limit}")]
    TooLarge { what: &'static str, found: usize, limit: usize },
    /// A human must look.
    #[error("the store cannot be read: {what}")]
    Corrupt { what: String, source: Option<Cause> },
    /// The folder is wrong; choose or repair it.
    #[error("the data folder {} cannot be used: {reason}", path.display())]
    Folder { path: PathBuf, reason: String, source: Option<Cause> },
    /// Start the program that wrote it, or use another store.
    #[error(
        "the store has schema version {found}, this program uses {known}: start the tavern version that wrote it, or choose an empty store"
    )]
    SchemaVersion { found: u64, known: u64 },
    #[error("no store of kind {kind:?}: use memory:, sqlite:FOLDER, redis://… or postgres://…")]
    Address { kind: String },
    /// Write it anew. Says nothing of what stands there: it may be a password.
    #[error("the address of the store cannot be understood: {what}")]
    Malformed { what: &'static str },
}

#[derive(Debug, thiserror::Error)]
pub enum Outage {
    #[error("the store has stopped")]
    Stopped,
    #[error("too much work is waiting for the store")]
    Full,
    #[error("no answer in time")]
    Late,
    #[error("a fault was injected")]
    Injected,
}

impl From<Outage> for StoreError {
    fn from(outage: Outage) -> StoreError {
        StoreError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(outage) }
    }
}

impl StoreError {
    /// For whoever gave up waiting: whether it happened is not known.
    pub fn late() -> StoreError {
        Outage::Late.into()
    }

    /// A refusal concerns one commit; anything else is the engine's own trouble.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            StoreError::Conflict { .. }
                | StoreError::Fenced { .. }
                | StoreError::Leased { .. }
                | StoreError::UnknownNode { .. }
                | StoreError::Taken { .. }
                | StoreError::TooLarge { .. }
        )
    }
}
