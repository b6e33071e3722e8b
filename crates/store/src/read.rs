//! Typed reads and their results.

use crate::deadline::Deadline;
use crate::document::{Document, DocumentKey};
use crate::history::{HistoryList, HistoryPage};
use crate::inbox::InboxPage;
use crate::key::ApiKey;
use crate::lease::Lease;
use crate::log::{LogPage, TopicPage};
use crate::node::{NodeRow, Writer};
use crate::page::{Page, Versioned};
use crate::presence::{PresenceHold, PresenceKey, PresencePage, PresenceRow, StalePresence};
use crate::row::{Row, RowKey, RowKind};
use crate::session::StoredSession;
use crate::social::{FollowPage, UserSnapshot};
use crate::totals::StoreTotals;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};

/// One typed read. Lists come in pages: `after` is the last row of the page before, `limit` at most `limits::PAGE_ROWS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Time,
    /// How much there is of some kinds, without counting it.
    Totals,
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
    /// The presences of a user, by channel.
    ChannelsOf {
        user: Arc<str>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Several users, each read at one moment, in the requested order; at most a page of them.
    People {
        users: Vec<Arc<str>>,
        /// The user who asks.
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
    /// Presences with a client of one epoch of a node, by channel and user.
    PresencesAt {
        node: Writer,
        after: Option<PresenceKey>,
        limit: u32,
    },
    /// Presences with a client that joined by `before` on an epoch that the store does not know, open or closed; and
    /// those whose last deadline was over by `before`. By user and channel: all presences of a user are removed
    /// together.
    StalePresences {
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
    /// Topics by name; if names are given, only these.
    Topics {
        names: Vec<Arc<str>>,
        after: Option<Arc<str>>,
        limit: u32,
    },
    /// Messages of a channel's history with an offset above `after` and below `before`: the first ones, or the last ones.
    History {
        channel: Arc<str>,
        after: u64,
        before: u64,
        newest: bool,
        limit: u32,
    },
    /// Channels with history, by expiry and name, earliest first.
    Histories {
        after: Option<(Time, Arc<str>)>,
        limit: u32,
    },
    /// A user's inbox, the oldest message first.
    Inbox {
        user: Arc<str>,
        after: u64,
        limit: u32,
    },
}

/// The result of a read; the variant depends on the read.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    Time(Time),
    Totals(StoreTotals),
    Key(Option<Versioned<ApiKey>>),
    Keys(Page<Versioned<ApiKey>>),
    Session(Option<Versioned<StoredSession>>),
    Sessions(Page<Versioned<StoredSession>>),
    Nodes(Page<NodeRow>),
    Deadlines(Page<Deadline>),
    Document(Option<Versioned<Document>>),
    Presence(Option<Versioned<PresenceRow>>),
    Roster(PresencePage),
    People(Vec<UserSnapshot>),
    Hold(Option<Versioned<PresenceHold>>),
    Edges(FollowPage),
    Presences(Page<Versioned<PresenceRow>>),
    StalePresences(Page<StalePresence>),
    Rows(Page<Versioned<Row>>),
    Lease(Option<Versioned<Lease>>),
    Log(LogPage),
    Topics(TopicPage),
    Inbox(InboxPage),
    History(HistoryPage),
    Histories(HistoryList),
}
