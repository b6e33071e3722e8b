//! Topics and their subscriptions on one node: how a queue is read from the log (`reading`), who works on what (`courier`,
//! `line`, `listing`, `work`, `save`), who follows a worker that sleeps (`watch`), what is under way (`flight`), what goes out to endpoints (`post`). Knows no sockets: posts are effects.
//! Must hold: the rules of deliveries are the machine's (`tavern_domain::delivery`); what was answered to an endpoint's
//! answer is durable before anything that follows from it is sent.

mod courier;
mod flight;
mod line;
mod listing;
mod post;
mod reading;
mod save;
mod watch;
mod work;

pub use courier::{Courier, CourierRules, Errands};
pub use post::{Notice, Outcome, Post, Posted};
pub use reading::{Reading, Took};
pub use watch::DELIVERY;
