//! The commands that need no running server.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// Runs `tavern` in a folder, with a clean environment.
fn tavern(folder: &Path, environment: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).envs(environment.iter().copied()).args(args).output().unwrap()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Creates an empty store, as the first start of a server does.
fn make_store(data: &str) {
    let timeout = std::time::Duration::from_secs(10);
    let clock = std::sync::Arc::new(tavern_store::SystemClock);
    drop(tavern_engines::open_client(&format!("sqlite:{data}"), clock, timeout).unwrap());
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", err(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The claims of a token, read without checking it.
fn claims(token: &str) -> Value {
    use base64::Engine;
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn token_prints_the_token_alone() {
    let folder = folder();
    let args = ["token", "--user", "ann", "--name", "Ann", "--ttl", "2h", "--allow", "game#*=subscribe,join"];
    let text = out(&tavern(folder.path(), &[("TAVERN_SECRET", SECRET)], &args));
    assert_eq!(text.lines().count(), 1);
    let claims = claims(text.trim());
    assert_eq!(claims["sub"], "ann");
    assert_eq!(claims["name"], "Ann");
    assert_eq!(claims["allow"]["game#*"], serde_json::json!(["subscribe", "join"]));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 7_190..now + 7_210).contains(&claims["exp"].as_u64().unwrap()));
}

#[test]
fn token_takes_the_secret_of_a_dev_folder() {
    let folder = folder();
    let refused = tavern(folder.path(), &[], &["token", "--user", "ann"]);
    assert!(!refused.status.success());
    assert!(err(&refused).contains("--secret"), "{}", err(&refused));
    std::fs::create_dir(folder.path().join("tavern-data")).unwrap();
    std::fs::write(folder.path().join("tavern-data/dev-secret"), SECRET).unwrap();
    let from_folder = out(&tavern(folder.path(), &[], &["token", "--user", "ann"]));
    assert_eq!(claims(&from_folder)["sub"], "ann");
}

#[test]
fn token_refuses_invalid_arguments() {
    let folder = folder();
    for args in [
        &["token"][..],
        &["token", "--user", "ann", "--allow", "game#*=fly"],
        &["token", "--user", "ann", "--ttl", "soon"],
        &["token", "--user", ""],
    ] {
        let output = tavern(folder.path(), &[("TAVERN_SECRET", SECRET)], args);
        assert!(!output.status.success(), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn keys_are_created_listed_and_revoked() {
    let folder = folder();
    let data = folder.path().join("data").display().to_string();
    make_store(&data);
    let run = |args: &[&str]| tavern(folder.path(), &[], &[args, &["--data", &data]].concat());
    let key = out(&run(&["key", "create", "--name", "ci", "--scopes", "publish,events"]));
    assert_eq!(key.lines().count(), 1);
    let id = key.trim().strip_prefix("tvk_").unwrap().split('_').next().unwrap().to_owned();
    let listed = out(&run(&["key", "list", "--json"]));
    let line: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(line["id"], id.as_str());
    assert_eq!(line["name"], "ci");
    assert_eq!(line["scopes"], serde_json::json!(["publish", "events"]));
    assert_eq!(line["revoked_at"], Value::Null);
    assert!(!listed.contains(key.trim()), "the key itself is not stored");
    assert!(run(&["key", "revoke", &id]).status.success());
    let line: Value = serde_json::from_str(out(&run(&["key", "list", "--json"])).trim()).unwrap();
    assert!(line["revoked_at"].is_u64());
    assert!(out(&run(&["key", "list"])).contains(&id));
    assert!(!run(&["key", "revoke", "nothing"]).status.success());
    assert!(!run(&["key", "create", "--name", "ci", "--scopes", "fly"]).status.success());
}

#[test]
fn commands_on_a_store_that_does_not_exist_create_nothing() {
    let folder = folder();
    for args in [
        &["key", "create", "--name", "ci", "--scopes", "publish"][..],
        &["key", "list"],
        &["key", "revoke", "abc"],
        &["export"],
    ] {
        let output = tavern(folder.path(), &[], &[args, &["--data", "typo"]].concat());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(err(&output).contains("no Tavern store exists in typo"), "{args:?}: {}", err(&output));
        assert!(!folder.path().join("typo").exists(), "{args:?}");
    }
}

#[test]
fn check_shows_every_value_with_its_origin() {
    let folder = folder();
    std::fs::write(folder.path().join("tavern.toml"), "[sessions]\nresume_ms = 77\n").unwrap();
    let environment = [("TAVERN_SECRET", SECRET), ("TAVERN_NODES_LEASE_MS", "9000")];
    let args = ["check", "--listen", "127.0.0.1:9", "--set", "kinds.game.grace_ms=5"];
    let table = out(&tavern(folder.path(), &environment, &args));
    let cells = |key: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(key)).expect(key);
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(cells("listen"), ["listen", "127.0.0.1:9", "--listen"]);
    assert_eq!(cells("sessions.resume_ms"), ["sessions.resume_ms", "77", "tavern.toml:2"]);
    assert_eq!(cells("nodes.lease_ms"), ["nodes.lease_ms", "9000", "TAVERN_NODES_LEASE_MS"]);
    assert_eq!(cells("inbox.messages"), ["inbox.messages", "256", "default"]);
    assert_eq!(cells("kinds.game.grace_ms")[1], "5");
    assert_eq!(cells("secret"), ["secret", "(hidden)", "TAVERN_SECRET"]);
    assert!(!table.contains(SECRET));
    let json = out(&tavern(folder.path(), &environment, &["check", "--json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["valid"], true);
}

#[test]
fn check_reports_all_errors_with_their_locations() {
    let folder = folder();
    let text = "lisen = 1\n[kinds.game]\n  graec_ms = 5\n";
    std::fs::write(folder.path().join("tavern.toml"), text).unwrap();
    let output = tavern(folder.path(), &[("TAVERN_COLOUR", "red")], &["check"]);
    assert_eq!(output.status.code(), Some(1));
    let text = err(&output);
    for part in [
        "tavern.toml:1:1: unknown key \"lisen\"; did you mean \"listen\"?",
        "tavern.toml:3:3: unknown key \"graec_ms\" in [kinds.game]; did you mean \"grace_ms\"?",
        "warning: TAVERN_COLOUR: unknown environment variable, ignored",
        "openssl rand -hex 32",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let json = tavern(folder.path(), &[], &["check", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((json["valid"].as_bool(), json["errors"].as_array().unwrap().len()), (Some(false), 3));
}

#[test]
fn serve_needs_a_secret_and_dev_refuses_public_addresses() {
    let folder = folder();
    let serve = tavern(folder.path(), &[], &["serve"]);
    assert_eq!(serve.status.code(), Some(1));
    assert!(err(&serve).contains("openssl rand -hex 32"));
    let dev = tavern(folder.path(), &[], &["dev", "--listen", "0.0.0.0:0"]);
    assert_eq!(dev.status.code(), Some(1));
    assert!(err(&dev).contains("loopback"));
    assert!(!folder.path().join("tavern-data").exists(), "a refused start leaves nothing behind");
}

#[test]
fn doctor_checks_a_folder() {
    let folder = folder();
    let data = folder.path().join("data").display().to_string();
    let common = ["--data", &data, "--listen", "127.0.0.1:0", "--resp", "off"];
    let run = |args: &[&str]| tavern(folder.path(), &[("TAVERN_SECRET", SECRET)], &[args, &common].concat());
    let before = out(&run(&["doctor"]));
    assert!(before.contains("does not exist yet"), "{before}");
    assert!(!Path::new(&data).exists(), "a check creates nothing");
    make_store(&data);
    let after = out(&run(&["doctor"]));
    assert!(after.contains("wrote in"), "{after}");
    let bad = tavern(folder.path(), &[], &[&["doctor"][..], &common].concat());
    assert_eq!(bad.status.code(), Some(1));
}

#[test]
fn client_without_a_server_says_what_to_check() {
    let folder = folder();
    // A port that was free a moment ago and on which no server listens.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for args in [&["publish", "--url", &url, "game#1", "x"][..], &["subscribe", "--url", &url, "game#1"]] {
        let output = tavern(folder.path(), &[], args);
        assert_eq!(output.status.code(), Some(1));
        assert!(err(&output).contains("is a server running there?"), "{}", err(&output));
    }
}
