//! The example file and the reference page, generated from the schema. Must hold: they list every key, with its meaning,
//! default and bounds; a test compares them with `packaging/tavern.toml` and `docs/reference/configuration.md`.

use super::built_in::{APP_KINDS, BUILT_IN};
use super::lists::{PusherAppConfig, PusherWebhookConfig, TokenKeyConfig};
use super::schema::{self, DefaultValue, Key, Type};
use super::sections::{ChannelConfig, ConfigSection, KindConfig};
use std::fmt::Write;

const WIDTH: usize = 118;

/// A `tavern.toml` with every key: those in `set` with their value (as TOML), the others commented out with their default.
pub fn file(set: &[(&str, &str)]) -> String {
    let mut out = String::new();
    comment(
        &mut out,
        "The configuration of a server. Keys that are commented out show their default, or an example where it says \
         so. `tavern check` lists every key with its value and where it came from. Environment variables \
         (TAVERN_SESSIONS_DRAIN_MS) override this file, and flags override environment variables. Do not put secrets \
         here: use tavern.env.",
    );
    let mut section = "";
    for key in schema::keys() {
        let (of, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if of != section {
            section = of;
            let open = set.iter().any(|(name, _)| name.starts_with(&format!("{of}.")));
            let _ = write!(out, "\n{}[{of}]", if open { "" } else { "#" });
        }
        // Secrets are set elsewhere.
        if key.shape.kind == Type::Secret {
            continue;
        }
        out.push('\n');
        entry(&mut out, key, name, set.iter().find(|(known, _)| *known == key.name).map(|(_, value)| *value));
    }
    out.push('\n');
    comment(
        &mut out,
        "Everything is denied unless a token, this file or the authorize hook allows it. One table per kind of \
         channel. [kinds.default] applies to all other kinds, and to keys that a kind does not set.",
    );
    out.push_str("# For example:\n#[kinds.game]\n");
    for key in KindConfig::KEYS {
        entry(&mut out, key, key.name, None);
    }
    out.push('\n');
    comment(&mut out, "Settings of single channels that differ from their kind.");
    out.push_str("# For example:\n#[channels.\"lobby#puzzles\"]\n#activity = \"solving_puzzles\"\n#arrival_change = \"solving_puzzles\"\n");
    out.push('\n');
    comment(
        &mut out,
        "Keys, or sets of keys. Tokens signed with them are accepted, in addition to those signed with the secret.",
    );
    out.push_str("# For example:\n#[[tokens.keys]]\n#algorithm = \"EdDSA\"\n#file = \"/etc/tavern/token.pem\"\n#kid = \"2026\"\n",
    );
    out.push('\n');
    comment(
        &mut out,
        "Apps whose clients and servers speak the Pusher protocol. Their secrets belong in tavern.env.",
    );
    out.push_str("# For example:\n#[[pusher.apps]]\n#id = \"1\"\n#key = \"my-key\"\n#client_events = true\n#[[pusher.apps.webhooks]]\n#url = \"https://app.example/pusher/webhooks\"\n#events = [\"channel_occupied\", \"channel_vacated\"]\n");
    out
}

fn entry(out: &mut String, key: &Key, name: &str, set: Option<&str>) {
    let shows_example = set.is_none() && key.shape.example.is_some();
    let mut meaning = key.meaning.trim().to_owned();
    if let Some(bounds) = bounds(key) {
        let _ = write!(meaning, " {bounds}.");
    }
    comment(out, &meaning);
    if shows_example {
        out.push_str("# For example:\n");
    }
    match (set, key.shape.example) {
        (Some(value), _) => {
            let _ = writeln!(out, "{name} = {value}");
        }
        (None, Some(example)) => {
            let _ = writeln!(out, "#{name} = {example}");
        }
        (None, None) if key.shape.preset == DefaultValue::Absent => {}
        (None, None) => {
            let _ = writeln!(out, "#{name} = {}", toml(key.shape.preset));
        }
    }
}

/// The reference page of the documentation.
pub fn page() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         Every key of `tavern.toml` with its type, default and meaning. This page is generated from the program. \
         `tavern check` shows the values of a \
         server and where each came from. `tavern check --example` prints a file with all keys.\n\n\
         Environment variables override the file, and flags override environment variables. For example, \
         `sessions.resume_ms` is the variable `TAVERN_SESSIONS_RESUME_MS` and the flag `--set \
         sessions.resume_ms=5000`. A list is written `a,b` in variables and flags. Times are in milliseconds \
         (`_ms`), sizes in bytes (`_bytes`).\n",
    );
    let mut section = None;
    for key in schema::keys() {
        let of = key.name.rsplit_once('.').map_or("", |(of, _)| of);
        if section != Some(of) {
            section = Some(of);
            let title = if of.is_empty() { "Top level".to_owned() } else { format!("`[{of}]`") };
            table(&mut out, &title, "");
        }
        row(&mut out, key, key.name);
    }
    table(
        &mut out,
        "`[kinds.NAME]`",
        "One table per kind of channel. `[kinds.default]` applies to all other kinds, and to keys that a kind does not set.",
    );
    KindConfig::KEYS.iter().for_each(|key| row(&mut out, key, key.name));
    table(
        &mut out,
        "`[channels.\"NAME\"]`",
        "Settings of single channels that differ from their kind. An empty value means that of the kind.",
    );
    ChannelConfig::KEYS.iter().for_each(|key| row(&mut out, key, key.name));
    out.push_str(
        "\nThese kinds and channels have defaults of their own:\n\n| table | key | value |\n|---|---|---|\n",
    );
    for (table, field, value) in BUILT_IN {
        let _ = writeln!(out, "| `[{}]` | `{field}` | `{value}` |", quoted(table));
    }
    for (end, field, value) in APP_KINDS {
        let _ = writeln!(out, "| `[kinds.pusher-ID{end}]` | `{field}` | `{value}` |");
    }
    table(
        &mut out,
        "`[[tokens.keys]]`",
        "Keys, or sets of keys. Tokens signed with them are accepted, in addition to those signed with `secret`. At most 32 tables.",
    );
    TokenKeyConfig::KEYS.iter().for_each(|key| row(&mut out, key, key.name));
    table(
        &mut out,
        "`[[pusher.apps]]`",
        "Apps whose clients and servers [speak the Pusher protocol](../guides/pusher.md). At most 32 tables. Dev mode has an app \
         with the id `1` and the key `dev`, unless there are others.",
    );
    PusherAppConfig::KEYS.iter().for_each(|key| row(&mut out, key, key.name));
    table(
        &mut out,
        "`[[pusher.apps.webhooks]]`",
        "Where events of the app above it are [posted](../guides/pusher.md#webhooks), signed with its secret. At most 8 tables for each app.",
    );
    PusherWebhookConfig::KEYS.iter().for_each(|key| row(&mut out, key, key.name));
    out
}

/// The help of a flag: what the key means, and its default.
pub fn help(name: &str) -> String {
    let Some(key) = schema::find(name) else { unreachable!("{name} is no key") };
    let meaning = key.meaning.trim().trim_end_matches('.');
    match key.shape.preset {
        DefaultValue::Text(text) if !text.is_empty() => format!("{meaning} [default: {text}]"),
        DefaultValue::Integer(number) => format!("{meaning} [default: {number}]"),
        _ => meaning.to_owned(),
    }
}

fn table(out: &mut String, title: &str, text: &str) {
    let _ = write!(out, "\n## {title}\n\n");
    if !text.is_empty() {
        let _ = write!(out, "{text}\n\n");
    }
    out.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
}

fn row(out: &mut String, key: &Key, name: &str) {
    let mut preset = match key.shape.preset {
        DefaultValue::Absent | DefaultValue::Text("") => String::new(),
        preset => format!("`{}`", toml(preset)),
    };
    if let (DefaultValue::Integer(number), Some(text)) = (key.shape.preset, readable(name, key.shape.preset))
    {
        preset = if number == 0 { preset } else { format!("{preset} ({text})") };
    }
    if let Some(dev) = key.shape.dev {
        let _ = write!(preset, "; dev mode: `{}`", toml(dev));
    }
    let mut meaning = key.meaning.trim().replace('|', "\\|");
    if let Some(example) = key.shape.example {
        let _ = write!(meaning, " Example: `{example}`.");
    }
    let _ = writeln!(out, "| `{name}` | {} | {preset} | {meaning} |", value(key, name));
}

/// The type of a value, with unit and bounds.
fn value(key: &Key, name: &str) -> String {
    match key.shape.kind {
        Type::Text => "text".to_owned(),
        Type::Secret => "text, never shown".to_owned(),
        Type::Link => "address".to_owned(),
        Type::Choice(words) => words.iter().map(|word| format!("`{word:?}`")).collect::<Vec<_>>().join(", "),
        Type::Flag => "`true`, `false`".to_owned(),
        Type::List => "list of texts".to_owned(),
        Type::Integer { min, max } => {
            let unit = match name {
                name if name.ends_with("_ms") => "milliseconds",
                name if name.ends_with("_bytes") => "bytes",
                _ => "number",
            };
            format!("{unit}, {min} to {max}")
        }
    }
}

fn bounds(key: &Key) -> Option<String> {
    match key.shape.kind {
        Type::Integer { min, max } => Some(format!("{min} to {max}")),
        _ => None,
    }
}

/// A default in a readable unit.
fn readable(name: &str, preset: DefaultValue) -> Option<String> {
    let DefaultValue::Integer(number) = preset else { return None };
    let units: &[(u64, &str)] = if name.ends_with("_ms") {
        &[(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")]
    } else if name.ends_with("bytes") {
        &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
    } else {
        return None;
    };
    let (size, unit) = units.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size))?;
    Some(format!("{} {unit}", number / size))
}

fn toml(preset: DefaultValue) -> String {
    match preset {
        DefaultValue::Absent => String::new(),
        DefaultValue::Text(text) => format!("{text:?}"),
        DefaultValue::Flag(flag) => flag.to_string(),
        DefaultValue::Integer(number) => number.to_string(),
        DefaultValue::List(items) => {
            format!("[{}]", items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", "))
        }
    }
}

/// `channels.lobby#puzzles` as it is written in the file.
fn quoted(table: &str) -> String {
    match table.split_once('.') {
        Some((of, name)) if name.contains('#') => format!("{of}.\"{name}\""),
        _ => table.to_owned(),
    }
}

/// Lines of at most `WIDTH` characters, each behind `# `.
fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(&line);
            out.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    out.push_str(&line);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What the packaged file sets.
    const PACKAGED: &[(&str, &str)] =
        &[("listen", "\"127.0.0.1:7400\""), ("resp", "\"127.0.0.1:7401\""), ("data", "\"/var/lib/tavern\"")];

    /// With `TAVERN_WRITE=1` the files are written instead.
    fn check(path: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        if std::env::var_os("TAVERN_WRITE").is_some() {
            std::fs::write(path, text).unwrap();
            return;
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{} differs from the schema; write it with: TAVERN_WRITE=1 cargo test -p tavern --lib config::example",
            path.display()
        );
    }

    #[test]
    fn packaged_file_is_the_example() {
        check("packaging/tavern.toml", &file(PACKAGED));
    }

    #[test]
    fn reference_page_matches_the_schema() {
        check("docs/reference/configuration.md", &page());
    }

    #[test]
    fn example_has_every_key_and_is_valid_with_all_of_them() {
        let text = file(&[]);
        for key in schema::keys().filter(|key| key.shape.kind != Type::Secret) {
            let name = key.name.rsplit('.').next().unwrap();
            let derived = key.shape.preset == DefaultValue::Absent && key.shape.example.is_none();
            assert!(derived || text.contains(&format!("\n#{name} = ")), "{}", key.name);
        }
        let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ") && *line != "#";
        let all: String = text.lines().filter(is_key).map(|line| format!("{}\n", &line[1..])).collect();
        let (given, errors) = crate::config::layer::read_file("example", &all);
        assert!(errors.is_empty(), "{:?}", errors.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(given.len() > 80);
    }

    #[test]
    fn defaults_have_readable_units() {
        assert_eq!(readable("a_ms", DefaultValue::Integer(15_000)).as_deref(), Some("15 s"));
        assert_eq!(readable("a_ms", DefaultValue::Integer(604_800_000)).as_deref(), Some("7 d"));
        assert_eq!(readable("a_bytes", DefaultValue::Integer(65_536)).as_deref(), Some("64 KiB"));
        assert_eq!(readable("a_ms", DefaultValue::Integer(250)), None);
        assert_eq!(readable("count", DefaultValue::Integer(1_000)), None);
    }
}
