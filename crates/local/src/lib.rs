//! Publish and subscribe through a folder, with no server: processes of one machine that open the same folder hear each
//! other. Nothing has to run in between; what is published while a subscriber does something else waits for it.
//!
//! ```
//! # fn main() -> Result<(), tavern_local::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let ear = tavern_local::open(folder)?;
//! ear.subscribe(["news"])?;
//! ear.psubscribe(["game#*"])?;
//!
//! let mouth = tavern_local::open(folder)?; // here or in any other process
//! assert_eq!(mouth.publish("news", "hello")?, 1);
//! assert_eq!(mouth.publish("nobody", "listens")?, 0);
//!
//! let message = ear.wait(std::time::Duration::from_secs(1))?.expect("it is there");
//! assert_eq!(message.elements(), [&b"message"[..], b"news", b"hello"]);
//! assert!(ear.poll()?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//!
//! - Messages of one publisher arrive in order, none missing, none twice.
//! - A publish reaches everybody whose `subscribe` has returned, and wakes those who [wait](Local::wait).
//! - A process that dies leaves nothing: whoever publishes, opens or waits next cleans up behind it.
//! - Nothing grows without bound. A subscriber that does not read loses the oldest messages and reads
//!   [`Message::Gap`] in their place.
//! - Names and payloads are any bytes, up to 1 MiB each.
//!
//! # How
//!
//! The folder holds a SQLite database, `bus.db`: every message once, and for every listening process the numbers of
//! those it has not read. A process lives as long as it holds one byte of `bus.db-lock`, which the operating system frees
//! when it dies. It is woken through a datagram socket, `bus.db-wake-N`, after the message is committed, and looks by
//! itself once a second.
//!
//! A handle does not survive `fork`: in the child its methods say [`Error::Forked`]. A child that wants to take part
//! opens the folder itself, before or instead of its parent; SQLite cannot be used on both sides of a fork.

mod error;
mod folder;
mod handle;
mod limits;
mod listen;
mod lock;
mod mailbox;
mod message;
mod page;
mod place;
mod process;
mod publish;
mod pump;
mod reach;
mod roster;
mod stat;
mod sweep;
mod table;
mod wait;
mod wake;

pub use error::Error;
pub use folder::network_file_system;
pub use handle::{Interrupter, Local, Options, RosterVersion, open};
pub use limits::MESSAGE_BYTES;
pub use message::{Draft, Interest, Kind, Message, Space, Words};
pub use stat::{ProcessStat, Stat};
