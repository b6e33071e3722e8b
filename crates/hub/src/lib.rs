//! One node of Tavern without sockets: sessions, mailboxes, who listens where, timers. Synchronous and deterministic:
//! time, randomness and bytes come in, effects go out. The server drives it with real sockets, the simulator with
//! virtual ones. It carries out; the rules are in `tavern-domain`.
#![forbid(unsafe_code)]

pub mod abroad;
pub mod attach;
pub mod authorize;
pub mod carrier;
pub mod command;
pub mod event;
pub mod events;
pub mod goodbye;
pub mod handover;
mod inbox;
pub mod listener;
pub mod loss;
pub mod mailbox;
pub mod node;
pub mod party;
pub mod people;
pub mod presence;
pub mod registry;
pub mod render;
pub mod roll;
pub mod roster;
pub mod session;
pub mod settings;
pub mod shard;
mod speech;
pub mod stats;
pub mod sweep;
pub mod vigil;
pub mod wheel;

pub use attach::{Attached, Poll};
pub use authorize::{Permit, Question, Verdict};
pub use carrier::Carried;
pub use command::{Caller, Flow};
pub use event::{Author, Space, Words};
pub use goodbye::Goodbye;
pub use handover::{Seeker, Sought};
pub use listener::{Format, Link, LinkId, ListenerId};
pub use node::{Dice, Gate, Node};
pub use party::PartyRules;
pub use people::{Order, PersonNews};
pub use presence::ChannelNews;
pub use render::{PollFlags, Scratch, read_session};
pub use roll::Roll;
pub use settings::{AuthorizeRules, InboxRules, KindRules, Settings, SlowReader};
pub use shard::{Effects, Parcel, Shard};
pub use vigil::{Chore, Notice, Vigil};
