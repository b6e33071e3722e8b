//! Radar's messages (the `op`/`to`/`ack` protocol of npm `radar_client`), and how they correspond to Tavern's own: requests in,
//! answers and events out. What a request does is decided elsewhere.
//! Must hold: the bytes of values, user data and client data are passed on unchanged; a token is never echoed.

mod request;
mod room;
mod state;
mod write;

pub use request::{AnswerVersion, RadarOp, RadarRequest, RadarScope, ScopeKind, parse_batch, parse_request};
pub use room::RadarRoom;
pub use state::{ClientDetails, message_payload, status_payload};
pub use write::{PresentUsers, RadarFrames, StampSource, StatusValues, status_of};
