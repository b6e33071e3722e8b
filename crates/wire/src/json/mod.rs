//! JSON frames: commands in, replies and events out. Their shape only, not what they do.
//! Must hold: `data` is passed on byte for byte; a refused frame is answered under its id where that can be read.

pub mod api;
mod authorize;
mod body;
mod command;
mod digest;
mod encode;
pub mod event;
pub(crate) mod field;
mod frame;
pub mod history;
pub mod inbox;
mod members;
mod moment;
mod numbers;
pub mod party;
pub mod presence;
pub mod reply;
mod request;
mod scan;
pub mod status;

pub use authorize::{HookRequest, HookResponse};
pub use body::{MessageBody, PollRequest, parse_message_body, parse_poll, session_of};
pub use command::{hello_command, subscribe_command};
pub use encode::{
    MessageSender, Payload, channel_gap_tail, closing, gap_tail, message_tail, pattern_gap_tail, reply_error,
    reply_ok, revoked_tail, seq_head, string, subscribed_tail, superseded, unsubscribed_tail,
};
pub use frame::{FrameCommands, command_lines, commands};
pub use moment::{parse_moment, write_moment};
pub use numbers::NumberLine;
pub use request::{
    BadRequest, HelloRequest, HistoryRequest, ID_BYTES, JoinRequest, OPS, Op, PageRequest, ParsedCommand,
    PublishRequest, SubscribeRequest, SubscribeTarget, UpdateRequest, WhoRequest, parse_owned, parse_request,
    read_visibility,
};
pub use scan::{Unportable, check_portable, find_id, is_json};
