//! The Rust client of Tavern: presence, messages, parties and letters.
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
//!     println!("{}, and there are {}", message?.data, there.look(|roster| roster.count));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A lost link is nothing an app must handle: the client comes back and resumes its session, over WebSocket, SSE or long-poll. What must hold: an
//! event is told once; a command is answered once, by the server or by the reason why nobody knows; every queue is bounded.
//!
//! An address is checked before anything is sent:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let refused = tavern_client::Client::builder("ftp://example.org").build().err().expect("no address of a server");
//! assert_eq!(refused.code, "bad_request");
//! # }
//! ```

mod address;
mod api;
mod auth;
mod backoff;
mod channel;
mod client;
mod error;
mod event;
mod fold;
mod frame;
mod link;
mod me;
mod party;
mod presence;
mod roster;
mod session;
mod shared;
mod tls;
mod wanted;

pub use api::{
    Api, DeadLetter, EventsPublished, NewEvent, Pulled, ReplayFrom, Replayed, Subscription, SubscriptionPut,
    SubscriptionSettings, Topic, UserChannel, UserClient, UserReport, UserSummary,
};
pub use auth::Auth;
pub use channel::{Channel, Pattern, Presence};
pub use client::{Builder, Client};
pub use error::Error;
pub use event::{Event, Events, Gap, Message, Messages, Received};
pub use link::Transport;
pub use me::{Me, Visibility};
pub use party::Party;
pub use presence::{Activity, Member, MemberClient, Members, Status, StatusUpdate};
pub use roster::{Guest, Mode, Roster, User};
pub use tls::trust_pem;

/// The examples of the document are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/clients-rust.md")]
struct Document;

/// Where a client is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Open,
    /// Not connected, and on its way.
    Connecting,
    /// Not connected until it is opened.
    Closed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Open => "open",
            State::Connecting => "connecting",
            State::Closed => "closed",
        }
    }
}
