//! `tavern dev`: a server with no configuration, and the banner it prints when it is ready. The secrets are kept in the
//! data folder, so the printed token and key stay valid after a restart.

use super::options::ConfigOptions;
use super::table::{self, Colour, paint};
use super::{print_line, token};
use crate::config::{Config, SecretText, ServerMode};
use anyhow::Context;
use std::collections::BTreeMap;
use std::process::ExitCode;
use tavern_domain::Verb;

#[derive(clap::Args)]
pub struct DevArgs {
    #[command(flatten)]
    options: ConfigOptions,
}

/// The user of the token that is printed.
const USER: &str = "ann";
const TOKEN_TTL_MS: u64 = 30 * 86_400_000;

pub fn run(args: DevArgs) -> anyhow::Result<ExitCode> {
    let config = args.options.load(ServerMode::Dev, true)?.valid()?;
    crate::boot::run(config, print_banner)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the banner. A closed stdout must not end the server.
fn print_banner(config: &Config) {
    if let Err(error) = banner_of(config).and_then(|text| print_line(&text)) {
        tracing::warn!(%error, "cannot print the banner");
    }
}

/// The banner with a fresh token and the folder's key. `config.listen` and `config.resp` must be the addresses that
/// were bound.
fn banner_of(config: &Config) -> anyhow::Result<String> {
    let everything = Verb::ALL.map(|verb| verb.as_str().to_owned()).to_vec();
    let allow = BTreeMap::from([("*".to_owned(), everything)]);
    let secret = config.secret.as_ref().context("dev mode has a secret")?;
    let token =
        token::make(secret, Some(USER.into()), Some("Ann".into()), TOKEN_TTL_MS, TOKEN_TTL_MS, allow)?;
    let key = config.admin_key.as_ref().context("dev mode has an API key")?;
    Ok(banner(config, &token, key.expose()))
}

/// Addresses, a token, a key, and commands to copy.
pub fn banner(config: &Config, token: &str, key: &str) -> String {
    coloured_banner(config, token, key, table::wants_colour())
}

fn coloured_banner(config: &Config, token: &str, key: &str, colour: bool) -> String {
    let secure = if config.tls.is_some() { "s" } else { "" };
    let web = format!("http{secure}://{}", config.listen);
    let socket = format!("ws{secure}://{}/v1/connect", config.listen);
    let dim = |text: &str| paint(text, Colour::Dim, colour);
    let line = |name: &str, value: String, note: &str| vec![format!("  {name}"), value, dim(note)];
    let mut places = vec![
        // The key is in the fragment: browsers do not send that part.
        line("Dashboard", format!("{web}/#key={}", encoded(key)), "open it in a browser"),
        line(
            "Demo",
            format!("{web}/demo#key={}", encoded(key)),
            "a game lobby to try; the documentation is at /docs",
        ),
        line("HTTP", web.clone(), "REST, SSE, long-poll"),
        line("WebSocket", format!("{socket}?user={USER}"), "any user name works in dev mode"),
    ];
    if let Some(resp) = config.resp {
        places.push(line("Redis", format!("redis{secure}://{resp}"), "redis-cli or any Redis client"));
    }
    places.push(line("Data", config.data.display().to_string(), "delete it to start again"));
    let mut tries = vec![
        ("subscribe", "tavern subscribe 'game#1'".to_owned() + &url_flag(&web)),
        ("publish", format!("tavern publish 'game#1' '{{\"hello\":\"world\"}}'{}", url_flag(&web))),
        (
            "REST",
            format!(
                "curl -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' \\\n            \
                 -d '{{\"data\":{{\"hello\":\"world\"}}}}' {web}/v1/channels/game%231/messages"
            ),
        ),
    ];
    if let Some(resp) = config.resp {
        let tls = if config.tls.is_some() { " --tls" } else { "" };
        tries.push((
            "Redis",
            format!("redis-cli -h {} -p {}{tls} SUBSCRIBE 'game#1'", resp.ip(), resp.port()),
        ));
    }
    tries.push((
        "WebSocket",
        format!(
            "websocat '{socket}?user={USER}'\n            \
             then type: {{\"id\":1,\"op\":\"subscribe\",\"channel\":\"game#1\"}}"
        ),
    ));
    tries.push((
        "browser",
        format!(
            "s = new WebSocket('{socket}?user={USER}'); s.onmessage = e => console.log(e.data)\n            \
             s.send('{{\"id\":1,\"op\":\"subscribe\",\"channel\":\"game#1\"}}')"
        ),
    ));
    let title = paint(&format!("Tavern {}", env!("CARGO_PKG_VERSION")), Colour::Bold, colour);
    let mut text = format!("\n  {title}  dev mode: everything is allowed, on this machine only\n\n");
    text.push_str(&table::columns(&places));
    text.push_str(&format!(
        "\n  Token    {}\n           {token}\n",
        dim("for user ann, every right, 30 days")
    ));
    text.push_str(&format!("  API key  {}\n           {key}\n", dim("every scope")));
    for app in config.pusher_apps.iter().map(|table| &table.app) {
        let secret = app.secret.as_ref().map_or("in its secret_file", SecretText::expose);
        let note = dim("an app for clients of Pusher");
        text.push_str(&format!(
            "  Pusher   {note}\n           id {}, key {}, secret {secret}\n",
            app.id, app.key
        ));
    }
    text.push_str(&format!("\n  {}\n", paint("Try it", Colour::Bold, colour)));
    for (name, command) in tries {
        text.push_str(&format!("  {name:<9} {command}\n"));
    }
    text
}

/// Percent-encoded for the fragment of a URL; a key from the configuration may contain any character.
fn encoded(key: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let one = |byte: u8| if plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    key.bytes().map(one).collect()
}

/// The commands find the default address by themselves.
fn url_flag(web: &str) -> String {
    if web == "http://127.0.0.1:7400" { String::new() } else { format!(" --url {web}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Sources, dev};

    fn config(folder: &std::path::Path) -> Config {
        let sources = Sources {
            mode: ServerMode::Dev,
            file: None,
            environment: vec![("TAVERN_DATA".into(), folder.display().to_string())],
            flags: Vec::new(),
            for_server: true,
        };
        let mut config = Config::load(sources).valid().unwrap();
        dev::provide(&mut config).unwrap();
        config
    }

    #[test]
    fn banner_has_addresses_credentials_and_commands() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        let text = banner_of(&config).unwrap();
        let key = config.admin_key.as_ref().unwrap().expose();
        for part in [
            &format!("http://127.0.0.1:7400/#key={key}"),
            &format!("http://127.0.0.1:7400/demo#key={key}"),
            "ws://127.0.0.1:7400/v1/connect?user=ann",
            "redis-cli -h 127.0.0.1 -p 7401",
            "id 1, key dev, secret ",
            "eyJ",
            &format!("Authorization: Bearer {key}"),
            "/v1/channels/game%231/messages",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn keys_are_escaped_in_the_dashboard_url() {
        assert_eq!(encoded("tvk_a-1"), "tvk_a-1");
        assert_eq!(encoded("a b&ü"), "a%20b%26%C3%BC");
    }

    #[test]
    fn banner_is_coloured_on_request_only() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path());
        assert!(!coloured_banner(&config, "t", "k", false).contains('\x1b'));
        assert!(coloured_banner(&config, "t", "k", true).contains('\x1b'));
    }
}
