//! Every bound of the library, with its reason.

/// The largest name and the largest payload in bytes: it bounds what one message costs every reader.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// The longest path of a folder: SQLite allows 512 bytes per file name, including the suffixes it adds.
pub const PATH_BYTES: usize = 497;
/// How long a writer waits for the write lock before it reports the folder as busy. A write takes well below a
/// millisecond; only a stopped process holds the lock longer.
pub const BUSY_MS: u64 = 5_000;
/// How often a waiting process runs maintenance, and so the longest delay after a lost wake-up.
pub const MAINTENANCE_MS: u64 = 1_000;
/// How long a reader waits for the write lock to acknowledge what it read. Without it reading continues; it retries
/// later.
pub const ACKNOWLEDGE_MS: u64 = 50;
/// How often waiting processes look for dead ones, once for the whole folder.
pub const SWEEP_MS: u64 = 5_000;
/// Messages read and not yet acknowledged in the database, by count and by bytes, so that reading rarely writes.
pub const UNACKNOWLEDGED: usize = 1_024;
pub const UNACKNOWLEDGED_BYTES: usize = 8 << 20;
/// Messages fetched from the database at once, by count and by bytes.
pub const FETCH: usize = 256;
pub const FETCH_BYTES: usize = 4 << 20;
/// Messages published in one transaction: it blocks every other writer.
pub const BATCH: usize = 512;
/// Bytes published in one transaction.
pub const BATCH_BYTES: usize = FETCH_BYTES;
/// Names subscribed to in one transaction: it blocks every other writer.
pub const SUBSCRIBE: usize = 1_000;
/// Rows removed from the log at once.
pub const TRIM: usize = 4_096;
/// Channels whose audience is cached, and the longest name that is.
pub const CACHED_CHANNELS: usize = 16_384;
pub const CACHED_NAME_BYTES: usize = 1_024;
/// Above this size the write-ahead log is checkpointed even if that makes a writer wait.
pub const WAL_BYTES: u64 = 32 << 20;
/// How long that checkpoint may wait: a process stopped while it reads would block it for ever.
pub const CHECKPOINT_MS: u64 = 100;
/// How long a publisher waits for subscribers to everything to subscribe by name instead, and how long it does not
/// ask again if they did not answer.
pub const NARROW_MS: u64 = 1_000;
pub const NARROW_AGAIN_MS: u64 = 30_000;
/// How often it repeats the request during that time: a wake-up socket that is full drops it.
pub const NARROW_REPEAT_MS: u64 = 20;
