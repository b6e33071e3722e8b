//! What one commit changes, and its receipt.

use crate::deadline::Deadline;
use crate::history::{HistoryAppended, HistoryClear, NewHistoryMessage};
use crate::inbox::{FreedMessages, NewInboxMessage};
use crate::lease::TakeLease;
use crate::log::{Append, Appended, LogEntry, Trim};
use crate::node::Writer;
use crate::presence::{ChannelVersionBump, HeldPresence};
use crate::row::{Row, RowKey};
use crate::social::LastSeenUpdate;
use std::sync::Arc;
use tavern_domain::{Epoch, Time};

/// Everything that one command changes. Checked first: the writer's epoch, the expectations, the leases to take. Then
/// applied in this order: node, deletes, puts, raises, seen, deadlines, leases, log, inboxes, history.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The epoch that writes. `None` only for operator tools and for the commit that opens the epoch.
    pub writer: Option<Writer>,
    pub node: Option<NodeChange>,
    pub expects: Vec<Expect>,
    pub puts: Vec<Row>,
    /// Deleting an absent row is not an error.
    pub deletes: Vec<RowKey>,
    /// The channels whose presences change, each once.
    pub raises: Vec<ChannelVersionBump>,
    /// When users were last seen; an older time is ignored.
    pub seen: Vec<LastSeenUpdate>,
    pub deadlines: Vec<Deadline>,
    /// Leases for the writer, each once.
    pub takes: Vec<TakeLease>,
    /// Log entries with their own positions, counts and times, in the order of their positions: for operator tools that
    /// move a store. Entries at or below the head are skipped. Before `appends`.
    pub restores: Vec<LogEntry>,
    /// To the log, in this order.
    pub appends: Vec<Append>,
    pub trim: Option<Trim>,
    /// Before inbox messages are added.
    pub freed_messages: Vec<FreedMessages>,
    pub inbox_messages: Vec<NewInboxMessage>,
    /// Before `history`.
    pub history_clears: Vec<HistoryClear>,
    /// To the history of their channels, in this order.
    pub history: Vec<NewHistoryMessage>,
    /// What it deletes was asked to be erased: an engine with files of its own leaves no copy in them.
    pub erases: bool,
}

/// The version a row must have; 0: it must not exist. A deadline's version is its due time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    pub key: RowKey,
    pub version: u64,
}

/// A step in the lifetime of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Opens a new epoch. An open epoch of the same name is closed: a name is one node.
    Open { name: Arc<str>, lease_ms: u64 },
    /// Extends the lease; never shortens it. A closed epoch is `Fenced`.
    Renew { node: Writer, lease_ms: u64 },
    /// The first step of a take-over. Closing again changes nothing and returns the same `closed_at`.
    Close { node: Writer, proof: CloseProof },
    /// A clean shutdown.
    Stop { node: Writer },
    /// The last step of a take-over: no row of the closed epoch is left.
    Forget { node: Writer },
}

/// Why an epoch may be closed by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseProof {
    /// Its lease has ended by the store's time; checked by the store.
    LeaseEnded,
    /// Its process is known to have ended (its lock file is free).
    ProcessGone,
}

/// The version that a row has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    pub key: RowKey,
    pub version: u64,
}

/// The version that a channel has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedChannel {
    pub channel: Arc<str>,
    pub version: u64,
    /// The channel was empty before: its versions start again.
    pub was_empty: bool,
}

/// The store's answer to an applied commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The store's time of this commit.
    pub time: Time,
    /// In the order of `puts`.
    pub put: Vec<ChangedRow>,
    /// Deleting is a change and takes a version too, in the order of `deletes`; 0 for deadlines.
    pub deleted: Vec<ChangedRow>,
    /// In the order of `raises`.
    pub raised: Vec<ChangedChannel>,
    /// The channels in which an app holds the users whose presence was put or deleted.
    pub held: Vec<HeldPresence>,
    /// The number of each lease, in the order of `takes`. A later commit that expects it is refused when another node
    /// has taken the lease.
    pub taken: Vec<u64>,
    /// In the order of `appends`.
    pub appended: Vec<Appended>,
    /// The number of each message in its inbox, in the order of `inbox_messages`.
    pub inbox_numbers: Vec<u64>,
    /// In the order of `history`.
    pub history: Vec<HistoryAppended>,
    /// The epoch that was opened.
    pub epoch: Option<Epoch>,
    /// When the epoch that was closed or stopped was closed first.
    pub closed_at: Option<Time>,
}

impl Receipt {
    /// The version that a row has got. None: the commit did not change it.
    pub fn version(&self, key: &RowKey) -> Option<u64> {
        // A row that is deleted and put is put last.
        let mut changed = self.put.iter().rev().chain(self.deleted.iter().rev());
        changed.find(|row| row.key == *key).map(|row| row.version)
    }

    /// What has become of a channel. None: no presence in it was changed.
    pub fn channel(&self, name: &str) -> Option<&ChangedChannel> {
        self.raised.iter().find(|raised| *raised.channel == *name)
    }
}
