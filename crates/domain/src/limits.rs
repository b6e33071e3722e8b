//! Bounds that are part of the protocol and not configured, each with its reason.
//! Configured bounds live in the configuration, whose defaults are in the manual.

/// A channel name of the public grammar. Fits one cache line pair and any column.
pub const CHANNEL_BYTES: usize = 255;
/// A channel name from the Redis protocol, whose clients use longer, binary ones.
pub const REDIS_CHANNEL_BYTES: usize = 512;
/// The kind in front of the first `#`.
pub const KIND_BYTES: usize = 32;
/// JSON deeper than this is refused: a recursive reader on the other side must survive what we pass on.
pub const JSON_DEPTH: usize = 64;
/// A user id, a display name, a node name. They stand in every event that concerns a user.
pub const USER_BYTES: usize = 128;
pub const DISPLAY_NAME_BYTES: usize = 256;
pub const NODE_BYTES: usize = 64;
/// Grants in one token. The list is walked at each first use of a channel.
pub const GRANTS: usize = 64;
/// One poll answer: the count and the bytes after which `more` is said.
pub const POLL_EVENTS: usize = 100;
pub const POLL_BYTES: usize = 64 * 1024;
/// How long a poll parks when the client does not say, and at most.
pub const POLL_PARK_MS: u64 = 15_000;
pub const POLL_PARK_MAX_MS: u64 = 25_000;
/// A session outlives the longest grace of its channels by this much.
pub const EXPIRY_MARGIN_MS: u64 = 60_000;
