//! The Pusher protocol for the gateway in `tavern`: frames of clients (protocol 7), signatures, requests of app servers, and
//! how channels, users and messages map to Tavern's. Knows no socket, clock or hub.
//! Must hold: what comes from outside is bounded before it is kept; secrets are compared in constant time.
#![forbid(unsafe_code)]

mod app;
mod channel;
mod client_frame;
mod close;
#[doc(hidden)]
pub mod fuzz;
mod members;
mod message;
mod request;
mod request_body;
mod server_frame;
mod signature;
mod webhook;

pub use app::{APPS_MAX, PusherApp, app_kinds, is_app_id, is_app_key, user_id_in};
pub use channel::{ChannelAccess, PusherChannel, USER_CHANNEL};
pub use client_frame::{
    ChannelData, ClientFrame, SignInData, SubscribeData, UserData, WATCHLIST_MAX, parse_channel_data,
    parse_frame, parse_user_data,
};
pub use close::PusherError;
pub use members::{MemberChange, PresenceMembers};
pub use message::{DeliveredEvent, OutgoingEvent, data_text, read_message, write_message};
pub use request::{RequestFault, SignedRequest, TIMESTAMP_WINDOW_S};
pub use request_body::{
    BATCH_MAX, BodyRefusal, CHANNELS_MAX, CachedEvent, ChannelFacts, InfoFields, TriggerRequest, parse_batch,
    parse_trigger, write_batch_reply, write_channel, write_channels, write_error, write_trigger_reply,
    write_users,
};
pub use server_frame::{
    channel_event, connection_established, error_frame, member_added, member_removed, pong, signin_success,
    subscribed_to_presence, subscription_count, subscription_error, subscription_succeeded, watchlist_event,
};
pub use signature::{SignatureCheck, md5_hex};
pub use webhook::{WEBHOOK_KEY, WEBHOOK_SIGNATURE, WebhookEvent, WebhookFilter, WebhookKind};

/// Bytes of the data of one event, as the libraries expect.
pub const EVENT_BYTES: usize = 10 * 1024;
/// Characters of an event's name.
pub const EVENT_NAME_BYTES: usize = 200;
