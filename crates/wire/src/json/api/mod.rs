//! The bodies of the HTTP API as typed values. The server fills them in; JSON is made of them here and nowhere else.
//! Structs declare their members in the order in which they are written. An absent value is `null`,
//! unless the comment of its member says that it is left out.

mod channel;
mod control;
mod key;
mod load;
mod node;
mod party;
mod publish;
mod session;
mod stats;
mod subscription;
mod topic;
mod traffic;
mod user;

pub use channel::{ChannelCount, ChannelList, Receivers};
pub use control::{
    BanList, BanReport, BanRequest, ControlOutcome, DisconnectRequest, UserSessionList, UserSessionReport,
    parse_ban, parse_channel_body, parse_disconnect,
};
pub use key::{AuditEvent, KeyList, KeyReport, NewKeyReport, NewKeyRequest, OwnKeyReport, parse_new_key};
pub use load::{ClusterLoadReport, Figure, LoadReport, NodeLoadReport, NodeRunReport};
pub use node::{
    ClockReport, DemoSettings, EventSums, LocalNode, MetricNumber, NodeList, NodeReport, Overview,
    SettingValue, SettingsReport,
};
pub use party::{FormRefusal, PartyList, PingReply, form_command, party_in};
pub use publish::{
    BroadcastRequest, MESSAGES_MAX, PublishItem, parse_broadcast, parse_publish_many, published_many,
};
pub use session::{MailboxReport, SessionReport};
pub use stats::{ClusterStats, NodeStats, StatsReport, TransportCounts};
pub use subscription::{
    AttemptList, DeadLetterEvent, DeadLetterList, DeadLetterView, QueueDetails, ReplayReport, RetryReport,
    SubscriptionList, SubscriptionPutReply, SubscriptionReport, SubscriptionView, browsed, pulled,
};
pub use topic::{Deleted, PublishReport, TopicList, TopicReport};
pub use traffic::{TrafficData, TrafficLine};
pub use user::{
    ActivityReport, ChannelPresence, ClientPresence, HoldRequest, InboxList, InboxMessageReport, UserDetails,
    UserList, UserListEntry, parse_hold, parse_visibility,
};

use serde::Serialize;
use serde_json::value::RawValue;

/// The reply to a command without a result.
pub const EMPTY: &[u8] = b"{}";

/// The JSON of a body.
pub fn encode(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("bodies have only text as keys")
}

/// JSON that was kept as text, written as it is. None: it is not JSON.
pub fn raw(text: &str) -> Option<&RawValue> {
    serde_json::from_str(text).ok()
}
