//! The keys of a store: `{<prefix>}:<table>`, a fixed set in one hash slot, so that a script can name all keys it may
//! touch and Redis Cluster keeps them together. Hashes hold rows; sorted sets with equal scores are the lists that
//! are paged, in byte order. The commit script knows the tables by the constants of `lua`.

/// The version of the keys and rows; grows with every change of them.
pub(super) const VERSION: u64 = 1;

/// In the order in which the commit script gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisTable {
    Clock = 1,
    Nodes,
    Presences,
    Roster,
    UserChannels,
    NodePresences,
    GracePeriods,
    Channels,
    Holds,
    HeldWith,
    Documents,
    Sessions,
    SessionIds,
    SessionOwners,
    ApiKeys,
    ApiKeyHashes,
    ApiKeyIds,
    Users,
    Follows,
    Following,
    Followers,
    Deadlines,
    DeadlinesDue,
    DocumentIds,
    HoldIds,
    UserIds,
    Leases,
    LogEnds,
    Log,
    LogTopics,
    Topics,
    TopicNames,
    #[expect(dead_code, reason = "only the script uses it")]
    EventIds,
    #[expect(dead_code, reason = "only the script uses it")]
    EventIdsAt,
    Inboxes,
    InboxMessages,
    InboxMessageIds,
    Histories,
    HistoryMessages,
    #[expect(dead_code, reason = "only the script uses it")]
    HistoryIds,
    HistoriesDue,
    HistoryBytes,
}

const NAMES: [&str; 42] = [
    "clock",
    "nodes",
    "presences",
    "roster",
    "user-channels",
    "node-presences",
    "grace-periods",
    "channels",
    "holds",
    "held-with",
    "documents",
    "sessions",
    "session-ids",
    "session-owners",
    "api-keys",
    "api-key-hashes",
    "api-key-ids",
    "users",
    "follows",
    "following",
    "followers",
    "deadlines",
    "deadlines-due",
    "document-ids",
    "hold-ids",
    "user-ids",
    "leases",
    "log-ends",
    "log",
    "log-topics",
    "topics",
    "topic-names",
    "event-ids",
    "event-ids-at",
    "inboxes",
    "inbox-messages",
    "inbox-message-ids",
    "histories",
    "history-messages",
    "history-ids",
    "histories-due",
    "history-bytes",
];

/// The tables as constants of Lua: `local CLOCK, NODES, … = 1, 2, …`.
pub(super) fn lua() -> String {
    let names: Vec<String> = NAMES.iter().map(|name| name.replace('-', "_").to_uppercase()).collect();
    let numbers: Vec<String> = (1..=NAMES.len()).map(|number| number.to_string()).collect();
    format!("local {} = {}\n", names.join(", "), numbers.join(", "))
}

/// The full names of the keys, and the hash slot they are in.
#[derive(Clone)]
pub(super) struct RedisKeys {
    names: Vec<String>,
    pub slot: u16,
}

impl RedisKeys {
    pub fn new(prefix: &str) -> RedisKeys {
        let names = NAMES.iter().map(|name| format!("{{{prefix}}}:{name}")).collect();
        RedisKeys { names, slot: slot(prefix.as_bytes()) }
    }

    pub fn get(&self, table: RedisTable) -> &[u8] {
        self.names[table as usize - 1].as_bytes()
    }

    pub fn all(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.names.iter().map(String::as_bytes)
    }
}

/// The slot of a hash tag in Redis Cluster: its CRC16 (XMODEM).
pub(super) fn slot(tag: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    for &byte in tag {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_the_names_and_numbers_that_scripts_know() {
        let keys = RedisKeys::new("tavern");
        for (table, name) in [
            (RedisTable::Clock, "clock"),
            (RedisTable::Channels, "channels"),
            (RedisTable::UserIds, "user-ids"),
            (RedisTable::InboxMessageIds, "inbox-message-ids"),
            (RedisTable::HistoryBytes, "history-bytes"),
        ] {
            assert_eq!(keys.get(table), format!("{{tavern}}:{name}").as_bytes());
        }
        assert_eq!(RedisTable::HistoryBytes as usize, NAMES.len());
        let lua = lua();
        assert!(
            lua.starts_with("local CLOCK, NODES, ")
                && lua.ends_with(
                    ", 41, 42
"
                ),
            "{lua}"
        );
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        assert_eq!((slot(b"123456789"), slot(b"foo")), (12_739, 12_182));
    }
}
