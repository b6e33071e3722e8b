//! Clients of the Pusher protocol: the apps of this server (`registry`), and for each socket a task (`connection`) that turns
//! the client's frames into commands of hub `sessions` (`client`, `subscriptions`), and their events into Pusher's (`delivery`).
//! Which channels have subscriptions on all servers is in `occupancy`, which `announcing` shares; `webhooks` are told.
//! Must hold: a socket reaches the channels and users of its own app only; one command is under way at a time.

mod announcing;
mod client;
mod connection;
mod delivery;
mod occupancy;
mod registry;
mod sessions;
mod subscriptions;
mod webhooks;

pub use announcing::{read_total, rows_of};
pub use occupancy::Occupancy;
pub use registry::{PusherServer, read_apps};
pub use webhooks::{AppWebhooks, WebhookView};
