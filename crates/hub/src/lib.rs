//! One node of Tavern without sockets: sessions, mailboxes, routing, presence, parties, topics. Synchronous and
//! deterministic: time, randomness and bytes come in, effects go out. The server drives it with real sockets, the
//! simulator with virtual ones. The rules are in `tavern-domain`.
//!
//! A `Shard` routes commands to features (`presence`, `people`, `inbox`, `party`, `migration`) around a shared `Core`.
#![forbid(unsafe_code)]

pub mod connection;
mod control;
pub mod core;
pub mod event;
mod held;
mod history;
mod inbox;
pub mod liveness;
pub mod migration;
pub mod node;
mod party;
mod people;
mod presence;
mod replica;
mod rows;
pub mod settings;
pub mod shard;
mod sync;
pub mod topics;
mod transaction;
pub mod user;

pub use connection::{CloseReason, EventFormat, GatewayProtocol, Link, LinkId};
pub use core::authorize::{AuthorizeAnswer, AuthorizeQuery, Permission};
pub use core::command::{Caller, CallerHello, Flow};
pub use core::listener::ListenerId;
pub use core::render::{FilledFrames, PollFlags, Scratch, read_session};
pub use core::{Attached, Core, Effects, Poll, ShardMessage};
pub use event::{Author, FrameRenderer, GatewayFrame, Message, Namespace};
pub use history::write_page as write_history_page;
pub use liveness::{Liveness, LivenessEffects, LivenessEvent, LivenessRules, LivenessTask, TakenOver};
pub use migration::{
    LookupResult, PackedSession, SessionLookup, may_have_missed, store_session, take_session,
};
pub use node::traffic::{Traffic, TrafficKind, TrafficObserver};
pub use node::{
    ChannelUpdate, ControlMessage, InterestState, Node, NodeQuery, PresenceObserver, RandomSource,
    ReceivedMessage, TokenVerifier, UserNotice,
};
pub use presence::{NodeAttendance, members_of};
pub use rows::StaleUser;
pub use settings::{
    AuthorizeRules, HistoryRules, InboxRules, KindRules, PartyRules, RetentionRules, Settings, SlowReader,
    TopicRules,
};
pub use shard::{RedisPublish, ServiceCommand, Shard, ShardEvent, next_redis_reply, publish_stored};
