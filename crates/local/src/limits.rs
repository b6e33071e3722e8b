//! Every bound of the library, with its reason.

/// The largest name and the largest payload: what one message may cost every reader.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// The longest path of a folder: SQLite takes 512 bytes for a file, its own endings included.
pub const PATH_BYTES: usize = 497;
/// How long a writer waits for its turn before it says that the folder is busy. A turn takes well below a
/// millisecond; only a stopped process holds it longer.
pub const BUSY_MS: u64 = 5_000;
/// A lost signal is healed after this long at the latest.
pub const LOOK_MS: u64 = 1_000;
/// How long a reader waits for its turn to mark what it has read. Reading goes on without; the marks come later.
pub const CHORE_MS: u64 = 50;
/// The dead are looked for this often by those who wait, once for the whole folder.
pub const SWEEP_MS: u64 = 5_000;
/// Read messages whose marks may still stand in the database, so that reading writes rarely.
pub const UNACKED: usize = 1_024;
pub const UNACKED_BYTES: usize = 8 << 20;
/// Messages taken from the database at once, by count and by bytes.
pub const PUMP: usize = 256;
pub const PUMP_BYTES: usize = 4 << 20;
/// Messages in one transaction: it holds everybody else up.
pub const BATCH: usize = 512;
/// Rows removed from the log at once.
pub const TRIM: usize = 4_096;
/// Channels whose audience is remembered, and how long their names may be.
pub const REMEMBERED: usize = 16_384;
pub const REMEMBERED_BYTES: usize = 1_024;
/// Above this size the write-ahead log is folded back even if that makes a writer wait.
pub const WAL_BYTES: u64 = 32 << 20;
/// How long it may wait: somebody who was stopped while it read would make it wait for ever.
pub const FOLD_MS: u64 = 100;
/// How long a publisher waits for those who hear everything to say what they really want to hear, and how long it
/// leaves them alone when they did not.
pub const NARROW_MS: u64 = 1_000;
/// How often it asks meanwhile: a bell that has rung too often takes no question.
pub const NARROW_ASK_MS: u64 = 20;
pub const NARROW_AGAIN_MS: u64 = 30_000;
