//! `tavern publish`, `subscribe` and `local` on a folder, without a server, as real processes.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The timeout of every wait. A subscriber ends by itself then, so a fault fails the test instead of hanging it.
const TIMEOUT: Duration = Duration::from_secs(20);
const MIB: usize = 1 << 20;

fn tavern() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_")) {
        command.env_remove(name);
    }
    command
}

fn run<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    tavern().args(args).stdin(Stdio::null()).output().unwrap()
}

fn out(output: &Output) -> &str {
    assert!(output.status.success(), "{}", err(output));
    std::str::from_utf8(&output.stdout).unwrap().trim_end()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn publish(folder: &Path, channel: &str, payload: &str) -> u64 {
    let output =
        run([OsStr::new("publish"), "--data".as_ref(), folder.as_ref(), channel.as_ref(), payload.as_ref()]);
    out(&output).parse().unwrap()
}

fn publish_bytes(folder: &Path, channel: &[u8], bytes: &[u8]) -> Output {
    let mut command = tavern();
    command.args([
        OsStr::new("publish"),
        "--data".as_ref(),
        folder.as_ref(),
        OsStr::from_bytes(channel),
        "-".as_ref(),
    ]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may exit before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

fn stat(folder: &Path, more: &[&str]) -> Value {
    let args = [OsStr::new("local"), "stat".as_ref(), "--json".as_ref(), "--data".as_ref(), folder.as_ref()];
    let output = run(args.into_iter().chain(more.iter().map(OsStr::new)));
    serde_json::from_str(out(&output)).unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn files(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
    names.sort();
    names
}

/// The files after a clean exit.
const CLEAN: [&str; 2] = ["bus.db", "bus.db-lock"];

/// A `tavern subscribe`, ended with the test.
struct Listener {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Listener {
    /// Starts one, and waits until the folder lists it.
    fn start(folder: &Path, args: &[&str]) -> Listener {
        let mut command = tavern();
        command.args(["subscribe", "--data"]).arg(folder).args(args);
        if !args.contains(&"--wait") {
            command.args(["--wait", &TIMEOUT.as_millis().to_string()]);
        }
        Listener::of(command, folder)
    }

    fn of(mut command: Command, folder: &Path) -> Listener {
        let known = if folder.join("bus.db").exists() { living(folder) } else { 0 };
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        until("a listener", || folder.join("bus.db").exists() && living(folder) > known);
        Listener { child, lines }
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its exit; returns its remaining output.
    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Living processes with a subscription.
fn living(folder: &Path) -> usize {
    let stat = stat(folder, &[]);
    let listens = |process: &&Value| process["alive"] == true && process["subscribers"] == 1;
    stat["processes"].as_array().unwrap().iter().filter(listens).count()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn messages_go_from_process_to_process() {
    let folder = folder();
    let folder = folder.path().join("made by the first");
    assert_eq!(publish(&folder, "news", "no subscriber yet"), 0);
    let mut one = Listener::start(&folder, &["--count", "3", "news"]);
    let two = Listener::start(&folder, &["--count", "1", "other", "news"]);
    assert_eq!(publish(&folder, "news", "hello"), 2);
    assert_eq!(one.line(), json!({"event": "message", "channel": "news", "data": "hello"}));
    let (status, rest) = two.end();
    assert!(status.success());
    assert_eq!(rest, "{\"event\":\"message\",\"channel\":\"news\",\"data\":\"hello\"}\n");
    assert_eq!(publish(&folder, "news", "{\"a\":\n1.50}"), 1);
    assert_eq!(publish(&folder, "news", "\"quoted\""), 1);
    let (status, rest) = one.end();
    assert!(status.success());
    let lines: Vec<&str> = rest.lines().collect();
    assert_eq!(lines[0], r#"{"event":"message","channel":"news","data":{"a": 1.50}}"#, "JSON is not changed");
    assert_eq!(lines[1], r#"{"event":"message","channel":"news","data":"quoted"}"#);
    assert_eq!(lines.len(), 2);
    // SQLite removes its log with the last process, unless two of them end at the same time: so after one that is alone.
    assert_eq!(publish(&folder, "news", "no subscriber again"), 0);
    assert_eq!(files(&folder), CLEAN);
}

#[test]
fn messages_name_the_pattern_and_the_channel() {
    let folder = folder();
    let args = ["--pattern", "game#*", "--pattern", "*1", "game#1", "--count", "4"];
    let listener = Listener::start(folder.path(), &args);
    assert_eq!(publish(folder.path(), "game#1", "7"), 3, "a channel and two patterns");
    assert_eq!(publish(folder.path(), "game#2", "8"), 1);
    let (status, rest) = listener.end();
    assert!(status.success());
    let lines: Vec<Value> = rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let channel = |pattern: Option<&str>, channel: &str, data: u64| match pattern {
        Some(pattern) => json!({"event": "message", "pattern": pattern, "channel": channel, "data": data}),
        None => json!({"event": "message", "channel": channel, "data": data}),
    };
    let expected = [
        channel(None, "game#1", 7),
        channel(Some("*1"), "game#1", 7),
        channel(Some("game#*"), "game#1", 7),
        channel(Some("game#*"), "game#2", 8),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn any_bytes_are_delivered() {
    let folder = folder();
    // As in Redis, `*` does not match the empty name.
    let mut listener = Listener::start(folder.path(), &["--pattern", "*", ""]);
    let mut check = |channel: &[u8], bytes: &[u8], expected: Value| {
        assert_eq!(out(&publish_bytes(folder.path(), channel, bytes)), "1");
        let mut line = listener.line();
        line.as_object_mut().unwrap().retain(|name, _| name != "event" && name != "pattern");
        assert_eq!(line, expected);
    };
    check(b"b", b"\x00\xff\r\n", json!({"channel": "b", "data": "AP8N", "encoding": "base64"}));
    check(b"b", b"text\n\n", json!({"channel": "b", "data": "text\n"}));
    check(b"b", b"", json!({"channel": "b", "data": ""}));
    check(b"", b"[1]\n", json!({"channel": "", "data": [1]}));
    check(b"\xff\xfe", b"x", json!({"channel_base64": "//4=", "data": "x"}));
    let largest = [&vec![b'x'; MIB][..], b"\n"].concat();
    check(b"b", &largest, json!({"channel": "b", "data": "x".repeat(MIB)}));
    let refused = publish_bytes(folder.path(), b"b", &vec![b'x'; MIB + 1]);
    assert_eq!(
        (refused.status.code(), err(&refused)),
        (Some(1), "error: the payload is larger than 1 MiB\n".into())
    );
}

#[test]
fn subscriber_exits_after_its_wait() {
    let folder = folder();
    let began = Instant::now();
    let mut command = tavern();
    command.args(["subscribe", "--wait", "100", "--count", "2", "quiet", "--data"]).arg(folder.path());
    assert_eq!(out(&command.output().unwrap()), "");
    assert!(began.elapsed() >= Duration::from_millis(100));
    assert_eq!(files(folder.path()), CLEAN);
}

#[test]
fn folder_and_server_options_conflict() {
    let folder = folder();
    for option in ["--url", "--token", "--key", "--user", "--ca"] {
        for command in [&["publish", "c", "x"][..], &["subscribe", "c"]] {
            let mut asked = tavern();
            asked.args(command).args([option, "x", "--data"]).arg(folder.path());
            let output = asked.output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{option}");
            let stderr = err(&output);
            assert!(stderr.contains("cannot be used with") && stderr.contains(option), "{stderr}");
        }
    }
    assert!(files(folder.path()).is_empty(), "refused before anything was created");
    // Environment variables for other commands do not conflict.
    let mut asked = tavern();
    asked.env("TAVERN_URL", "http://nowhere.invalid").env("TAVERN_TOKEN", "x");
    asked.args(["publish", "c", "x", "--data"]).arg(folder.path());
    assert_eq!(out(&asked.output().unwrap()), "0");
}

#[test]
fn signal_removes_the_subscriber_from_the_folder() {
    let folder = folder();
    for signal in [Signal::TERM, Signal::INT] {
        let listener = Listener::start(folder.path(), &["c"]);
        listener.signal(signal);
        let (status, rest) = listener.end();
        assert!(status.success() && rest.is_empty(), "{status} {rest}");
        assert_eq!(files(folder.path()), CLEAN);
        assert_eq!(stat(folder.path(), &[])["processes"], json!([]));
    }
}

#[test]
fn signal_ends_a_subscriber_with_a_stuck_reader() {
    let folder = folder();
    let mut listener = Listener::start(folder.path(), &["c"]);
    // More than a pipe buffers: the write blocks in the middle of the line.
    out(&publish_bytes(folder.path(), b"c", &vec![b'x'; MIB / 2]));
    let mut first = [0; 1];
    listener.lines.get_mut().read_exact(&mut first).unwrap();
    listener.signal(Signal::TERM);
    until("its end", || listener.child.try_wait().unwrap().is_some());
    assert!(listener.child.wait().unwrap().success());
    assert_eq!(files(folder.path()), CLEAN);
}

#[test]
fn dead_processes_are_shown_and_swept() {
    let folder = folder();
    let mut alive = Listener::start(folder.path(), &["c", "--pattern", "d*"]);
    let dead = Listener::start(folder.path(), &["c"]);
    assert_eq!(publish(folder.path(), "c", "for both"), 2);
    assert_eq!(alive.line()["data"], "for both");
    let pid = dead.child.id();
    dead.signal(Signal::KILL);
    assert_eq!(dead.end().0.signal(), Some(9));
    let shown = stat(folder.path(), &[]);
    let [first, second] = &shown["processes"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!(
        (&first["alive"], &first["program"], &first["channels"], &first["patterns"]),
        (&json!(true), &json!("tavern subscribe"), &json!(1), &json!(1))
    );
    assert_eq!(
        (&second["alive"], &second["pid"], &second["queued"]),
        (&json!(false), &json!(pid), &json!(1))
    );
    assert_eq!(shown["log_messages"], 1, "the message is kept for the dead process");
    let table = run([OsStr::new("local"), "stat".as_ref(), "--data".as_ref(), folder.path().as_ref()]);
    let table = out(&table);
    for part in ["alive", "dead", &pid.to_string(), "1 message, 9 B"] {
        assert!(table.contains(part), "{part} is missing in {table}");
    }
    let doctor = |health: &str| {
        let mut doctor = tavern();
        doctor
            .args(["doctor", "--dev", "--listen", "127.0.0.1:0", "--resp", "off", "--data"])
            .arg(folder.path());
        let output = doctor.output().unwrap();
        let found =
            out(&output).lines().find(|line| line.contains("  bus  ")).expect("a line on the bus").to_owned();
        assert!(found.starts_with(health), "{found}");
    };
    doctor("warn");
    let swept = stat(folder.path(), &["--sweep"]);
    assert_eq!((&swept["swept"], swept["processes"].as_array().unwrap().len()), (&json!(1), 1));
    assert_eq!(stat(folder.path(), &["--sweep"])["swept"], 0);
    doctor("ok");
    assert_eq!(publish(folder.path(), "c", "for one"), 1);
}

#[test]
fn stat_creates_nothing() {
    let folder = folder();
    let none = folder.path().join("none");
    for asked in [folder.path(), &none] {
        let output = run([OsStr::new("local"), "stat".as_ref(), "--data".as_ref(), asked.as_ref()]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(err(&output), format!("error: no bus in {}\n", asked.display()));
    }
    let mut doctor = tavern();
    doctor.args(["doctor", "--dev", "--listen", "127.0.0.1:0", "--resp", "off", "--data"]).arg(&none);
    assert!(!out(&doctor.output().unwrap()).contains("  bus  "), "there is no bus");
    assert!(files(folder.path()).is_empty());
}

#[test]
fn unusable_folder_gives_one_error_line() {
    let folder = folder();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let below = file.join("below");
    let damaged = folder.path().join("damaged");
    std::fs::create_dir(&damaged).unwrap();
    std::fs::write(damaged.join("bus.db"), "no database at all; ".repeat(1_000)).unwrap();
    let cases = [
        (&*file, "cannot be used"),
        (&below, "cannot be used"),
        // Not writable, not even for root.
        (Path::new("/sys/tavern"), "cannot be written to"),
        (&damaged, "is corrupt"),
    ];
    for (path, problem) in cases {
        for command in [&["publish", "c", "x"][..], &["subscribe", "c"]] {
            let mut asked = tavern();
            let output = asked.args(command).arg("--data").arg(path).output().unwrap();
            let stderr = err(&output);
            assert_eq!(output.status.code(), Some(1), "{stderr}");
            assert!(output.stdout.is_empty());
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
            assert!(stderr.starts_with("error: ") && stderr.contains(problem), "{stderr}");
            assert!(stderr.contains(path.to_str().unwrap()), "{stderr}");
        }
    }
    assert_eq!(files(folder.path()), ["damaged", "file"]);
}

#[test]
fn all_paths_to_a_folder_are_the_same_bus() {
    let folder = folder();
    let real = folder.path().join("a folder with spaces");
    let link = folder.path().join("link");
    std::fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let mut command = tavern();
    command.args(["subscribe", "--data", "./a folder with spaces", "--count", "3", "--wait", "20000", "c"]);
    command.current_dir(folder.path());
    let listener = Listener::of(command, &real);
    assert_eq!(publish(&real, "c", "1"), 1);
    assert_eq!(publish(&link, "c", "2"), 1);
    let mut command = tavern();
    let inside = command.args(["publish", "--data", ".", "c", "3"]).current_dir(&link).output().unwrap();
    assert_eq!(out(&inside), "1");
    assert_eq!(listener.end().1.lines().count(), 3);
}

#[test]
fn subscriber_exits_when_stdout_is_closed() {
    let folder = folder();
    let mut shell = Command::new("sh");
    let script =
        r#"exec 3>&1; { "$0" subscribe --data "$1" --wait 20000 c; echo "ended with $?" >&3; } | head -n 1"#;
    shell.args(["-c", script, env!("CARGO_BIN_EXE_tavern")]).arg(folder.path());
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a listener", || folder.path().join("bus.db").exists() && living(folder.path()) == 1);
    let began = Instant::now();
    assert_eq!(publish(folder.path(), "c", "1"), 1);
    // No second message arrives: the closed pipe itself must be noticed, not a failing write.
    let output = shell.wait_with_output().unwrap();
    assert!(began.elapsed() < TIMEOUT / 2, "before its own wait was over");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout, "{\"event\":\"message\",\"channel\":\"c\",\"data\":1}\nended with 0\n");
    assert!(output.stderr.is_empty());
    assert_eq!(publish(folder.path(), "c", "2"), 0);
    assert_eq!(files(folder.path()), CLEAN);
}
