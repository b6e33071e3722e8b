//! Notices from the core or one feature to the others. The shard takes notices from a queue and gives each to the features it
//! concerns, so features need not know each other.

use crate::core::listener::ListenerId;
use crate::event::Message;
use crate::node::ChannelUpdate;
use std::sync::Arc;
use tavern_domain::presence::{ClientLoss, ClientState, UserUpdate, Visibility};
use tavern_domain::{ClientId, HistoryPosition, Identity};
use tavern_store::{PresenceHold, PresenceKey, StoreAnswer, Versioned};

/// Inbox messages of one user with their numbers.
pub(crate) type CommittedMessages = Vec<(u64, Arc<[u8]>)>;

#[derive(Debug)]
pub(crate) enum Notice {
    /// A session was opened here, or migrated from another node.
    SessionOpened { id: ListenerId },
    /// A session has a connection again; with a cursor, everything up to it is acknowledged.
    SessionAttached { id: ListenerId, acknowledged: Option<u64> },
    /// The client of a detached session is here again, and attaches a connection in a moment.
    SessionReturns { id: ListenerId },
    /// No presence change of a user in their own channel is in progress any more: other nodes see them as they are.
    UserAnnounced { user: Arc<str> },
    /// A session must end: every feature forgets it, then the core does.
    SessionEnds { id: ListenerId },
    /// The last local watcher of a channel's presence is gone.
    ChannelUnwatched { channel: Arc<str> },
    /// The cached presence of a channel may be stale: it must be read again.
    ChannelStale { channel: Arc<str> },
    /// A watched channel was read; watchers get the changes after `base`.
    ChannelLoaded { channel: Arc<str>, base: u64 },
    /// The presence of a channel changed: for its watchers here.
    PresenceChanged(ChannelUpdate),
    /// A fact about a user changed: for their sessions and followers on all nodes.
    StatusUpdate { user: Arc<str>, update: UserUpdate },
    /// A user's inbox or party may have changed.
    InboxChanged { user: Arc<str> },
    /// A commit of this shard has changed a user's party, as their sessions here know, and added these messages to their
    /// inbox: for their sessions everywhere.
    PartyCommitted { user: Arc<str>, messages: CommittedMessages },
    /// The visibility of a local user is known: joins that waited for it can go on.
    VisibilityLoaded { user: Arc<str> },
    /// The visibility of a local user could not be loaded: commands that wait for it are refused.
    VisibilityFailed { user: Arc<str>, answer: StoreAnswer },
    /// The visibility of a local user changed, in every channel their sessions are present in.
    VisibilityChanged { user: Arc<str>, visibility: Visibility },
    /// The visibility of a user changed in one channel.
    VisibilityChangedIn { key: PresenceKey, visibility: Visibility },
    /// A user's presence changed in a way that concerns their party. `recorded`: a deadline for it was committed.
    MemberChanged { user: Arc<str>, recorded: bool },
    /// A user connected, or connected again.
    UserConnected { user: Arc<str> },
    /// A presence that an app or a party holds must follow its carrier. The hold, if it was committed just now.
    HoldChanged { key: PresenceKey, hold: Option<Versioned<PresenceHold>> },
    /// A client joined a channel although its session has ended meanwhile.
    ClientWithoutSession { key: PresenceKey, client: ClientId },
    /// A migration was cancelled and the session stays here: its client is announced again wherever it is present.
    SessionStays { id: ListenerId },
    /// A session migrated here: its client is present under this node from now on.
    PresenceMoved { id: ListenerId, channel: Arc<str>, state: Option<ClientState> },
    /// The client of a session that moved is not present under its new node.
    ClientLost { identity: Box<Identity>, client: ClientId, channel: Arc<str>, loss: ClientLoss },
    /// A session migrated here with the statuses its client knows.
    StatusesMoved { id: ListenerId, told: Vec<(Arc<str>, u64)> },
    /// A message of a channel with history arrived: it is delivered in the order of the history.
    HistoryMessage(Arc<Message>),
    /// A channel with history has a new listener.
    HistoryJoined { channel: Arc<str> },
    /// A session has a channel's history up to a position, and gets what follows.
    HistoryMoved { id: ListenerId, channel: Arc<str>, position: HistoryPosition },
    /// A listener left a channel with history.
    HistoryLeft { id: ListenerId, channel: Arc<str> },
    /// A session must be packed for another node.
    SessionPacks { half: u64 },
}
