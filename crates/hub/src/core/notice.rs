//! Notices from the core or one feature to the others. The shard takes them from a queue and gives each to the
//! features that need it, so that features need not know each other.

use crate::connection::CloseReason;
use crate::core::listener::ListenerId;
use crate::event::Message;
use crate::held::HeldChange;
use crate::node::ChannelUpdate;
use std::sync::Arc;
use tavern_domain::presence::{ClientLoss, ClientState, UserUpdate};
use tavern_domain::{ClientId, HistoryPosition, Identity, Rights};
use tavern_store::{PresenceKey, Receipt, StoreAnswer};

/// Inbox messages of one user with their numbers.
pub(crate) type CommittedMessages = Vec<(u64, Arc<[u8]>)>;

#[derive(Debug)]
pub(crate) enum Notice {
    /// A session was opened here, or migrated from another node.
    SessionOpened { id: ListenerId },
    /// A session has a connection again; with a cursor, everything up to it is acknowledged.
    SessionAttached { id: ListenerId, acknowledged: Option<u64> },
    /// The client of a detached session has reconnected; its connection is attached when the hello is done.
    SessionReturns { id: ListenerId },
    /// A session continues with another token: presences that only the former rights allowed end.
    RightsChanged { id: ListenerId, former: Arc<Rights> },
    /// All presence changes of a user in their own channel are committed: other nodes see their current presence.
    UserAnnounced { user: Arc<str> },
    /// A session ends: every feature drops its state, then the core does.
    SessionEnds { id: ListenerId },
    /// A session must end at once, because its user was disconnected or banned: its client leaves every channel.
    SessionBlocked { id: ListenerId, reason: CloseReason },
    /// The last local watcher of a channel's presence has left.
    ChannelUnwatched { channel: Arc<str> },
    /// The cached presence of a channel may be stale: it must be read again.
    ChannelStale { channel: Arc<str> },
    /// A watched channel was read; watchers get the changes after `base`.
    ChannelLoaded { channel: Arc<str>, base: u64 },
    /// The presence of a channel changed: for its watchers here.
    PresenceChanged(ChannelUpdate),
    /// A fact about a user changed: for their sessions and followers on all nodes.
    StatusUpdate { user: Arc<str>, update: UserUpdate },
    /// A user's inbox or party may have changed: read it.
    InboxChanged { user: Arc<str> },
    /// A commit of this shard has changed a user's party, which their local sessions know already, and added these
    /// messages to their inbox: for their sessions everywhere.
    PartyCommitted { user: Arc<str>, messages: CommittedMessages },
    /// The visibility of a local user is known: joins that waited for it can go on.
    VisibilityLoaded { user: Arc<str> },
    /// The visibility of a local user could not be loaded: commands that wait for it are refused.
    VisibilityFailed { user: Arc<str>, answer: StoreAnswer },
    /// The visibility of a local user changed, in every channel they are present in.
    VisibilityChanged { user: Arc<str> },
    /// The visibility of a user changed in one channel.
    VisibilityChangedIn { key: PresenceKey },
    /// A user's presence changed in a way that concerns their party. `recorded`: a deadline for it was committed.
    MemberChanged { user: Arc<str>, recorded: bool },
    /// A user connected, or connected again.
    UserConnected { user: Arc<str> },
    /// A commit has changed a held presence together with other rows: its part of the receipt.
    HeldCommitted { held: Box<HeldChange>, receipt: Receipt },
    /// A client joined a channel, but its session has ended since.
    ClientWithoutSession { key: PresenceKey, client: ClientId },
    /// A migration was cancelled and the session stays here: announce its client again wherever it is present.
    SessionStays { id: ListenerId },
    /// A session migrated here: its client is present under this node from now on.
    PresenceMoved { id: ListenerId, channel: Arc<str>, state: Option<ClientState> },
    /// The client of a session that moved is not present under its new node.
    ClientLost { identity: Box<Identity>, client: ClientId, channel: Arc<str>, loss: ClientLoss },
    /// A session migrated here with the statuses its client has.
    StatusesMoved { id: ListenerId, known: Vec<(Arc<str>, u64)> },
    /// A message of a channel with history arrived: it is delivered in the order of the history.
    HistoryMessage(Arc<Message>),
    /// A channel with history has a new listener.
    HistoryJoined { channel: Arc<str> },
    /// A session has a channel's history up to a position, and gets the messages after it.
    HistoryMoved { id: ListenerId, channel: Arc<str>, position: HistoryPosition },
    /// The same for a session that arrived from another node. It replaces the position of the listener that collected
    /// messages for it.
    HistoryBrought { id: ListenerId, channel: Arc<str>, position: HistoryPosition },
    /// A listener left a channel with history.
    HistoryLeft { id: ListenerId, channel: Arc<str> },
    /// A session must be packed to migrate to another node.
    SessionPacks { half: u64 },
}
