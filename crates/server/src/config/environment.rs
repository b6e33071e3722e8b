//! The environment and the flags as layers: `TAVERN_SESSIONS_RESUME_MS` is `sessions.resume_ms`, `--listen` is
//! `listen`, `--set key=value` is any key. Must hold: an unknown `TAVERN_` variable is an error, because a mistyped one would
//! be ignored and noticed too late.

use super::layer::{SetKey, read_text};
use super::origin::{ConfigError, ValueSource};
use super::schema;
use super::sections::{ConfigSection, KindConfig};

const PREFIX: &str = "TAVERN_";

/// Variables that are not keys of the configuration: the commands read them.
const OTHERS: [&str; 4] = ["TAVERN_CONFIG", "TAVERN_URL", "TAVERN_TOKEN", "TAVERN_KEY"];

/// A flag as it was given: its name, the key it sets, the text.
pub struct Flag {
    pub flag: String,
    pub key: String,
    pub text: String,
}

pub fn read_environment(
    variables: impl IntoIterator<Item = (String, String)>,
) -> (Vec<SetKey>, Vec<ConfigError>) {
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        if OTHERS.contains(&variable.as_str()) || belongs_to_an_orchestrator(rest) {
            continue;
        }
        let origin = ValueSource::Environment(variable.clone());
        let Some(name) = key_of(rest) else {
            let names = schema::keys().map(|key| key.name);
            let hint = match schema::nearest(&rest.to_lowercase().replace("__", "_"), names) {
                Some(meant) => format!("; did you mean {PREFIX}{}?", shout(meant)),
                None => String::new(),
            };
            errors.push(ConfigError::at(&origin, format!("this variable matches no key{hint}")));
            continue;
        };
        read(name, &text, origin, &mut given, &mut errors);
    }
    (given, errors)
}

pub fn read_flags(flags: impl IntoIterator<Item = Flag>) -> (Vec<SetKey>, Vec<ConfigError>) {
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for Flag { flag, key, text } in flags {
        let origin = ValueSource::Flag(flag);
        if schema::find(&key).is_none() {
            let hint = match schema::nearest(&key, schema::keys().map(|key| key.name)) {
                Some(meant) => format!("; did you mean \"{meant}\"?"),
                None => String::new(),
            };
            errors.push(ConfigError::at(&origin, format!("unknown key {key:?}{hint}")));
            continue;
        }
        read(key, &text, origin, &mut given, &mut errors);
    }
    (given, errors)
}

fn read(
    name: String,
    text: &str,
    origin: ValueSource,
    given: &mut Vec<SetKey>,
    errors: &mut Vec<ConfigError>,
) {
    let Some(key) = schema::find(&name) else { unreachable!("the name was found before") };
    match read_text(&name, key, text) {
        Ok(value) => given.push(SetKey { name, value, origin }),
        Err(message) => errors.push(ConfigError::at(&origin, message)),
    }
}

/// Kubernetes sets these in every pod when a service is called `tavern`.
fn belongs_to_an_orchestrator(rest: &str) -> bool {
    rest.starts_with("SERVICE_HOST")
        || rest.starts_with("SERVICE_PORT")
        || rest == "PORT"
        || rest.starts_with("PORT_")
}

fn shout(name: &str) -> String {
    name.to_uppercase().replace('.', "_")
}

fn key_of(rest: &str) -> Option<String> {
    if let Some(key) = schema::keys().find(|key| shout(key.name) == rest) {
        return Some(key.name.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("KINDS_") {
        // The field is the known end; what stands before it is the kind, which may hold underscores.
        let field = KindConfig::KEYS.iter().find(|key| rest.ends_with(&format!("_{}", shout(key.name))))?;
        let kind = rest[..rest.len() - field.name.len() - 1].to_lowercase();
        return Some(format!("kinds.{kind}.{}", field.name)).filter(|name| schema::find(name).is_some());
    }
    let (index, field) = rest.strip_prefix("TOKENS_KEYS_")?.split_once('_')?;
    Some(format!("tokens.keys.{index}.{}", field.to_lowercase())).filter(|name| schema::find(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variable: &str, expected: Result<&str, &str>) {
        let (given, errors) = read_environment([(variable.to_owned(), "1".to_owned())]);
        match expected {
            Ok("") => assert!(given.is_empty() && errors.is_empty(), "{variable}"),
            Ok(name) => assert_eq!(given[0].name, name),
            Err(message) => assert_eq!(errors[0].to_string(), message),
        }
    }

    #[test]
    fn every_key_has_a_variable() {
        for key in schema::keys() {
            assert_eq!(key_of(&shout(key.name)).as_deref(), Some(key.name));
        }
        check("TAVERN_SESSIONS_RESUME_MS", Ok("sessions.resume_ms"));
        check("TAVERN_KINDS_GAME_GRACE_MS", Ok("kinds.game.grace_ms"));
        check("TAVERN_KINDS_MY_GAME_ALLOW", Ok("kinds.my_game.allow"));
        check("TAVERN_TOKENS_KEYS_0_FILE", Ok("tokens.keys.0.file"));
        check("TAVERN_TOKEN", Ok(""));
        check("TAVERN_PORT_7400_TCP_ADDR", Ok(""));
        check("PATH", Ok(""));
        check(
            "TAVERN_LISTNE",
            Err("TAVERN_LISTNE: this variable matches no key; did you mean TAVERN_LISTEN?"),
        );
        check("TAVERN_COLOUR", Err("TAVERN_COLOUR: this variable matches no key"));
        check("TAVERN_KINDS_GAME_COLOUR", Err("TAVERN_KINDS_GAME_COLOUR: this variable matches no key"));
    }

    #[test]
    fn set_reaches_any_key() {
        let set = |key: &str, text: &str| Flag { flag: "--set".into(), key: key.into(), text: text.into() };
        let (given, errors) = read_flags([set("kinds.game.grace_ms", "5"), set("sesions.resume_ms", "1")]);
        assert_eq!(given[0].name, "kinds.game.grace_ms");
        assert_eq!(
            errors[0].to_string(),
            "--set: unknown key \"sesions.resume_ms\"; did you mean \"sessions.resume_ms\"?"
        );
    }
}
