//! JSON frames: commands in, replies and events out. Knows their shape; not what they do.
//! Must hold: what a client sent as `data` leaves as the same bytes; a frame that is refused still yields its id
//! when that can be read.

mod body;
mod encode;
pub mod event;
mod field;
mod frame;
pub mod letter;
mod moment;
pub mod party;
pub mod person;
pub mod presence;
mod request;
mod scan;

pub use body::{PollRequest, parse_message_body, parse_poll, session_of};
pub use encode::{
    Payload, Sender, channel_gap_tail, closing, gap_tail, message_tail, pattern_gap_tail, reply_error,
    reply_ok, seq_head, string, superseded,
};
pub use frame::commands;
pub use moment::parse_moment;
pub use request::{
    BadRequest, Hello, ID_BYTES, Join, OPS, Op, Part, Publish, Request, Subscribe, Target, Update, Who,
    parse_request, read_visibility,
};
pub use scan::{depth_ok, is_json};
