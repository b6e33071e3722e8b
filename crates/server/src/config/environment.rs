//! The environment and the flags as layers: `TAVERN_SESSIONS_RESUME_MS` is `sessions.resume_ms`, `--listen` is
//! `listen`, `--set key=value` is any key. Must hold: an unknown `TAVERN_` variable is a warning, not an error: other
//! programs and Kubernetes set variables with this prefix too.

use super::layer::{SetKey, read_text};
use super::origin::{ConfigError, ValueSource};
use super::schema;
use super::sections::{ConfigSection, KindConfig};

const PREFIX: &str = "TAVERN_";

/// Variables that are not configuration keys: the commands read them.
const OTHERS: [&str; 4] = ["TAVERN_CONFIG", "TAVERN_URL", "TAVERN_TOKEN", "TAVERN_KEY"];

/// A flag on the command line: its name, the key it sets, its text.
pub struct Flag {
    pub flag: String,
    pub key: String,
    pub text: String,
}

/// What the environment sets, what is wrong with it, and which variables are unknown.
#[derive(Default)]
pub struct EnvironmentLayer {
    pub given: Vec<SetKey>,
    pub errors: Vec<ConfigError>,
    pub warnings: Vec<String>,
}

pub fn read_environment(variables: impl IntoIterator<Item = (String, String)>) -> EnvironmentLayer {
    let mut layer = EnvironmentLayer::default();
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(PREFIX) else { continue };
        if OTHERS.contains(&variable.as_str()) {
            continue;
        }
        if let Some(name) = key_of(rest) {
            let origin = ValueSource::Environment(variable);
            read(name, &text, origin, &mut layer.given, &mut layer.errors);
        } else if !is_kubernetes_service(rest, &text) {
            let hint = match nearest_variable(rest) {
                Some(meant) => format!("; did you mean {meant}?"),
                None => String::new(),
            };
            layer.warnings.push(format!("{variable}: unknown environment variable, ignored{hint}"));
        }
    }
    layer
}

pub fn read_flags(flags: impl IntoIterator<Item = Flag>) -> (Vec<SetKey>, Vec<ConfigError>) {
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for Flag { flag, key, text } in flags {
        let origin = ValueSource::Flag(flag);
        if schema::find(&key).is_none() {
            let hint = match tavern_wire::nearest(&key, schema::keys().map(|key| key.name)) {
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

/// The variables that Kubernetes sets in every pod for a service whose name starts with `tavern`:
/// `TAVERN_SERVICE_HOST`, `TAVERN_SERVICE_PORT_HTTP`, `TAVERN_PORT=tcp://…`, `TAVERN_REDIS_PORT_6379_TCP_ADDR`.
fn is_kubernetes_service(rest: &str, text: &str) -> bool {
    // The service is called `tavern` or `tavern-…`, so a part of its name may come first.
    let rest = format!("_{rest}");
    let port = || ["tcp://", "udp://", "sctp://"].iter().any(|scheme| text.starts_with(scheme));
    let port_number = || {
        rest.match_indices("_PORT_").any(|(at, _)| {
            let mut parts = rest[at + "_PORT_".len()..].split('_');
            let number = parts.next().is_some_and(|number| number.parse::<u16>().is_ok());
            number && parts.next().is_some_and(|protocol| ["TCP", "UDP", "SCTP"].contains(&protocol))
        })
    };
    rest.ends_with("_SERVICE_HOST")
        || rest.ends_with("_SERVICE_PORT")
        || rest.contains("_SERVICE_PORT_")
        || (rest.ends_with("_PORT") && port())
        || port_number()
}

/// The variable that was probably meant.
fn nearest_variable(rest: &str) -> Option<String> {
    let written = rest.to_lowercase().replace("__", "_");
    // Common names in other servers.
    let meant = match &*written {
        "port" | "host" | "address" => "listen",
        // Keys are compared as variables are written: without the dot.
        written => {
            let names: Vec<(String, &str)> =
                schema::keys().map(|key| (key.name.replace('.', "_"), key.name)).collect();
            let meant = tavern_wire::nearest(written, names.iter().map(|(flat, _)| &**flat))?;
            names.iter().find(|(flat, _)| flat == meant)?.1
        }
    };
    Some(format!("{PREFIX}{}", shout(meant)))
}

fn shout(name: &str) -> String {
    name.to_uppercase().replace('.', "_")
}

fn key_of(rest: &str) -> Option<String> {
    if let Some(key) = schema::keys().find(|key| shout(key.name) == rest) {
        return Some(key.name.to_owned());
    }
    if let Some(rest) = rest.strip_prefix("KINDS_") {
        // The field is the known suffix; the rest is the kind, which may contain underscores.
        let field = KindConfig::KEYS.iter().find(|key| rest.ends_with(&format!("_{}", shout(key.name))))?;
        let kind = rest[..rest.len() - field.name.len() - 1].to_lowercase();
        return Some(format!("kinds.{kind}.{}", field.name)).filter(|name| schema::find(name).is_some());
    }
    let lists = [("TOKENS_KEYS_", "tokens.keys"), ("PUSHER_APPS_", "pusher.apps")];
    let (list, rest) = lists.iter().find_map(|(prefix, list)| Some((list, rest.strip_prefix(prefix)?)))?;
    let (index, field) = rest.split_once('_')?;
    let mut field = field.to_lowercase();
    if let Some((webhook, of_webhook)) = field.strip_prefix("webhooks_").and_then(|rest| rest.split_once('_'))
    {
        field = format!("webhooks.{webhook}.{of_webhook}");
    }
    Some(format!("{list}.{index}.{field}")).filter(|name| schema::find(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variable: &str, expected: &str) {
        let layer = read_environment([(variable.to_owned(), "1".to_owned())]);
        assert_eq!(layer.given.first().map_or("", |key| &key.name), expected, "{variable}");
        assert!(layer.errors.is_empty() && layer.warnings.is_empty(), "{variable}");
    }

    fn check_warning(variable: &str, text: &str, expected: &str) {
        let layer = read_environment([(variable.to_owned(), text.to_owned())]);
        assert!(layer.given.is_empty() && layer.errors.is_empty(), "{variable}");
        assert_eq!(layer.warnings.join("\n"), expected, "{variable}");
    }

    #[test]
    fn every_key_has_a_variable() {
        for key in schema::keys() {
            assert_eq!(key_of(&shout(key.name)).as_deref(), Some(key.name));
        }
        check("TAVERN_SESSIONS_RESUME_MS", "sessions.resume_ms");
        check("TAVERN_KINDS_GAME_GRACE_MS", "kinds.game.grace_ms");
        check("TAVERN_KINDS_MY_GAME_ALLOW", "kinds.my_game.allow");
        check("TAVERN_TOKENS_KEYS_0_FILE", "tokens.keys.0.file");
        check("TAVERN_PUSHER_APPS_0_FORMER_SECRET", "pusher.apps.0.former_secret");
        check("TAVERN_PUSHER_APPS_0_WEBHOOKS_1_CHANNEL_PREFIX", "pusher.apps.0.webhooks.1.channel_prefix");
        check("TAVERN_TOKEN", "");
        check("PATH", "");
    }

    #[test]
    fn unknown_variables_are_warnings_with_a_suggestion() {
        for (variable, meant) in [
            ("TAVERN_LISTNE", "; did you mean TAVERN_LISTEN?"),
            ("TAVERN_SESSIONS_RESUME", "; did you mean TAVERN_SESSIONS_RESUME_MS?"),
            ("TAVERN_PORT", "; did you mean TAVERN_LISTEN?"),
            ("TAVERN_COLOUR", ""),
            ("TAVERN_KINDS_GAME_COLOUR", ""),
        ] {
            let expected = format!("{variable}: unknown environment variable, ignored{meant}");
            check_warning(variable, "7400", &expected);
        }
    }

    #[test]
    fn variables_of_kubernetes_services_are_ignored() {
        for (variable, text) in [
            ("TAVERN_SERVICE_HOST", "10.96.0.12"),
            ("TAVERN_SERVICE_PORT", "7400"),
            ("TAVERN_SERVICE_PORT_HTTP", "7400"),
            ("TAVERN_PORT", "tcp://10.96.0.12:7400"),
            ("TAVERN_PORT_7400_TCP", "tcp://10.96.0.12:7400"),
            ("TAVERN_PORT_7400_TCP_PROTO", "tcp"),
            ("TAVERN_PORT_7400_TCP_PORT", "7400"),
            ("TAVERN_PORT_7400_TCP_ADDR", "10.96.0.12"),
            ("TAVERN_REDIS_SERVICE_HOST", "10.96.0.13"),
            ("TAVERN_REDIS_PORT", "tcp://10.96.0.13:6379"),
            ("TAVERN_REDIS_PORT_6379_TCP_ADDR", "10.96.0.13"),
        ] {
            check_warning(variable, text, "");
        }
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
