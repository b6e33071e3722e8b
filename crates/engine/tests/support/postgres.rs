//! A Postgres server for the tests of one binary. It ends when the binary does, however that ends: it holds the other end
//! of a pipe. A missing Postgres fails the tests.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Server {
    socket: String,
    #[allow(dead_code, reason = "held, not read")]
    life: ChildStdin,
}

/// The address of a schema that nobody has used yet.
pub fn fresh() -> String {
    static SCHEMAS: AtomicU64 = AtomicU64::new(0);
    let n = SCHEMAS.fetch_add(1, Ordering::Relaxed);
    format!("{}?schema=case_{n}", database())
}

/// The address without a schema.
pub fn database() -> String {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let socket = SERVER.get_or_init(start).socket.replace('/', "%2F");
    format!("postgres://postgres@{socket}/postgres")
}

/// A server that ends when the second part is dropped.
#[allow(dead_code, reason = "each test binary takes what it needs of this")]
pub fn alone() -> (String, ChildStdin) {
    let Server { socket, life } = start();
    (format!("postgres://postgres@{}/postgres?schema=alone", socket.replace('/', "%2F")), life)
}

fn start() -> Server {
    let script = include_str!("postgres.sh");
    // Postgres refuses to run as root.
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "sh", "-c", script]);
            command
        }
        false => {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        }
    };
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("a shell starts Postgres");
    let life = child.stdin.take().expect("it was piped");
    let mut socket = String::new();
    let told = BufReader::new(child.stdout.take().expect("it was piped")).read_line(&mut socket);
    assert!(
        told.is_ok() && !socket.is_empty(),
        "Postgres did not start: see above; scripts/setup installs it"
    );
    Server { socket: socket.trim_end().to_string(), life }
}
