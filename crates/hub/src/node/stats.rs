//! Counters of one shard. Written by that shard alone, read by any thread: no locked instructions on the hot path.

use super::histogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub struct Stats {
            $($(#[$doc])* pub $name: Counter,)*
            /// From publishing a message here, or its arrival from another node, to writing it: the oldest message of
            /// each write.
            pub message_delivery: Histogram,
            /// From an event for a parked long-poll to its answer.
            pub poll_wakeup: Histogram,
        }

        impl Stats {
            /// All counters by name, for the metrics page.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Messages published through this shard.
    published,
    /// Events put into mailboxes.
    delivered,
    /// Unread events dropped because a mailbox was full.
    dropped_full,
    /// Unread events dropped because all mailboxes together were too large.
    dropped_budget,
    /// Connections closed because their reader was too slow.
    closed_slow,
    /// Redis connections closed because messages of another node were lost.
    closed_lost,
    /// Connections closed before login because all of them together held too much memory.
    closed_unauthenticated,
    /// Updates about users: one per change, independent of the number of followers.
    user_updates,
    /// Status events put into mailboxes of followers.
    statuses,
    sessions_opened,
    sessions_resumed,
    sessions_superseded,
    sessions_ended,
    sessions_expired,
    /// Sessions without a connection that were replaced by newer ones of the same user.
    sessions_replaced,
    /// Sessions that migrated in from other nodes, and out to them.
    sessions_migrated_in,
    sessions_migrated_out,
    /// Presences without a live node, removed by the sweep.
    presences_swept,
    commands,
    refused,
    /// Party commands of users, of apps and of the server itself; and how often one of them was retried after a
    /// conflict.
    party_commands,
    party_conflicts,
    /// Histories removed because all of them together were too large; messages that did not fit into a mailbox and are
    /// read from the history again.
    history_evicted,
    history_reread,
    /// Inbox messages stored, and inbox messages put into mailboxes of sessions.
    inbox_messages_stored,
    inbox_messages_delivered,
    /// Gauges, set at each sweep.
    sessions,
    sessions_detached,
    redis_listeners,
    mailbox_events,
    mailbox_bytes,
    event_bytes,
    polls_parked,
}

/// A number with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds, from any thread.
    pub fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
