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
//! delivered once; every command has one answer, or the error `unknown_outcome`; every queue is bounded.
//!
//! An address is checked before anything is sent:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let refused = tavern_client::Client::builder("ftp://example.org").build().err().expect("no address of a server");
//! assert_eq!(refused.code, "bad_request");
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod address;
mod api;
mod auth;
mod backoff;
mod channel;
mod client;
mod desired;
mod error;
mod event;
mod frame;
mod history;
mod link;
mod me;
mod party;
mod party_snapshot;
mod presence;
mod presence_map;
mod session;
mod shared;
mod signature;
mod tls;

pub use api::{
    Api, Backend, BanSummary, ClusterNumbers, ConnectionNumbers, CreatedKey, DeadLetter, DeliveryAttempt,
    DisconnectOptions, EventsPublished, KeySummary, NewEvent, NodeNumbers, PublishRefusal, Published, Pulled,
    ReachedSessions, ReplayFrom, Replayed, ServerStats, SessionSummary, SessionsOfUser, Subscription,
    SubscriptionPut, SubscriptionSettings, TicketResult, Topic, UserChannel, UserClient, UserPage,
    UserReport, UserSummary,
};
pub use auth::Auth;
pub use channel::{Channel, LivePresence, Pattern};
pub use client::{Builder, Client};
pub use error::Error;
pub use event::{Event, Events, Gap, Message, Messages, Received, Revoked};
pub use history::{
    ChannelPosition, HistoryQuery, PastMessage, PastMessages, PastSender, PublishReceipt, SubscribeFrom,
};
pub use link::Transport;
pub use me::{Me, Visibility};
pub use party::Party;
pub use presence::{Activity, Member, MemberClient, Members, Status, StatusUpdate};
pub use presence_map::{PresenceMap, PresenceMode, PresentClient, PresentUser};
pub use signature::{UserToken, sign_token, verify_webhook};
pub use tls::trust_pem;

/// The examples of docs/clients/rust.md are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients/rust.md")]
struct Document;

/// The state of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// Connected, with an open session.
    Open,
    /// Not connected; the client retries.
    Connecting,
    /// Not connected until [`Client::open`].
    Closed,
}

impl ConnectionState {
    /// The name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionState::Open => "open",
            ConnectionState::Connecting => "connecting",
            ConnectionState::Closed => "closed",
        }
    }
}
