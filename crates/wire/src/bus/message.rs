//! The messages of `proto/tavern.proto`, field by field; those about load are in `load_message`. A test compares the field
//! numbers of the two. A struct is named like its message, or with `Record` behind it where the domain has a type of that name.

use super::load_message::{LoadAnswerRecord, LoadQuestionRecord};
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub struct Envelope {
    #[prost(oneof = "EnvelopeKind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub kind: Option<EnvelopeKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum EnvelopeKind {
    #[prost(message, tag = "1")]
    Presence(PresenceChangeRecord),
    #[prost(message, tag = "2")]
    User(UserUpdateRecord),
    #[prost(message, tag = "3")]
    Migration(MigrationMessage),
    #[prost(message, tag = "4")]
    NodeLeft(Empty),
    #[prost(string, tag = "5")]
    Subscription(String),
    #[prost(message, tag = "6")]
    ControlRequest(ControlRequestRecord),
    #[prost(message, tag = "7")]
    ControlReply(ControlReplyRecord),
    #[prost(message, tag = "8")]
    NodeCounts(NodeCountsRecord),
    #[prost(string, tag = "9")]
    NameQuestion(String),
    #[prost(string, tag = "10")]
    NameAnswer(String),
    #[prost(message, tag = "11")]
    LoadQuestion(LoadQuestionRecord),
    #[prost(message, tag = "12")]
    LoadAnswer(LoadAnswerRecord),
    #[prost(message, tag = "13")]
    PusherCount(PusherCountRecord),
}

#[derive(Clone, PartialEq, Message)]
pub struct MessageHeader {
    #[prost(bool, tag = "1")]
    pub json: bool,
    #[prost(string, optional, tag = "2")]
    pub client: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub user: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub history: Option<HistoryPlace>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct HistoryPlace {
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint64, tag = "3")]
    pub at: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub struct PresenceChangeRecord {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(bool, tag = "3")]
    pub anonymous: bool,
    #[prost(uint64, tag = "4")]
    pub at: u64,
    #[prost(uint64, tag = "5")]
    pub to: u64,
    #[prost(bool, tag = "6")]
    pub begins: bool,
    #[prost(message, repeated, tag = "7")]
    pub events: Vec<PresenceEvent>,
    #[prost(int32, tag = "8")]
    pub visibility: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct PresenceEvent {
    #[prost(oneof = "PresenceEventKind", tags = "1, 2, 3, 4, 5, 6")]
    pub event: Option<PresenceEventKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum PresenceEventKind {
    #[prost(message, tag = "1")]
    UserOnline(Empty),
    #[prost(message, tag = "2")]
    ClientOnline(ClientStateRecord),
    #[prost(message, tag = "3")]
    ClientUpdated(ClientStateRecord),
    #[prost(message, tag = "4")]
    ClientOffline(ClientOffline),
    #[prost(message, tag = "5")]
    UserOffline(UserOffline),
    #[prost(message, tag = "6")]
    Visibility(VisibilityChange),
}

#[derive(Clone, PartialEq, Message)]
pub struct ClientStateRecord {
    #[prost(string, tag = "1")]
    pub client: String,
    #[prost(message, optional, tag = "2")]
    pub state: Option<StateText>,
}

#[derive(Clone, PartialEq, Message)]
pub struct StateText {
    #[prost(string, tag = "1")]
    pub text: String,
    #[prost(fixed64, tag = "2")]
    pub digest: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ClientOffline {
    #[prost(string, tag = "1")]
    pub client: String,
    #[prost(string, tag = "2")]
    pub reason: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserOffline {
    #[prost(uint64, tag = "1")]
    pub last_seen: u64,
    #[prost(string, tag = "2")]
    pub reason: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct VisibilityChange {
    #[prost(int32, tag = "1")]
    pub from: i32,
    #[prost(int32, tag = "2")]
    pub to: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserUpdateRecord {
    #[prost(oneof = "UserUpdateRecordKind", tags = "1, 2, 3, 4, 5")]
    pub update: Option<UserUpdateRecordKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum UserUpdateRecordKind {
    #[prost(message, tag = "1")]
    Channel(ChannelPresenceRecord),
    #[prost(message, tag = "2")]
    Visibility(UserVisibility),
    #[prost(message, tag = "3")]
    Follow(FollowRecord),
    #[prost(string, tag = "4")]
    RemovedFrom(String),
    #[prost(message, tag = "5")]
    Inbox(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub struct ChannelPresenceRecord {
    #[prost(string, tag = "1")]
    pub channel: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(message, optional, tag = "3")]
    pub presence: Option<PresenceSummaryRecord>,
    #[prost(uint64, optional, tag = "4")]
    pub last_seen: Option<u64>,
    #[prost(string, optional, tag = "5")]
    pub name: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct PresenceSummaryRecord {
    #[prost(uint64, tag = "1")]
    pub since: u64,
    #[prost(bool, tag = "2")]
    pub leaving: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct UserVisibility {
    #[prost(uint64, tag = "1")]
    pub version: u64,
    #[prost(int32, tag = "2")]
    pub visibility: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct FollowRecord {
    #[prost(string, tag = "1")]
    pub followee: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
    #[prost(bool, tag = "3")]
    pub on: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct MigrationMessage {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(uint64, tag = "2")]
    pub number: u64,
    #[prost(oneof = "MigrationStep", tags = "3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13")]
    pub step: Option<MigrationStep>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum MigrationStep {
    #[prost(message, tag = "3")]
    Ask(Ask),
    #[prost(message, tag = "4")]
    No(Empty),
    #[prost(message, tag = "5")]
    Moving(Empty),
    #[prost(message, tag = "6")]
    Refused(Empty),
    #[prost(message, tag = "7")]
    Attached(Empty),
    #[prost(message, tag = "8")]
    Here(InterestsRecord),
    #[prost(message, tag = "9")]
    Offer(InterestsRecord),
    #[prost(message, tag = "10")]
    Give(Versions),
    #[prost(message, tag = "11")]
    Given(GivenRecord),
    #[prost(message, tag = "12")]
    Taken(Empty),
    #[prost(message, tag = "13")]
    Ended(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub struct Ask {
    #[prost(bool, tag = "1")]
    pub gentle: bool,
    #[prost(oneof = "AskClaim", tags = "2, 3, 4, 5")]
    pub claim: Option<AskClaim>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum AskClaim {
    #[prost(message, tag = "2")]
    Secret(Empty),
    #[prost(message, tag = "3")]
    Anonymous(Empty),
    #[prost(string, tag = "4")]
    User(String),
    #[prost(string, tag = "5")]
    Key(String),
}

#[derive(Clone, PartialEq, Message)]
pub struct InterestsRecord {
    #[prost(message, repeated, tag = "1")]
    pub interests: Vec<InterestRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InterestRecord {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(bool, tag = "2")]
    pub pattern: bool,
    #[prost(bool, tag = "3")]
    pub presence: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Versions {
    #[prost(message, repeated, tag = "1")]
    pub versions: Vec<Version>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Version {
    #[prost(string, tag = "1")]
    pub channel: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct GivenRecord {
    #[prost(string, tag = "1")]
    pub client: String,
    #[prost(uint64, tag = "2")]
    pub version: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ControlRequestRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint32, tag = "2")]
    pub shard: u32,
    #[prost(string, tag = "3")]
    pub user: String,
    #[prost(oneof = "ControlActionKind", tags = "4, 5, 6, 7, 8, 9")]
    pub action: Option<ControlActionKind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum ControlActionKind {
    #[prost(message, tag = "4")]
    Sessions(Empty),
    #[prost(message, tag = "5")]
    Disconnect(DisconnectRecord),
    #[prost(string, tag = "6")]
    Subscribe(String),
    #[prost(string, tag = "7")]
    Unsubscribe(String),
    #[prost(message, tag = "8")]
    Ban(BanRecord),
    #[prost(message, tag = "9")]
    Unban(Empty),
}

#[derive(Clone, PartialEq, Message)]
pub struct DisconnectRecord {
    #[prost(uint32, tag = "1")]
    pub code: u32,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(string, repeated, tag = "3")]
    pub except: Vec<String>,
    #[prost(bool, tag = "4")]
    pub allow_resume: bool,
    #[prost(uint64, tag = "5")]
    pub at: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct BanRecord {
    #[prost(uint64, optional, tag = "1")]
    pub until: Option<u64>,
    #[prost(string, tag = "2")]
    pub reason: String,
    #[prost(uint64, tag = "3")]
    pub at: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ControlReplyRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint32, tag = "2")]
    pub to_shard: u32,
    #[prost(uint32, tag = "3")]
    pub shard: u32,
    #[prost(uint32, tag = "4")]
    pub shards: u32,
    #[prost(uint32, tag = "5")]
    pub count: u32,
    #[prost(uint32, tag = "6")]
    pub failed: u32,
    #[prost(message, repeated, tag = "7")]
    pub sessions: Vec<UserSessionRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub struct UserSessionRecord {
    #[prost(string, tag = "1")]
    pub client: String,
    #[prost(uint64, tag = "2")]
    pub since: u64,
    #[prost(string, optional, tag = "3")]
    pub transport: Option<String>,
    #[prost(uint64, tag = "4")]
    pub heard_at: u64,
    #[prost(uint32, tag = "5")]
    pub channels: u32,
    #[prost(bool, tag = "6")]
    pub moving: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct NodeCountsRecord {
    #[prost(uint64, tag = "1")]
    pub users: u64,
    #[prost(uint64, tag = "2")]
    pub sessions: u64,
    #[prost(uint64, tag = "3")]
    pub websocket: u64,
    #[prost(uint64, tag = "4")]
    pub sse: u64,
    #[prost(uint64, tag = "5")]
    pub poll: u64,
    #[prost(uint64, tag = "6")]
    pub redis: u64,
    #[prost(uint64, tag = "7")]
    pub channels: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct PusherCountRecord {
    #[prost(string, tag = "1")]
    pub app: String,
    #[prost(string, tag = "2")]
    pub channel: String,
    #[prost(uint64, tag = "3")]
    pub version: u64,
    #[prost(uint64, tag = "4")]
    pub count: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct FolloweeActivity {
    #[prost(int32, tag = "1")]
    pub atype: i32,
    #[prost(string, tag = "2")]
    pub user_id: String,
    #[prost(string, tag = "3")]
    pub meta: String,
    #[prost(message, optional, tag = "4")]
    pub status: Option<StatusRecord>,
    #[prost(string, tag = "5")]
    pub change: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRecord {
    #[prost(bool, tag = "1")]
    pub online: bool,
    #[prost(bool, tag = "2")]
    pub leaving: bool,
    #[prost(message, repeated, tag = "3")]
    pub activities: Vec<ActivityRecord>,
    #[prost(string, repeated, tag = "4")]
    pub channels: Vec<String>,
    #[prost(uint64, optional, tag = "5")]
    pub last_seen: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ActivityRecord {
    #[prost(string, tag = "1")]
    pub activity: String,
    #[prost(string, tag = "2")]
    pub channel: String,
    #[prost(uint64, tag = "3")]
    pub since: u64,
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
