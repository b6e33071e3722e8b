//! The settings of kinds and channels that need no configuration file. A file overrides them.

/// Built-in defaults of kinds and channels: table, field, value.
pub const BUILT_IN: &[(&str, &str, &str)] = &[
    ("kinds.activegame", "activity", "playing"),
    ("kinds.activegame", "arrival_change", "started_game"),
    ("kinds.activegame", "departure_change", "ended_game"),
    ("kinds.anno", "activity", "annotating"),
    ("kinds.anno", "arrival_change", "annotating_game"),
    // A newcomer to the demo sees earlier messages.
    ("kinds.demo", "history_messages", "100"),
    ("kinds.demo", "history_ttl_ms", "86400000"),
    ("kinds.game", "activity", "in_game_channel"),
    ("kinds.game", "arrival_change", "in_game_channel"),
    ("kinds.gametv", "activity", "watching"),
    ("kinds.party", "activity", "in_party"),
    // A Radar client gets every change, and statuses are kept as long as the original keeps them.
    ("kinds.radar-presence", "presence_mode", "full"),
    ("kinds.radar-status", "history_messages", "1000"),
    ("kinds.radar-status", "history_ttl_ms", "43200000"),
    ("channels.lobby#puzzles", "activity", "solving_puzzles"),
    ("channels.lobby#puzzles", "arrival_change", "solving_puzzles"),
];
