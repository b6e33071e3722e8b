//! A Postgres server for the tests of one binary. It ends when the binary does, however that ends: it holds the other end
//! of a pipe. A missing Postgres fails the tests.

#![allow(dead_code, reason = "each test binary takes what it needs of this")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Ends when it is dropped or when this process ends.
pub struct Server {
    /// With its socket and `cert.pem`.
    pub folder: String,
    pub port: u16,
    child: Child,
}

/// The address of an unused schema.
pub fn fresh() -> String {
    shared().fresh()
}

/// The server of this binary.
pub fn shared() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

impl Server {
    /// The address of an unused schema, over the socket.
    pub fn fresh(&self) -> String {
        static SCHEMAS: AtomicU64 = AtomicU64::new(0);
        let n = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let host = self.folder.replace('/', "%2F");
        format!("postgres://postgres@{host}:{}/postgres?schema=case_{n}", self.port)
    }

    pub fn start() -> Server {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.expect("there is a free port").port();
        // Postgres refuses to run as root.
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "sh"]);
            command
        } else {
            Command::new("sh")
        };
        command.args(["-c", include_str!("postgres.sh"), "postgres.sh", &port.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a shell starts Postgres");
        let mut folder = String::new();
        let read = BufReader::new(child.stdout.take().expect("it was piped")).read_line(&mut folder);
        let missing = "Postgres did not start: its output is above; scripts/setup installs it";
        assert!(read.is_ok() && !folder.is_empty(), "{missing}");
        Server { folder: folder.trim_end().to_string(), port, child }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
