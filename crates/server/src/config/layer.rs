//! The layers of the configuration: a file, the environment, the flags. Each is read into a flat list of keys with
//! values of the right type. Must hold: a value that is unknown, of a wrong type or out of bounds is an error at its
//! location, never skipped.

use super::origin::{ConfigError, ValueSource};
use super::schema::{self, Key, Type};
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

// No Debug: a value may be a secret.
#[derive(Clone)]
pub enum ConfigValue {
    Text(String),
    Flag(bool),
    List(Vec<String>),
    Integer(u64),
}

/// A key that was set.
pub struct SetKey {
    pub name: String,
    pub value: ConfigValue,
    pub origin: ValueSource,
}

type ReadKeys = (Vec<SetKey>, Vec<ConfigError>);

/// The largest configuration file.
pub const FILE_BYTES: u64 = 1 << 20;
const TEXT_BYTES: usize = 8_192;

/// Reads `tavern.toml`.
pub fn read_file(path: &str, text: &str) -> ReadKeys {
    let mut reader = FileReader { path: path.into(), text, given: Vec::new(), errors: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => reader.table("", table.get_ref()),
        Err(error) => {
            let at = reader.origin(error.span().map_or(0, |span| span.start));
            reader.errors.push(ConfigError::at(&at, error.message().trim()));
        }
    }
    (reader.given, reader.errors)
}

struct FileReader<'a> {
    path: Arc<str>,
    text: &'a str,
    given: Vec<SetKey>,
    errors: Vec<ConfigError>,
}

impl FileReader<'_> {
    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let full = if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") };
            let at = self.origin(key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) if self.is_section(section, name) => self.table(&full, inner),
                DeValue::Array(tables) if schema::tables_max(&full).is_some() => {
                    let max = schema::tables_max(&full).unwrap_or(0);
                    if tables.len() > max {
                        self.fail(&at, format!("more than {max} [[{full}]]"));
                    }
                    for (index, entry) in tables.iter().enumerate().take(max) {
                        match entry.get_ref() {
                            DeValue::Table(inner) => self.table(&format!("{full}.{index}"), inner),
                            _ => self.fail(&at, format!("{full} is a list of tables: write [[{full}]]")),
                        }
                    }
                }
                DeValue::Table(_) => self.unknown_table(section, name, &at),
                other => match schema::find(&full) {
                    Some(key) => match typed(&full, key, other) {
                        Ok(value) => self.given.push(SetKey { name: full, value, origin: at }),
                        Err(message) => self.fail(&at, message),
                    },
                    None => self.unknown_key(section, name, &at),
                },
            }
        }
    }

    fn is_section(&self, section: &str, name: &str) -> bool {
        match section {
            "" => schema::sections().contains(&name),
            "kinds" => tavern_domain::channel::is_kind(name),
            "channels" => schema::is_channel(name),
            _ => false,
        }
    }

    fn unknown_table(&mut self, section: &str, name: &str, at: &ValueSource) {
        let message = match section {
            "kinds" => format!("{name:?} is not a channel kind: a kind is [a-z][a-z0-9_-]{{0,31}}"),
            "channels" => format!("{name:?} is not a channel: write [channels.\"game#1\"]"),
            "" if schema::find(name).is_some() => format!("{name} is a key, not a section: write {name} = …"),
            "" => match tavern_wire::nearest(name, schema::sections()) {
                Some(meant) => format!("unknown section [{name}]; did you mean [{meant}]?"),
                None => format!("unknown section [{name}]"),
            },
            _ => format!("unknown section [{section}.{name}]"),
        };
        self.fail(at, message);
    }

    fn unknown_key(&mut self, section: &str, name: &str, at: &ValueSource) {
        if section.is_empty() && schema::sections().contains(&name) {
            return self.fail(at, format!("{name} is a section: write [{name}]"));
        }
        if section == "kinds" || section == "channels" {
            return self.fail(at, format!("{section}.{name} is a section: write [{section}.{name}]"));
        }
        let place = if section.is_empty() { String::new() } else { format!(" in [{section}]") };
        let hint = match tavern_wire::nearest(name, schema::names_in(section)) {
            Some(meant) => format!("; did you mean \"{meant}\"?"),
            None => String::new(),
        };
        self.fail(at, format!("unknown key {name:?}{place}{hint}"));
    }

    fn fail(&mut self, at: &ValueSource, message: impl Into<String>) {
        self.errors.push(ConfigError::at(at, message));
    }

    fn origin(&self, offset: usize) -> ValueSource {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        ValueSource::File { path: self.path.clone(), line, column }
    }
}

/// Reads a value of the file as the type of its key.
fn typed(name: &str, key: &Key, value: &DeValue<'_>) -> Result<ConfigValue, String> {
    match (key.shape.kind, value) {
        (Type::Integer { .. }, DeValue::Integer(written)) => {
            match i128::from_str_radix(written.as_str(), written.radix()) {
                Ok(number) => bounded(name, key, number),
                Err(_) => Err(format!("{name} = {written} is out of range")),
            }
        }
        (Type::Flag, DeValue::Boolean(flag)) => Ok(ConfigValue::Flag(*flag)),
        (Type::List, DeValue::Array(items)) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            let list: Option<Vec<String>> = texts.collect();
            list.map(ConfigValue::List)
                .ok_or_else(|| format!("{name} must be a list of strings: [\"a\", \"b\"]"))
        }
        (Type::Text | Type::Secret | Type::Link | Type::Choice(_), DeValue::String(text)) => {
            chosen(name, key, text)
        }
        _ => Err(format!("{name} must be {}", wanted(key.shape.kind))),
    }
}

/// Reads a value from the text of a variable or flag.
pub fn read_text(name: &str, key: &Key, text: &str) -> Result<ConfigValue, String> {
    let text = text.trim();
    match key.shape.kind {
        Type::Integer { .. } => match text.replace('_', "").parse::<i128>() {
            Ok(number) => bounded(name, key, number),
            Err(_) => Err(format!("{name} must be an integer, not {text:?}")),
        },
        Type::Flag => match text {
            "true" | "1" | "yes" | "on" => Ok(ConfigValue::Flag(true)),
            "false" | "0" | "no" | "off" | "" => Ok(ConfigValue::Flag(false)),
            _ => Err(format!("{name} must be true or false, not {text:?}")),
        },
        Type::List => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Ok(ConfigValue::List(items.map(str::to_owned).collect()))
        }
        Type::Text | Type::Secret | Type::Link | Type::Choice(_) => chosen(name, key, text),
    }
}

fn bounded(name: &str, key: &Key, number: i128) -> Result<ConfigValue, String> {
    let Type::Integer { min, max } = key.shape.kind else { unreachable!("only integers are bounded") };
    match u64::try_from(number) {
        Ok(number) if (min..=max).contains(&number) => Ok(ConfigValue::Integer(number)),
        _ => Err(format!("{name} = {number} is out of range: {min} to {max}")),
    }
}

fn chosen(name: &str, key: &Key, text: &str) -> Result<ConfigValue, String> {
    if text.len() > TEXT_BYTES {
        return Err(format!("{name} is longer than {TEXT_BYTES} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{name} contains a control character"));
    }
    match key.shape.kind {
        Type::Choice(choices) if !choices.contains(&text) => {
            Err(format!("{name} = {text:?} must be one of: {}", choices.join(", ")))
        }
        _ => Ok(ConfigValue::Text(text.to_owned())),
    }
}

fn wanted(shape: Type) -> String {
    match shape {
        Type::Integer { min, max } => format!("an integer, {min} to {max}"),
        Type::Flag => "true or false".to_owned(),
        Type::List => "a list of strings: [\"a\", \"b\"]".to_owned(),
        Type::Choice(choices) => format!("one of \"{}\"", choices.join("\", \"")),
        Type::Text | Type::Secret | Type::Link => "a string in quotes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let (_, errors) = read_file("tavern.toml", text);
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, expected, "{text}");
    }

    #[test]
    fn errors_have_line_and_column() {
        check("listen = \"127.0.0.1:1\"\n[kinds.game]\ngrace_ms = 0\n", &[]);
        check(
            "[kinds.game]\n  graec_ms = 5\n",
            &["tavern.toml:2:3: unknown key \"graec_ms\" in [kinds.game]; did you mean \"grace_ms\"?"],
        );
        check("lisen = 1", &["tavern.toml:1:1: unknown key \"lisen\"; did you mean \"listen\"?"]);
        check("[sesions]\n", &["tavern.toml:1:2: unknown section [sesions]; did you mean [sessions]?"]);
        check(
            "[kinds.Game]\n",
            &["tavern.toml:1:8: \"Game\" is not a channel kind: a kind is [a-z][a-z0-9_-]{0,31}"],
        );
        check("sessions = 3", &["tavern.toml:1:1: sessions is a section: write [sessions]"]);
        check(
            "[sessions]\nresume_ms = \"2 s\"",
            &["tavern.toml:2:1: sessions.resume_ms must be an integer, 0 to 60000"],
        );
        check(
            "[kinds.game]\ngrace_ms = 600_001\n[kinds.tv]\ngrace_ms = -1",
            &[
                "tavern.toml:2:1: kinds.game.grace_ms = 600001 is out of range: 0 to 600000",
                "tavern.toml:4:1: kinds.tv.grace_ms = -1 is out of range: 0 to 600000",
            ],
        );
        check(
            "[kinds.game]\nslow_reader = \"drop\"",
            &["tavern.toml:2:1: kinds.game.slow_reader = \"drop\" must be one of: gap, close"],
        );
        check("origins = [1]", &["tavern.toml:1:1: origins must be a list of strings: [\"a\", \"b\"]"]);
        check(
            "[[tokens.keys]]\nalgorithm = \"HS1\"",
            &["tavern.toml:2:1: tokens.keys.0.algorithm = \"HS1\" must be one of: \
             RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, EdDSA, HS256"],
        );
    }

    #[test]
    fn syntax_errors_have_line_and_column() {
        let (_, errors) = read_file("tavern.toml", "# ü\nlisten = \"a\"\nlisten = = 2\n");
        assert!(errors[0].to_string().starts_with("tavern.toml:3:"), "{}", errors[0]);
        let (_, errors) = read_file("tavern.toml", "threads = 1\nthreads = 2\n");
        assert!(errors[0].to_string().starts_with("tavern.toml:2:1: duplicate key"), "{}", errors[0]);
    }

    #[test]
    fn text_is_read_as_the_type_of_its_key() {
        let read = |name: &str, text: &str| read_text(name, schema::find(name).unwrap(), text);
        assert!(matches!(read("sessions.resume_ms", "1_500"), Ok(ConfigValue::Integer(1500))));
        assert!(matches!(read("events.allow_http", "true"), Ok(ConfigValue::Flag(true))));
        assert!(matches!(read("origins", "a, b,"), Ok(ConfigValue::List(list)) if list == ["a", "b"]));
        for (name, text) in [("sessions.resume_ms", "abc"), ("events.allow_http", "maybe"), ("log", "xml")] {
            assert!(read(name, text).is_err(), "{name}={text}");
        }
    }
}
