//! Limits of the engines that are not configurable, each with its reason.

/// Rows, expectations and deadlines in one commit. A large commit delays the others of its batch.
pub const COMMIT_ITEMS: usize = 4096;
/// All bytes of one commit: room for a few sessions with full mailboxes.
pub const COMMIT_BYTES: usize = 16 * 1024 * 1024;
/// The body of one row: a session whose mailbox is full, with its framing.
pub const BODY_BYTES: usize = 4 * 1024 * 1024;
/// One name in a key: the longest channel name, percent-encoded, with room.
pub const NAME_BYTES: usize = 2048;
/// The id that a publisher gives to an event.
pub const ID_BYTES: usize = 256;
/// Rows in one page of a list.
pub const PAGE_ROWS: u32 = 1000;
/// Bytes in one page of a list. A page has at least one row, however large it is.
pub const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Works queued for an engine's thread. Above this, work is answered `Unavailable` at once.
pub const QUEUED_ITEMS: usize = 65_536;
/// Bytes of the works queued for an engine's thread, with the same effect.
pub const QUEUED_BYTES: usize = 256 * 1024 * 1024;
/// Commits in one transaction: enough to share an fsync, few enough to hold the folder's lock only briefly.
pub const BATCH_COMMITS: usize = 512;
/// A subject of the bus: prefix, kind and the longest name, each byte percent-encoded.
pub const SUBJECT_BYTES: usize = 2048;
/// The longest lease of a node. A longer one would show dead clients as present for too long.
pub const LEASE_MS: u64 = 600_000;
/// When to retry after the engine failed or its queue was full.
pub const RETRY_AFTER_MS: u64 = 250;
