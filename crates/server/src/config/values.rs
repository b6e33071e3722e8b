//! The values of all keys while a `Config` is built: what was set, defaults for the rest, the lines of `tavern check`, and
//! errors. Must hold: every value is shown once, with its origin and without secrets.

use super::schema::{self, DefaultValue, KeySchema, Type};
use super::{
    ConfigError, ConfigValue, EffectiveValue, SecretText, ServerMode, SetKey, ValueSource, without_password,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) struct Values {
    pub mode: ServerMode,
    given: BTreeMap<String, (ConfigValue, ValueSource)>,
    entries: Vec<EffectiveValue>,
    errors: Vec<ConfigError>,
}

impl Values {
    /// If a key was set several times, the last value wins.
    pub fn new(mode: ServerMode, given: Vec<SetKey>, errors: Vec<ConfigError>) -> Values {
        let given = given.into_iter().map(|SetKey { name, value, origin }| (name, (value, origin)));
        Values { mode, given: given.collect(), entries: Vec::new(), errors }
    }

    /// The value from a file, a variable or a flag.
    pub fn given(&self, name: &str) -> Option<&(ConfigValue, ValueSource)> {
        self.given.get(name)
    }

    pub fn given_names(&self) -> impl Iterator<Item = &str> {
        self.given.keys().map(String::as_str)
    }

    /// Where the value of a key comes from.
    pub fn origin(&self, name: &str) -> ValueSource {
        self.given(name).map_or(ValueSource::Default, |(_, origin)| origin.clone())
    }

    /// The effective value: the one that was set, or the default of this mode. Absent keys stay absent.
    pub fn take(&mut self, name: &str) -> Option<ConfigValue> {
        let Some(key) = schema::find(name) else { unreachable!("{name} is no key") };
        let (value, origin) = match self.given(name) {
            Some((value, origin)) => (Some(value.clone()), origin.clone()),
            None => preset(&key.shape, self.mode),
        };
        self.show(name, shown(key.shape.kind, value.as_ref()), origin);
        value
    }

    /// Sets the line of `tavern check` for a key, for a value that was derived.
    pub fn show(&mut self, name: &str, value: serde_json::Value, origin: ValueSource) {
        self.entries.retain(|entry| entry.key != name);
        self.entries.push(EffectiveValue { key: name.to_owned(), value, origin });
    }

    /// Adds an error about the value of this key.
    pub fn fail(&mut self, name: &str, message: impl Into<String>) {
        let error = ConfigError::at(&self.origin(name), message);
        self.errors.push(error);
    }

    /// Adds an error that concerns no single key.
    pub fn fail_general(&mut self, message: impl Into<String>) {
        self.errors.push(ConfigError::general(message));
    }

    /// The lines of `tavern check` in the order of the schema, then the tables with names of their own; and all errors.
    pub fn finish(mut self) -> (Vec<EffectiveValue>, Vec<ConfigError>) {
        let names: Vec<&str> = schema::keys().map(|key| key.name).collect();
        let place = |entry: &EffectiveValue| names.iter().position(|name| *name == entry.key);
        self.entries.sort_by_key(|entry| place(entry).unwrap_or(names.len()));
        (self.entries, self.errors)
    }
}

/// The default of this mode.
pub(super) fn preset(shape: &KeySchema, mode: ServerMode) -> (Option<ConfigValue>, ValueSource) {
    match shape.dev.filter(|_| mode == ServerMode::Dev) {
        Some(preset) => (from_preset(preset), ValueSource::DevMode),
        None => (from_preset(shape.preset), ValueSource::Default),
    }
}

fn from_preset(preset: DefaultValue) -> Option<ConfigValue> {
    match preset {
        DefaultValue::Absent => None,
        DefaultValue::Text(text) => Some(ConfigValue::Text(text.to_owned())),
        DefaultValue::Flag(flag) => Some(ConfigValue::Flag(flag)),
        DefaultValue::List(list) => {
            Some(ConfigValue::List(list.iter().map(|&item| item.to_owned()).collect()))
        }
        DefaultValue::Integer(number) => Some(ConfigValue::Integer(number)),
    }
}

/// The value without secrets.
pub(super) fn shown(kind: Type, value: Option<&ConfigValue>) -> serde_json::Value {
    match (kind, value) {
        (_, None) => serde_json::Value::Null,
        (Type::Secret, Some(_)) => json!("(hidden)"),
        (Type::Link, Some(ConfigValue::Text(link))) => json!(without_password(link)),
        (_, Some(ConfigValue::Text(text))) => json!(text),
        (_, Some(ConfigValue::Flag(flag))) => json!(flag),
        (_, Some(ConfigValue::List(list))) => json!(list),
        (_, Some(ConfigValue::Integer(number))) => json!(number),
    }
}

/// A field of a section. The layers have checked the type; other values count as absent.
pub(super) trait FromValue {
    fn from_value(value: Option<ConfigValue>) -> Self;
}

impl FromValue for u64 {
    fn from_value(value: Option<ConfigValue>) -> u64 {
        if let Some(ConfigValue::Integer(number)) = value { number } else { 0 }
    }
}

impl FromValue for u32 {
    fn from_value(value: Option<ConfigValue>) -> u32 {
        u32::try_from(u64::from_value(value)).unwrap_or(u32::MAX)
    }
}

impl FromValue for usize {
    fn from_value(value: Option<ConfigValue>) -> usize {
        usize::try_from(u64::from_value(value)).unwrap_or(usize::MAX)
    }
}

impl FromValue for bool {
    fn from_value(value: Option<ConfigValue>) -> bool {
        matches!(value, Some(ConfigValue::Flag(true)))
    }
}

impl FromValue for String {
    fn from_value(value: Option<ConfigValue>) -> String {
        if let Some(ConfigValue::Text(text)) = value { text } else { String::new() }
    }
}

impl FromValue for PathBuf {
    fn from_value(value: Option<ConfigValue>) -> PathBuf {
        String::from_value(value).into()
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: Option<ConfigValue>) -> Vec<String> {
        if let Some(ConfigValue::List(list)) = value { list } else { Vec::new() }
    }
}

impl FromValue for Option<String> {
    fn from_value(value: Option<ConfigValue>) -> Option<String> {
        Some(String::from_value(value)).filter(|text| !text.is_empty())
    }
}

impl FromValue for Option<SecretText> {
    fn from_value(value: Option<ConfigValue>) -> Option<SecretText> {
        Option::<String>::from_value(value).map(SecretText::new)
    }
}
