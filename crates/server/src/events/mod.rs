//! Topics, their events and subscriptions on the running server: the office where they are published to and made (`office`),
//! the bell that wakes whoever waits for events (`bell`), who drives the deliveries (`courier`), who keeps the log
//! within its budgets (`keeper`), and subscriptions within their own (`budgets`, `backlog`), what goes out (`post`), what was counted (`tally`).

mod backlog;
mod bell;
mod budgets;
pub mod courier;
pub mod keeper;
pub mod matchmaker;
pub mod office;
mod post;
mod tally;

pub use bell::Bell;
pub use office::Office;
pub use post::{Postman, policy};
pub use tally::Tally;
