//! The tables whose names the operator chooses: `[kinds.NAME]`, `[channels."NAME"]`, `[[tokens.keys]]`, `[[pusher.apps]]`.
//! Must hold: a kind inherits from `[kinds.default]` what neither its table nor its built-in defaults set.

use super::built_in::{BUILT_IN, built_in};
use super::layer;
use super::lists::{PusherAppConfig, PusherAppTable, PusherWebhookConfig, TokenKeyConfig};
use super::schema;
use super::sections::{ChannelConfig, ConfigSection, KindConfig};
use super::values::{Values, preset, shown};
use super::{ConfigValue, ServerMode, ValueSource};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const KINDS: &str = "kinds.";
pub(super) const CHANNELS: &str = "channels.";
pub(super) const TOKENS: &str = "tokens.keys.";
pub(super) const APPS: &str = "pusher.apps.";
const DEFAULT: &str = "default";
/// What a webhook of a Pusher app may be posted.
const WEBHOOK_EVENTS: [&str; 7] = [
    "channel_occupied",
    "channel_vacated",
    "member_added",
    "member_removed",
    "client_event",
    "cache_miss",
    "subscription_count",
];
/// The ends of the kinds of a Pusher app.
const APP_ENDS: [&str; 4] = ["", "-cache", "-user", "-occupied"];
/// The maximum number of tables.
const TABLES_MAX: usize = 1_024;

/// The built-in kinds, `default`, those of the Pusher apps, and those that are configured.
pub(super) fn kinds(values: &mut Values, apps: &[PusherAppTable]) -> BTreeMap<String, KindConfig> {
    let written = written(values, KINDS);
    let mut names = named(&written, KINDS);
    names.insert(DEFAULT.to_owned());
    let ends: BTreeMap<String, &str> = apps
        .iter()
        .flat_map(|table| APP_ENDS.map(|end| (format!("pusher-{}{end}", table.app.id), end)))
        .collect();
    names.extend(ends.keys().cloned());
    let read = |name: String| {
        // Only what is configured, or differs from [kinds.default], is shown.
        let shows = name == DEFAULT || written.contains(&name);
        let end = ends.get(&name).copied();
        let kind = KindConfig::from_values(|field| take(values, KINDS, (&name, end), field, shows));
        (name, kind)
    };
    names.into_iter().map(read).collect()
}

/// The built-in channels and those that are configured.
pub(super) fn channels(values: &mut Values) -> BTreeMap<String, ChannelConfig> {
    let written = written(values, CHANNELS);
    let names = named(&written, CHANNELS);
    let read = |name: String| {
        let channel = ChannelConfig::from_values(|field| {
            take(values, CHANNELS, (&name, None), field, written.contains(&name))
        });
        (name, channel)
    };
    names.into_iter().map(read).collect()
}

/// The numbers of the tables of a list that are configured.
fn indices(values: &mut Values, prefix: &str) -> Vec<String> {
    let index = |name: &str| Some(name.strip_prefix(prefix)?.split_once('.')?.0.to_owned());
    let indices: BTreeSet<String> = values.given_names().filter_map(index).collect();
    let mut indices: Vec<String> = indices.into_iter().collect();
    indices.sort_by_key(|index| index.parse::<u32>().unwrap_or(u32::MAX));
    indices
}

/// The Pusher apps. In dev mode there is one without any configuration; its secret is kept in the data folder.
pub(super) fn pusher_apps(values: &mut Values) -> Vec<PusherAppTable> {
    let mut apps: Vec<PusherAppTable> = Vec::new();
    for index in indices(values, APPS) {
        let full = |field: &str| format!("{APPS}{index}.{field}");
        let app = PusherAppConfig::from_values(|field| values.take(&full(field)));
        let webhooks = webhooks(values, &full("webhooks."));
        match app_problem(&app, &apps) {
            Some((field, problem)) => values.fail(&full(field), format!("{} {problem}", full(field))),
            None => apps.push(PusherAppTable { app, webhooks }),
        }
    }
    if apps.is_empty() && values.mode == ServerMode::Dev {
        let preset = |field: &str| {
            let key = PusherAppConfig::KEYS.iter().find(|key| key.name == field)?;
            match field {
                "id" => Some(ConfigValue::Text("1".to_owned())),
                "key" => Some(ConfigValue::Text("dev".to_owned())),
                _ => preset(&key.shape, ServerMode::Dev).0,
            }
        };
        apps.push(PusherAppTable { app: PusherAppConfig::from_values(preset), webhooks: Vec::new() });
    }
    apps
}

fn webhooks(values: &mut Values, prefix: &str) -> Vec<PusherWebhookConfig> {
    let mut webhooks: Vec<PusherWebhookConfig> = Vec::new();
    for index in indices(values, prefix) {
        let full = |field: &str| format!("{prefix}{index}.{field}");
        let webhook = PusherWebhookConfig::from_values(|field| values.take(&full(field)));
        let unknown = webhook.events.iter().find(|name| !WEBHOOK_EVENTS.contains(&name.as_str()));
        if webhooks.iter().any(|other| other.url == webhook.url) {
            values
                .fail(&full("url"), format!("{} is the address of another webhook of this app", full("url")));
        } else if !super::checks::is_http(&webhook.url) {
            values.fail(&full("url"), format!("{} must be an https:// address", full("url")));
        } else if webhook.events.is_empty() || unknown.is_some() {
            let message = format!("{} must name some of: {}", full("events"), WEBHOOK_EVENTS.join(", "));
            values.fail(&full("events"), message);
        } else {
            webhooks.push(webhook);
        }
    }
    webhooks
}

/// What is wrong with a `[[pusher.apps]]`, and the field to change.
fn app_problem(app: &PusherAppConfig, others: &[PusherAppTable]) -> Option<(&'static str, &'static str)> {
    let in_id = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let in_key = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let has_file = !app.secret_file.as_os_str().is_empty();
    if !(1..=16).contains(&app.id.len()) || !app.id.bytes().all(in_id) {
        return Some(("id", "must be 1 to 16 lower-case letters, digits and _"));
    }
    if !(1..=64).contains(&app.key.len()) || !app.key.bytes().all(in_key) {
        return Some(("key", "must be 1 to 64 letters, digits and -_."));
    }
    if others.iter().any(|other| other.app.id == app.id) {
        return Some(("id", "is the id of another app"));
    }
    if others.iter().any(|other| other.app.key == app.key) {
        return Some(("key", "is the key of another app"));
    }
    match (&app.secret, has_file) {
        (None, false) => Some(("secret", "is missing: set it, or secret_file")),
        (Some(_), true) => Some(("secret_file", "is set together with secret: set one of them")),
        _ => None,
    }
}

pub(super) fn token_keys(values: &mut Values) -> Vec<TokenKeyConfig> {
    let mut keys = Vec::new();
    for index in indices(values, TOKENS) {
        let full = |field: &str| format!("{TOKENS}{index}.{field}");
        let key = TokenKeyConfig::from_values(|field| values.take(&full(field)));
        if let Some(problem) = problem(&key) {
            let names = ["jwks_url", "file", "algorithm", "kid", "jwks_private"].map(full);
            let present = names.into_iter().find(|name| values.given(name).is_some()).unwrap_or_default();
            values.fail(&present, format!("tokens.keys.{index} {problem}"));
            continue;
        }
        keys.push(key);
    }
    keys
}

/// What is wrong with a `[[tokens.keys]]`.
fn problem(key: &TokenKeyConfig) -> Option<&'static str> {
    let has_file = !key.file.as_os_str().is_empty();
    match &key.jwks_url {
        Some(_) if has_file || key.kid.is_some() => Some("has a jwks_url: remove file and kid"),
        Some(_) if key.algorithm == "HS256" => Some("cannot have HS256: the keys of a set are public"),
        Some(url) if !super::checks::is_http(url) => Some("needs an http:// or https:// address as jwks_url"),
        Some(_) => None,
        None if !has_file || key.algorithm.is_empty() => Some("needs an algorithm and a file, or a jwks_url"),
        None => None,
    }
}

/// The names of the tables below this prefix that are configured.
fn written(values: &mut Values, prefix: &str) -> BTreeSet<String> {
    let name = |full: &str| Some(full.strip_prefix(prefix)?.rsplit_once('.')?.0.to_owned());
    let written: BTreeSet<String> = values.given_names().filter_map(name).collect();
    if written.len() > TABLES_MAX {
        values.fail_general(format!("more than {TABLES_MAX} [{prefix}…] sections"));
    }
    written
}

/// The same with the built-in ones.
fn named(written: &BTreeSet<String>, prefix: &str) -> BTreeSet<String> {
    let built_in = BUILT_IN.iter().filter_map(|(table, ..)| table.strip_prefix(prefix));
    written.iter().cloned().chain(built_in.map(str::to_owned)).collect()
}

/// One field of a table: its own, the built-in one, that of `[kinds.default]`, or the default of the key.
fn take(
    values: &mut Values,
    prefix: &str,
    (name, app_end): (&str, Option<&str>),
    field: &str,
    shows: bool,
) -> Option<ConfigValue> {
    let full = format!("{prefix}{name}.{field}");
    let Some(key) = schema::find(&full) else { unreachable!("{full} is no key") };
    let table = format!("{prefix}{name}");
    let built_in = built_in(&table, field, app_end);
    let (value, origin, shows) = if let Some((value, origin)) = values.given(&full).cloned() {
        (Some(value), origin, true)
    } else if let Some(text) = built_in {
        let value = layer::read_text(&full, key, text);
        (Some(value.expect("built-in values are valid")), ValueSource::Default, true)
    } else if let Some((value, _)) = values.given(&format!("{prefix}{DEFAULT}.{field}")).cloned() {
        (Some(value), ValueSource::Derived("kinds.default".into()), shows)
    } else {
        let (value, origin) = preset(&key.shape, values.mode);
        (value, origin, shows)
    };
    if shows {
        values.show(&full, shown(key.shape.kind, value.as_ref()), origin);
    }
    value
}
