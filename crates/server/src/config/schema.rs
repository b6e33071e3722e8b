//! The schema of configuration keys, and their lookup. The keys themselves are declared in `sections` and nowhere else; the file, the environment, the flags, `tavern check`, the example file and the reference page all read that list.

use super::kinds::{APPS, CHANNELS, KINDS, TOKENS};
use super::lists::{PusherAppConfig, PusherWebhookConfig, TABLES_MAX, TokenKeyConfig, WEBHOOKS_MAX};
use super::sections::{self, ChannelConfig, ConfigSection, KindConfig};

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Text,
    /// Text that is never shown.
    Secret,
    /// An address that may contain a password, which is never shown.
    Link,
    Choice(&'static [&'static str]),
    Flag,
    List,
    Integer {
        min: u64,
        max: u64,
    },
}

/// A default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// No value of its own: absent, or derived from other keys.
    Absent,
    Text(&'static str),
    Flag(bool),
    List(&'static [&'static str]),
    Integer(u64),
}

/// Type, bounds and defaults of a key.
#[derive(Clone, Copy, Debug)]
pub struct KeySchema {
    pub kind: Type,
    pub preset: DefaultValue,
    /// The default in dev mode, if it differs.
    pub dev: Option<DefaultValue>,
    /// A value for the example file, as TOML, if the default is no useful example.
    pub example: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    /// The meaning, for people. The unit is the end of the name: `_ms`, `_bytes`.
    pub meaning: &'static str,
    pub shape: KeySchema,
}

impl KeySchema {
    pub const fn new(kind: Type, preset: DefaultValue) -> KeySchema {
        KeySchema { kind, preset, dev: None, example: None }
    }

    pub const fn integer(preset: u64, min: u64, max: u64) -> KeySchema {
        KeySchema::new(Type::Integer { min, max }, DefaultValue::Integer(preset))
    }

    pub const fn text(preset: &'static str) -> KeySchema {
        KeySchema::new(Type::Text, DefaultValue::Text(preset))
    }

    pub const fn flag(preset: bool) -> KeySchema {
        KeySchema::new(Type::Flag, DefaultValue::Flag(preset))
    }

    pub const fn list(preset: &'static [&'static str]) -> KeySchema {
        KeySchema::new(Type::List, DefaultValue::List(preset))
    }

    pub const fn choice(choices: &'static [&'static str]) -> KeySchema {
        KeySchema::new(Type::Choice(choices), DefaultValue::Text(choices[0]))
    }

    pub const fn in_dev(mut self, preset: DefaultValue) -> KeySchema {
        self.dev = Some(preset);
        self
    }

    pub const fn example(mut self, toml: &'static str) -> KeySchema {
        self.example = Some(toml);
        self
    }
}

/// The keys with a fixed name, in the order in which they are shown.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    sections::ALL.iter().flat_map(|keys| keys.iter())
}

/// The key with this full name: `listen`, `sessions.resume_ms`, `kinds.game.allow`, `channels.lobby#a.activity`,
/// `tokens.keys.0.file`, `pusher.apps.0.id`, `pusher.apps.0.webhooks.0.url`.
pub fn find(name: &str) -> Option<&'static Key> {
    let in_table = |prefix: &str, keys: &'static [Key], is_name: fn(&str) -> bool| {
        let (table, field) = name.strip_prefix(prefix)?.rsplit_once('.')?;
        keys.iter().find(|key| is_name(table) && key.name == field)
    };
    in_table(KINDS, KindConfig::KEYS, tavern_domain::channel::is_kind)
        .or_else(|| in_table(CHANNELS, ChannelConfig::KEYS, is_channel))
        .or_else(|| in_table(TOKENS, TokenKeyConfig::KEYS, is_index))
        .or_else(|| in_table(APPS, PusherAppConfig::KEYS, is_index))
        .or_else(|| in_table(APPS, PusherWebhookConfig::KEYS, is_webhook))
        .or_else(|| keys().find(|key| key.name == name))
}

/// Whether a channel can have its own table: its name is more than a kind.
pub fn is_channel(name: &str) -> bool {
    name.contains('#') && tavern_domain::Channel::parse(name).is_ok()
}

/// The table of a webhook below `pusher.apps.`: `0.webhooks.0`.
fn is_webhook(table: &str) -> bool {
    table.split_once(".webhooks.").is_some_and(|(app, webhook)| is_index(app) && is_index(webhook))
}

/// How many tables a list may have; None: this is no list of tables.
pub fn tables_max(name: &str) -> Option<usize> {
    let is_list = name == TOKENS.trim_end_matches('.') || name == APPS.trim_end_matches('.');
    let of_app = name.strip_prefix(APPS).and_then(|rest| rest.strip_suffix(".webhooks"));
    of_app.filter(|app| is_index(app)).map(|_| WEBHOOKS_MAX).or(is_list.then_some(TABLES_MAX))
}

fn is_index(text: &str) -> bool {
    (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names that a section may contain; the empty section is the top level.
pub fn names_in(section: &str) -> Vec<&'static str> {
    let tables = [
        (KINDS, KindConfig::KEYS),
        (CHANNELS, ChannelConfig::KEYS),
        (TOKENS, TokenKeyConfig::KEYS),
        (APPS, PusherAppConfig::KEYS),
    ];
    if section.strip_prefix(APPS).is_some_and(is_webhook) {
        return PusherWebhookConfig::KEYS.iter().map(|key| key.name).collect();
    }
    if let Some((_, keys)) = tables.iter().find(|(prefix, _)| section.starts_with(prefix)) {
        return keys.iter().map(|key| key.name).collect();
    }
    let inside = |key: &'static Key| match key.name.rsplit_once('.') {
        Some((of, name)) => (of == section).then_some(name),
        None => section.is_empty().then_some(key.name),
    };
    keys().filter_map(inside).collect()
}

/// The tables of the file.
pub fn sections() -> Vec<&'static str> {
    let mut sections: Vec<&str> = keys().filter_map(|key| Some(key.name.split_once('.')?.0)).collect();
    sections.dedup();
    sections.extend(["kinds", "channels", "tokens", "pusher"]);
    sections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_unique_names_meanings_and_valid_defaults() {
        let all: Vec<&Key> = keys().collect();
        assert!(all.len() > 80);
        for (index, key) in all.iter().enumerate() {
            assert!(!all[..index].iter().any(|other| other.name == key.name), "{} is there twice", key.name);
        }
        for key in all
            .into_iter()
            .chain(KindConfig::KEYS)
            .chain(ChannelConfig::KEYS)
            .chain(TokenKeyConfig::KEYS)
            .chain(PusherAppConfig::KEYS)
            .chain(PusherWebhookConfig::KEYS)
        {
            assert!(key.meaning.trim().ends_with('.'), "{}: {:?}", key.name, key.meaning);
            if let (Type::Integer { min, max }, DefaultValue::Integer(preset)) =
                (key.shape.kind, key.shape.preset)
            {
                assert!((min..=max).contains(&preset), "{}", key.name);
            }
        }
    }

    #[test]
    fn keys_are_found_by_their_full_name() {
        for (name, found) in [
            ("listen", true),
            ("sessions.resume_ms", true),
            ("kinds.game.grace_ms", true),
            ("kinds.my_game.allow", true),
            ("kinds.Game.allow", false),
            ("kinds.game.colour", false),
            ("channels.lobby#puzzles.activity", true),
            ("channels.lobby#a.b.arrival_change", true),
            ("channels.lobby.activity", false),
            ("channels.lobby#puzzles.grace_ms", false),
            ("tokens.keys.0.file", true),
            ("tokens.keys.x.file", false),
            ("pusher.apps.0.key", true),
            ("pusher.apps.0.webhooks.1.url", true),
            ("pusher.apps.0.webhooks.1.id", false),
            ("pusher.apps.0.hooks.1.url", false),
            ("resume_ms", false),
            ("sessions", false),
        ] {
            assert_eq!(find(name).is_some(), found, "{name}");
        }
    }

    #[test]
    fn typing_errors_get_a_suggestion() {
        let names = names_in("kinds.game");
        assert_eq!(tavern_wire::nearest("graec_ms", names.iter().copied()), Some("grace_ms"));
        assert_eq!(tavern_wire::nearest("slowreader", names.iter().copied()), Some("slow_reader"));
        assert_eq!(tavern_wire::nearest("colour", names.iter().copied()), None);
        assert_eq!(tavern_wire::nearest("sesions", sections()), Some("sessions"));
    }
}
