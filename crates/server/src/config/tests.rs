//! The whole configuration, from small files, variables and flags.

use super::*;
use tavern_domain::Verbs;

fn flags(flags: &[(&str, &str)]) -> Vec<Flag> {
    let flag = |(key, text): &(&str, &str)| Flag {
        flag: format!("--{key}"),
        key: (*key).to_owned(),
        text: (*text).to_owned(),
    };
    flags.iter().map(flag).collect()
}

fn load(mode: ServerMode, text: &str, environment: &[(&str, &str)], given: &[(&str, &str)]) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(FILE);
    std::fs::write(&file, text).unwrap();
    let environment = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    Config::load(Sources { mode, file: Some(file), environment, flags: flags(given), for_server: true })
}

fn dev(text: &str) -> Config {
    load(ServerMode::Dev, text, &[], &[]).valid().unwrap()
}

const LONG: &str = "0123456789abcdef0123456789abcdef";

fn serve_errors(given: &[(&str, &str)]) -> Vec<String> {
    let loaded = load(ServerMode::Serve, "", &[], given);
    loaded.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn stronger_layer_wins_and_is_shown_as_origin() {
    let text = "listen = \"127.0.0.1:1\"\n[sessions]\nresume_ms = 1\nheartbeat_ms = 200\n";
    let environment = [("TAVERN_LISTEN", "127.0.0.1:2"), ("TAVERN_SESSIONS_RESUME_MS", "2")];
    let loaded = load(ServerMode::Dev, text, &environment, &[("listen", "127.0.0.1:3")]);
    let config = loaded.valid().unwrap();
    assert_eq!(config.listen.port(), 3);
    assert_eq!(config.origin("listen"), ValueSource::Flag("--listen".into()));
    assert_eq!(config.sessions.resume_ms, 2);
    assert_eq!(config.origin("sessions.resume_ms").to_string(), "TAVERN_SESSIONS_RESUME_MS");
    assert_eq!(config.sessions.heartbeat_ms, 200);
    assert!(config.origin("sessions.heartbeat_ms").to_string().ends_with("tavern.toml:4"));
    assert_eq!(config.origin("sessions.drain_ms"), ValueSource::Default);
}

#[test]
fn every_key_is_shown_once() {
    let config = dev("");
    for key in schema::keys() {
        let count = config.entries().iter().filter(|entry| entry.key == key.name).count();
        assert_eq!(count, 1, "{}", key.name);
    }
}

#[test]
fn empty_dev_configuration_allows_everything_on_loopback() {
    let config = dev("");
    assert_eq!(config.kind("anything").allow, Verbs::ALL);
    assert_eq!(config.origin("kinds.default.allow"), ValueSource::DevMode);
    assert_eq!(config.limits.commands_per_second, 0);
    assert!(config.events.allow_http && config.events.allow_private);
    assert_eq!(config.resp.unwrap().port(), 7401);
    assert_eq!(config.store, "sqlite:./tavern-data");
    assert_eq!(config.bus, "local");
    assert_eq!(config.limits.json_frame_bytes, 65_536 + 4_096);
    let outside = load(ServerMode::Dev, "", &[], &[("listen", "0.0.0.0:7400"), ("resp", "10.0.0.1:7401")]);
    assert_eq!(outside.errors.len(), 2);
}

#[test]
fn serve_denies_by_default_and_needs_a_secret() {
    assert!(serve_errors(&[])[0].contains("openssl rand -hex 32"));
    assert_eq!(serve_errors(&[("secret", LONG)]), [""; 0]);
    assert!(serve_errors(&[("secret", "short")])[0].contains("has 5 bytes"));
    let config = load(ServerMode::Serve, "", &[], &[("secret", LONG)]).valid().unwrap();
    assert_eq!(config.kind("game").allow, Verbs::NONE);
    assert_eq!(config.limits.commands_per_second, 100);
    assert!(!format!("{config:?} {:?}", config.entries()).contains(LONG));
}

#[test]
fn kinds_inherit_from_default() {
    let config = dev("[kinds.default]\nallow = [\"join\"]\ngrace_ms = 7\n[kinds.game]\ngrace_ms = 0\n");
    assert_eq!(config.kind("game").grace_ms, 0);
    assert_eq!(config.kind("game").allow, Verbs::NONE.with(tavern_domain::Verb::Join));
    assert_eq!(config.kind("lobby").grace_ms, 7);
    assert_eq!(config.origin("kinds.game.allow").to_string(), "derived: kinds.default");
}

#[test]
fn built_in_activities_can_be_replaced() {
    let config = dev("[kinds.quiz]\nactivity = \"guessing\"\n[kinds.game]\narrival_change = \"\"\n\
                      [channels.\"lobby#puzzles\"]\nactivity = \"puzzling\"\n");
    assert_eq!(config.kind("activegame").activity, "playing");
    assert_eq!(config.kind("activegame").arrival_change, "started_game");
    assert_eq!(config.kind("activegame").departure_change, "ended_game");
    assert_eq!(
        (&*config.kind("game").activity, &*config.kind("game").arrival_change),
        ("in_game_channel", "")
    );
    assert_eq!((&*config.kind("quiz").activity, &*config.kind("quiz").arrival_change), ("guessing", ""));
    assert_eq!(config.kind("lobby").activity, "online");
    let puzzles = &config.channels["lobby#puzzles"];
    assert_eq!((&*puzzles.activity, &*puzzles.arrival_change), ("puzzling", "solving_puzzles"));
    let wrong = load(ServerMode::Dev, "[channels.lobby]\nactivity = \"x\"\n", &[], &[]);
    assert!(wrong.errors[0].to_string().contains("\"lobby\" is not a channel"), "{}", wrong.errors[0]);
}

#[test]
fn data_and_store_set_the_same_folder() {
    let store = |text: &str, given: &[(&str, &str)]| {
        let loaded = load(ServerMode::Dev, text, &[], given);
        (loaded.config.store.clone(), loaded.config.data.clone(), loaded.errors.len())
    };
    assert_eq!(store("", &[("data", "/d")]), ("sqlite:/d".into(), "/d".into(), 0));
    assert_eq!(store("", &[("store", "sqlite:/s")]), ("sqlite:/s".into(), "/s".into(), 0));
    assert_eq!(store("store = \"sqlite:/s\"", &[("data", "/d")]), ("sqlite:/d".into(), "/d".into(), 0));
    assert_eq!(store("data = \"/d\"", &[("store", "sqlite:/s")]), ("sqlite:/s".into(), "/s".into(), 0));
    assert_eq!(store("", &[("store", "sqlite:/s"), ("data", "/d")]).2, 1);
    assert_eq!(store("", &[("store", "mysql://x")]).2, 1);
    assert_eq!(store("", &[("store", "postgres://x/y"), ("data", "/d")]).2, 0);
    assert_eq!(store("", &[("store", "postgres://x/y"), ("bus", "nats://z"), ("data", "/d")]).2, 0);
}

#[test]
fn a_store_on_a_server_is_also_the_bus() {
    let bus = |given: &[(&str, &str)]| load(ServerMode::Dev, "", &[], given).config.bus;
    assert_eq!(bus(&[("store", "postgres://x/y?schema=z")]), "postgres://x/y?schema=z");
    assert_eq!(bus(&[("store", "redis://x")]), "redis://x?prefix=tavern");
    assert_eq!(bus(&[("store", "postgres://x/y"), ("bus", "local")]), "local");
    assert_eq!(bus(&[("bus", "postgresql://x/y")]), "postgresql://x/y");
    assert_eq!(bus(&[]), "local");
}

#[test]
fn all_errors_are_reported_together() {
    let errors = serve_errors(&[
        ("events.low_bytes", "2000000000"),
        ("tls_cert", "a.pem"),
        ("kinds.user.allow", "publish"),
        ("kinds.game.allow", "fly"),
        ("node", "a b"),
        ("origins", "example.com"),
        ("trusted_proxies", "10.0.0.1/8"),
        ("authorize.url", "ftp://x"),
        ("log_level", "tavern=loud"),
        ("metrics.statsd", "8125"),
        ("listen", "here"),
        ("resume", "1"),
    ]);
    // Eleven wrong values, one unknown key, and the missing secret.
    assert_eq!(errors.len(), 13, "{errors:#?}");
    assert!(errors.iter().any(|error| error
        == "--events.low_bytes: events.low_bytes (2000000000) must be below events.max_bytes (1073741824)"));
}

#[test]
fn named_file_must_exist() {
    let sources = |file: &str| Sources {
        mode: ServerMode::Dev,
        file: Some(file.into()),
        environment: Vec::new(),
        flags: Vec::new(),
        for_server: true,
    };
    let error = Config::load(sources("/nowhere/tavern.toml")).valid().unwrap_err().to_string();
    assert!(error.contains("/nowhere"));
}
