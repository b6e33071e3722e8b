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
/// What a user says when he declines, kicks, leaves or disbands. It is shown in one line.
pub const PARTY_MESSAGE_BYTES: usize = 256;
/// The object of a party, the parameters of a go and what a matchmaker answers: each stands in a letter to every member.
pub const PARTY_DATA_BYTES: usize = 4096;
/// A request id of a party command. A UUID fits twice.
pub const PARTY_RID_BYTES: usize = 64;
/// Answers that are remembered for one user, and for how long: a retry comes soon or not at all.
pub const PARTY_DONE: usize = 16;
pub const PARTY_DONE_MS: u64 = 120_000;
/// Users whom one user blocks. The list is read with every invite to him.
pub const PARTY_BLOCKS: usize = 256;
/// Invites that one user sees at a time. Each is looked at when he accepts one of them.
pub const PARTY_INCOMING: usize = 32;
/// Refusals of one user's invites that are remembered; the one that ends first is forgotten first.
pub const PARTY_DECLINED: usize = 64;
/// The span of `invites_per_minute`.
pub const PARTY_MINUTE_MS: u64 = 60_000;
