//! Publish and subscribe through a folder, with no server: processes of one machine that open the same folder exchange
//! messages. No other process has to run; a message waits until its subscriber reads it.
//!
//! ```
//! # fn main() -> Result<(), tavern_local::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let subscriber = tavern_local::open(folder)?;
//! subscriber.subscribe(["news"])?;
//! subscriber.psubscribe(["game#*"])?;
//!
//! let publisher = tavern_local::open(folder)?; // in this process or any other
//! assert_eq!(publisher.publish("news", "hello")?, 1);
//! assert_eq!(publisher.publish("other", "no subscribers")?, 0);
//!
//! let message = subscriber.wait(std::time::Duration::from_secs(1))?.expect("a message");
//! assert_eq!(message.elements(), [&b"message"[..], b"news", b"hello"]);
//! assert!(subscriber.poll()?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - Messages of one publisher arrive in order, none missing, none twice.
//! - A publish reaches every subscriber whose `subscribe` has returned, and wakes those that [wait](Local::wait).
//! - A process that dies leaves nothing: the next one that publishes, opens or waits cleans up after it.
//! - Nothing grows without bound. A subscriber that does not read loses the oldest messages and reads
//!   [`Message::Gap`] in their place.
//! - Names and payloads are any bytes, up to 1 MiB each.
//!
//! # How it works
//!
//! The folder holds a SQLite database, `bus.db`: every message once, and for every process the ids of those it has not
//! read. A process is alive as long as it holds one byte of `bus.db-lock`, which the operating system releases when it
//! dies. It is woken through a datagram socket, `bus.db-wake-N`, after the message is committed, and checks by itself
//! once a second.
//!
//! A handle does not survive `fork`: in the child its methods return [`Error::Forked`]. A child that wants to take part
//! opens the folder itself, before or instead of its parent; SQLite cannot be used on both sides of a fork.

mod audience;
mod database;
mod error;
mod folder;
mod handle;
mod inspect;
mod limits;
mod locks;
mod mailbox;
mod message;
mod open_folder;
mod options;
mod process;
mod publisher;
mod receiver;
mod routing;
mod subscribers;
mod version;
mod waker;

pub use error::Error;
pub use folder::network_file_system;
pub use handle::{Interrupter, Local, SubscriptionsVersion, open};
pub use inspect::{ProcessStat, Stat};
pub use limits::MESSAGE_BYTES;
pub use message::{ChannelNamespace, Draft, Interest, InterestKind, Message, Publication};
pub use options::Options;
