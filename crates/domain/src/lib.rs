//! The rules of Tavern. No IO, no clock, no randomness, no threads: facts in, decisions out.
//! Must hold: nothing here uses a socket, a file, a clock or a randomly seeded map (`no_std` enforces it).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod address;
pub mod channel;
pub mod clock;
pub mod delivery;
pub mod history;
pub mod id;
pub mod identity;
pub mod limits;
pub mod party;
pub mod pattern;
pub mod presence;
pub mod rate;
pub mod rights;
pub mod sorted;
pub mod time;
pub mod topic;
pub mod trace;

pub use address::AddressGroup;
pub use channel::{Channel, NameError, Reach};
pub use delivery::Delivery;
pub use history::{HistoryLimits, HistoryPosition, HistoryStamp};
pub use id::{ClientId, Epoch, SessionKey};
pub use identity::{Identity, Scope, Scopes, USER_ID_RULES, is_user_id};
pub use rights::{Rights, Verb, Verbs};
pub use sorted::Sorted;
pub use time::Time;
