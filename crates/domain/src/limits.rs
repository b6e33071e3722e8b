//! Limits that are part of the protocol and not configurable, each with its reason.

/// Bytes of a channel name of the public grammar. Fits any database column.
pub const CHANNEL_BYTES: usize = 255;
/// Bytes of a channel name from the Redis protocol, whose clients use longer, binary names.
pub const REDIS_CHANNEL_BYTES: usize = 512;
/// Bytes of the kind in front of the first `#`.
pub const KIND_BYTES: usize = 32;
/// JSON nested deeper than this is refused: a client with a recursive parser must survive what we deliver.
pub const JSON_DEPTH: usize = 64;
/// Bytes of a user id, a display name, a node name. They are part of many events.
pub const USER_BYTES: usize = 128;
pub const DISPLAY_NAME_BYTES: usize = 256;
pub const NODE_BYTES: usize = 64;
/// Grants in one token. The list is searched at each first use of a channel.
pub const GRANTS: usize = 64;
/// Events and bytes in one poll response; the rest follows with the next poll (`more`).
pub const POLL_EVENTS: usize = 100;
pub const POLL_BYTES: usize = 64 * 1024;
/// Entries in one page of a list, at most. A page of users fits into one frame.
pub const PAGE_ENTRIES: u64 = 1000;
/// How long a poll waits by default, and at most.
pub const POLL_PARK_MS: u64 = 15_000;
pub const POLL_PARK_MAX_MS: u64 = 25_000;
/// A session outlives the longest grace period of its channels by this much.
pub const EXPIRY_MARGIN_MS: u64 = 60_000;
/// Bytes of the message with a decline, kick, leave or disband. It is shown in one line.
pub const PARTY_MESSAGE_BYTES: usize = 256;
/// Bytes of a party's data, of a go's parameters and of a matchmaker's answer: each is sent to every member.
pub const PARTY_DATA_BYTES: usize = 4096;
/// Bytes of the request id of a party command. A UUID fits.
pub const PARTY_RID_BYTES: usize = 64;
/// Replies that are stored per user for retried requests, and for how long: clients retry soon or never.
pub const PARTY_DONE: usize = 16;
pub const PARTY_DONE_MS: u64 = 120_000;
/// Users that one user blocks. The list is read with every invite to them.
pub const PARTY_BLOCKS: usize = 256;
/// Open invites to one user. All of them are read when they accept one.
pub const PARTY_INCOMING: usize = 32;
/// Declines that are stored per inviter; the one that expires first is dropped first.
pub const PARTY_DECLINED: usize = 64;
/// The window of `invites_per_minute`.
pub const PARTY_MINUTE_MS: u64 = 60_000;
