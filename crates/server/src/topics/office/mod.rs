//! The office: where subscriptions are made, changed, pulled and looked at. It writes what
//! the courier carries out and delivers nothing itself.
//! Must hold: every edit is one commit that expects what it was decided from; whoever waits is rung for after the commit.

pub mod body;
mod claim;
mod dead;
pub(super) mod ledger;
pub mod machine;
pub(super) mod place;
mod pull;
pub mod queue;
mod replay;
mod report;
mod settings;
pub mod subscription;

pub use claim::{assign, end, topic, topics};
pub use dead::{Wish as Retry, dead_letters, retry};
pub use machine::switch;
pub use pull::{LIMIT, Question, pull};
pub use replay::{From, replay};
pub use report::{list, report, settings};
pub use settings::Wish;
pub use subscription::{put, remove};

/// What this node remembers to save reads. The store knows better.
#[derive(Default)]
pub struct Office {
    handed: pull::Handed,
}
