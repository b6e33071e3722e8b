//! The settings of kinds and channels that need no configuration file. A file overrides them.

/// What a kind of a Pusher app has if it sets nothing: the end of its name, field, value.
pub const APP_KINDS: &[(&str, &str, &str)] = &[
    // A client that meets a dead server tries again after about 16 s.
    ("", "grace_ms", "20000"),
    ("", "presence_mode", "full"),
    ("-cache", "grace_ms", "20000"),
    ("-cache", "presence_mode", "full"),
    // The last event is the first that is no client's.
    ("-cache", "history_messages", "16"),
    ("-cache", "history_ttl_ms", "1800000"),
    ("-occupied", "grace_ms", "20000"),
    ("-user", "grace_ms", "20000"),
    ("-user", "presence_mode", "full"),
];

/// The built-in default of a field of a table; `app_kinds` are those of Pusher apps, with the ends of their names.
pub fn built_in(table: &str, field: &str, app_end: Option<&str>) -> Option<&'static str> {
    let found = |rows: &'static [(&str, &str, &str)], name: &str| {
        rows.iter().find(|known| (known.0, known.1) == (name, field)).map(|known| known.2)
    };
    found(BUILT_IN, table).or_else(|| found(APP_KINDS, app_end?))
}

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
