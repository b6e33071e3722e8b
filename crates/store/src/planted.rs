//! Faults that are built into the production code of engines and hub when the feature `planted-faults` is on, to check that the
//! tests find them: `scripts/planted-faults`. The variable `TAVERN_PLANTED_FAULT` chooses one when a process starts. Without the
//! feature, which no release has, `planted` is `false` when it is compiled, and nothing reads the variable.

/// Every planted fault, and what is wrong with it.
pub const FAULTS: &[(&str, &str)] = &[
    (
        "sqlite-version-check",
        "SQLite: a presence that was deleted keeps its version within a batch of commits",
    ),
    ("postgres-last-row", "Postgres: a page of a channel's presences that is full says that nothing follows"),
    ("postgres-lease", "Postgres: a lease never ends"),
    ("redis-fence", "Redis: a commit ignores that the epoch of its writer is closed"),
    ("nats-drop", "NATS: every 50th message is not delivered"),
    ("local-wake-up", "local bus: every 50th job does not wake up the writing thread"),
    ("hub-conflict", "hub: a transaction is not retried after a conflict"),
    ("hub-gap", "hub: a mailbox that is full drops unread events without a gap"),
    (
        "hub-grace",
        "hub: the deadline of a grace period is forgotten when the client of a dead node is taken over",
    ),
    ("hub-migration", "hub: a session migrates without its unread events"),
    ("hub-replica-gap", "hub: nobody notices that an update of a copy of stored rows is missing"),
    ("hub-replica-kept", "hub: updates that arrive while a copy is read are forgotten"),
    ("hub-replica-late", "hub: a read that is older than a commit of this shard is used"),
    ("hub-replica-compare", "hub: a copy that has missed the last update is taken for current"),
    ("hub-replica-page", "hub: a copy takes the page of a read that was given up"),
    ("hub-replica-twice", "hub: a copy applies an update again that it already has"),
    ("hub-replica-deleted", "hub: a copy that is read again keeps rows that were deleted meanwhile"),
    ("hub-history-clear", "hub: a shard keeps its copy of a history that was deleted"),
];

/// Whether this fault was chosen for this process.
#[cfg(feature = "planted-faults")]
pub fn planted(fault: &str) -> bool {
    use std::sync::LazyLock;
    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| {
        let chosen = std::env::var("TAVERN_PLANTED_FAULT").ok()?;
        assert!(FAULTS.iter().any(|(name, _)| *name == chosen), "TAVERN_PLANTED_FAULT: no fault {chosen}");
        Some(chosen)
    });
    debug_assert!(FAULTS.iter().any(|(name, _)| *name == fault), "{fault} is not in FAULTS");
    CHOSEN.as_deref() == Some(fault)
}

#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub const fn planted(_fault: &str) -> bool {
    false
}

/// The same, for every so many calls of this process.
#[cfg(feature = "planted-faults")]
pub fn planted_every(fault: &str, calls: u64) -> bool {
    use std::sync::atomic::{AtomicU64, Ordering};
    static CALLS: AtomicU64 = AtomicU64::new(0);
    planted(fault) && (CALLS.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(calls)
}

#[cfg(not(feature = "planted-faults"))]
#[inline(always)]
pub const fn planted_every(_fault: &str, _calls: u64) -> bool {
    false
}

#[cfg(all(test, not(feature = "planted-faults")))]
mod tests {
    use super::*;

    #[test]
    fn no_fault_is_planted_without_the_feature() {
        for (name, _) in FAULTS {
            assert!(!planted(name) && !planted_every(name, 1), "{name}");
        }
    }
}
