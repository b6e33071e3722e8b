//! The start of the real server: its log, its environment, and what a failed start leaves behind.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(30);

/// `tavern dev` on free ports, with its log as text.
struct Server {
    child: Child,
    /// The log up to the line `ready`.
    log: String,
}

fn tavern(folder: &Path, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tavern"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TAVERN_")) {
        command.env_remove(name);
    }
    command.env_remove("NO_COLOR").current_dir(folder).envs(environment.iter().copied());
    command
}

impl Server {
    fn start(folder: &Path, environment: &[(&str, &str)], args: &[&str]) -> Server {
        let mut child = tavern(folder, environment)
            .args(["dev", "--listen", "127.0.0.1:0"])
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut log = String::new();
        while !log.contains("ready") {
            let line = receiver.recv_timeout(DEADLINE).unwrap_or_else(|_| panic!("no \"ready\" in {log}"));
            log.push_str(&line);
            log.push('\n');
        }
        Server { child, log }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn server_ignores_kubernetes_service_variables_and_warns_about_unknown_ones() {
    let folder = tempfile::tempdir().unwrap();
    let environment = [
        ("TAVERN_SERVICE_HOST", "10.96.0.12"),
        ("TAVERN_PORT", "tcp://10.96.0.12:7400"),
        ("TAVERN_PORT_7400_TCP_ADDR", "10.96.0.12"),
        ("TAVERN_LISTNE", "127.0.0.1:1"),
    ];
    let server = Server::start(folder.path(), &environment, &["--resp", "127.0.0.1:0"]);
    let warning = "TAVERN_LISTNE: unknown environment variable, ignored; did you mean TAVERN_LISTEN?";
    assert!(server.log.contains(warning), "{}", server.log);
    assert_eq!(server.log.matches("configuration warning").count(), 1, "{}", server.log);
}

#[test]
fn log_in_a_file_has_no_colours_and_no_rust_options() {
    let folder = tempfile::tempdir().unwrap();
    let with_redis = Server::start(folder.path(), &[], &["--resp", "127.0.0.1:0", "--data", "a"]);
    let without = Server::start(folder.path(), &[], &["--resp", "off", "--data", "b"]);
    for log in [&with_redis.log, &without.log] {
        assert!(!log.contains('\x1b') && !log.contains("Some(") && !log.contains("None"), "{log}");
    }
    assert!(with_redis.log.contains("redis=127.0.0.1:"), "{}", with_redis.log);
}

#[test]
fn failed_start_on_a_taken_port_leaves_no_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = tavern(folder.path(), &[])
        .args(["dev", "--listen", &address, "--resp", "127.0.0.1:0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(&format!("cannot listen on {address}")), "{text}");
    assert!(!folder.path().join("tavern-data").exists(), "{text}");
}
