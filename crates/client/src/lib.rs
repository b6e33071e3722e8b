//! The Rust client of Tavern: presence, messages, parties and the inbox over a session ([`Client`]), and the server API for
//! services ([`Api`]).
//!
//! ```no_run
//! # async fn example() -> Result<(), tavern_client::Error> {
//! use tavern_client::{Auth, Client};
//!
//! let client = Client::connect("http://127.0.0.1:7400", Auth::User("ann".into())).await?;
//! let game = client.channel("game#1");
//! let mut messages = game.messages();
//! let there = game.presence().await?;
//! game.join(serde_json::json!({"seat": 1})).await?;
//! game.publish("hello").await?;
//! while let Some(message) = messages.next().await {
//!     println!("{}, and there are {}", message?.data, there.look(|map| map.count));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The client reconnects by itself and resumes its session, over WebSocket, SSE or long-poll. What must hold: every event is
//! delivered once; every command has one answer, or the error
//! [`Error::UnknownOutcome`]; every queue is bounded; if a part of the client fails, every call ends with [`Error::Failed`].
//!
//! An address is checked before anything is sent:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let refused = tavern_client::Client::builder("ftp://example.org").build().err().expect("no address of a server");
//! assert!(matches!(refused, tavern_client::Error::Invalid(_)));
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod address;
mod api;
mod auth;
mod bounds;
mod channel;
mod client;
mod decisions;
mod desired;
mod error;
mod event;
#[cfg(test)]
mod fake_server;
mod fault;
mod frame;
mod glob;
mod history;
mod link;
mod me;
mod party;
mod party_snapshot;
mod presence;
mod presence_map;
mod random;
mod session;
mod shared;
mod signature;
mod tls;
#[cfg(test)]
mod vectors;

pub use api::{
    Api, ApiChannels, ApiKeys, ApiParties, ApiSubscriptions, ApiTopics, ApiUsers, BanSummary, ClusterNumbers,
    ConnectionNumbers, CreatedKey, DeadLetter, DeliveryAttempt, DisconnectOptions, EventsPublished,
    KeySummary, NewEvent, NodeNumbers, PublishRefusal, Published, Pulled, ReachedSessions, ReplayFrom,
    Replayed, SentRequest, ServerStats, SessionSummary, SessionsOfUser, Subscription, SubscriptionPut,
    SubscriptionSettings, TicketResult, Topic, UserChannel, UserClient, UserPage, UserReport, UserSummary,
};
pub use auth::Auth;
pub use channel::{Channel, LivePresence, Pattern};
pub use client::{Builder, Client};
pub use error::{Error, Refusal, RefusalCode};
pub use event::{Event, Events, FailedRestore, Gap, Message, Messages, Received, Revoked};
pub use history::{
    ChannelPosition, HistoryQuery, PastMessage, PastMessages, PastSender, PublishReceipt, SubscribeFrom,
};
pub use link::Transport;
pub use me::{Me, Visibility};
pub use party::Party;
pub use party_snapshot::{PartyEvent, PartyInvite, PartyMember, PartySnapshot, PartyState};
pub use presence::{Activity, Member, MemberClient, Members, Status, StatusUpdate};
pub use presence_map::{PresenceMap, PresenceMode, PresentClient, PresentUser};
pub use signature::{UserToken, sign_token, verify_webhook};
pub use tls::trust_pem;

/// The examples of docs/clients/rust.md are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients/rust.md")]
#[doc = include_str!("../README.md")]
#[doc = include_str!("wrong_uses.md")]
struct Document;

/// The state of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// Not connected yet.
    Idle,
    /// Connected, with an open session.
    Open,
    /// Not connected; the client retries.
    Connecting,
    /// Not connected, and the session is kept for [`Client::open`].
    Suspended,
    /// The session has ended, or the client gave up.
    Closed,
}

impl ConnectionState {
    /// The name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionState::Idle => "idle",
            ConnectionState::Open => "open",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Suspended => "suspended",
            ConnectionState::Closed => "closed",
        }
    }
}
