//! Real servers for the buses, each on a free port of this machine and in a folder of its own. Must hold: a server ends with
//! the process that started it, however that ends; a server that is not installed fails the test.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod authority;
pub mod cluster;

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tavern_engines::{BusOptions, LogBounds};
use tavern_store::{Bus, BusReceiver, SystemClock};

/// Long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Starts the server, and ends it by its process id when the other end of its standard input is closed.
const SUPERVISOR: &str = r#"folder=$(mktemp -d) && cd "$folder" || exit 1
"$@" >log 2>&1 &
server=$!
cat >/dev/null
kill -9 "$server" 2>/dev/null
rm -rf "$folder""#;

pub struct Server {
    scheme: &'static str,
    pub port: u16,
    command: Vec<String>,
    warden: Mutex<Option<Child>>,
}

impl Server {
    pub fn nats() -> Server {
        Server::nats_with(&[])
    }

    pub fn nats_with(more: &[&str]) -> Server {
        let port = free_port();
        let program = program("nats-server", "nats-server");
        let fixed = [program, "-a".into(), "127.0.0.1".into(), "-p".into(), port.to_string()];
        Server::begin("nats", port, fixed.into_iter().chain(more.iter().map(|one| one.to_string())).collect())
    }

    pub fn redis() -> Server {
        Server::redis_with(&[])
    }

    pub fn redis_with(more: &[&str]) -> Server {
        let port = free_port();
        let program = program("redis-server", "redis-server");
        let port_text = port.to_string();
        let fixed =
            [&program, "--bind", "127.0.0.1", "--port", &port_text, "--save", "", "--appendonly", "no"];
        Server::begin("redis", port, fixed.iter().chain(more).map(|one| one.to_string()).collect())
    }

    /// Asks every half second and decides alone; for tests that do not wait for a vote.
    pub fn sentinel(master: u16, more: &str) -> Server {
        let port = free_port();
        let program = program("redis-server", "redis-server");
        let conf = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {master} 1\n\
            sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 3000\n{more}\n"
        );
        let script = format!("printf '%s' '{conf}' >s.conf && exec {program} s.conf --sentinel");
        Server::begin("redis-sentinel", port, vec!["sh".into(), "-c".into(), script])
    }

    fn begin(scheme: &'static str, port: u16, command: Vec<String>) -> Server {
        let server = Server { scheme, port, command, warden: Mutex::default() };
        server.start();
        server
    }

    pub fn start(&self) {
        let warden = Command::new("sh")
            .args(["-c", SUPERVISOR, "supervisor"])
            .args(&self.command)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        *self.warden.lock().unwrap() = Some(warden);
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "{} does not answer", self.command[0]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it without a shutdown.
    pub fn kill(&self) {
        let Some(mut warden) = self.warden.lock().unwrap().take() else { return };
        drop(warden.stdin.take());
        warden.wait().unwrap();
    }

    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    pub fn open(&self, prefix: &str, node: &str, inbox: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        open(&self.url(), prefix, node, inbox).expect("the bus opens")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub fn open(
    url: &str,
    prefix: &str,
    node: &str,
    inbox: Arc<dyn BusReceiver>,
) -> Result<Arc<dyn Bus>, tavern_store::BusError> {
    let options = BusOptions { node, prefix, folder: "/nowhere".as_ref(), bounds: LogBounds::default() };
    tavern_engines::open_bus(url, &options, Arc::new(SystemClock), inbox)
}

/// Outside the ports that the system gives to connections: one of those could take the place of a server that is down.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 500) as u16 * 20;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// `/usr/sbin` is not on every user's path.
fn program(name: &str, package: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    let found = path.split(':').map(|folder| format!("{folder}/{name}"));
    let found = found.into_iter().find(|path| std::path::Path::new(path).is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not installed: run scripts/setup, or install the package {package}")
    })
}
