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
kill -"${STOP_SIGNAL:-9}" "$server" 2>/dev/null
wait "$server"
rm -rf "$folder""#;

pub struct Server {
    scheme: &'static str,
    pub port: u16,
    /// What its address has behind the port.
    path: String,
    command: Vec<String>,
    warden: Mutex<Option<Child>>,
}

/// Waits until a further port of a server that has started is open: it opens them one after the other.
pub fn await_port(port: u16) {
    wait_for(|| accepts(port), &format!("port {port}"));
}

fn accepts(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn wait_for(answers: impl Fn() -> bool, what: &str) {
    let until = Instant::now() + PATIENCE;
    while !answers() {
        assert!(Instant::now() < until, "{what} does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
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

    /// A Postgres of its own that keeps its data when it is killed and started again.
    pub fn postgres() -> Server {
        let port = free_port();
        let mut command: Vec<String> = Vec::new();
        if rustix::process::geteuid().is_root() {
            // Postgres refuses to run as root.
            let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
            command.extend(user.map(str::to_owned));
        }
        let script = "PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
            test -d /tmp/$1 || initdb -D /tmp/$1 -U postgres -A trust -E UTF8 --locale=C -N >/dev/null
            exec postgres -D /tmp/$1 -k /tmp/$1 -p $2 -c listen_addresses=127.0.0.1 -c fsync=off";
        let folder = format!("tavern-bus-{}-{port}", std::process::id());
        command.extend(["sh", "-c", script, "postgres", &folder, &port.to_string()].map(str::to_owned));
        Server::begin("postgres", port, command)
    }

    /// An unused schema on the Postgres of this binary.
    pub fn on_shared_postgres() -> Server {
        static SCHEMAS: AtomicU16 = AtomicU16::new(0);
        let path = format!("/postgres?schema=bus_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let port = crate::postgres_server::shared().port;
        Server { scheme: "postgres", port, path, command: Vec::new(), warden: Mutex::default() }
    }

    fn begin(scheme: &'static str, port: u16, command: Vec<String>) -> Server {
        let path = if scheme == "postgres" { "/postgres" } else { "" }.to_owned();
        let server = Server { scheme, port, path, command, warden: Mutex::default() };
        server.start();
        server
    }

    pub fn start(&self) {
        let warden = Command::new("sh")
            // Postgres then ends its other processes too, without a shutdown.
            .env("STOP_SIGNAL", if self.scheme == "postgres" { "QUIT" } else { "9" })
            .args(["-c", SUPERVISOR, "supervisor"])
            .args(&self.command)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        *self.warden.lock().unwrap() = Some(warden);
        wait_for(|| self.accepts(), &self.command[0]);
    }

    fn accepts(&self) -> bool {
        if self.scheme != "postgres" {
            return accepts(self.port);
        }
        // It listens before it is ready.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(tokio_postgres::connect(&self.url(), tokio_postgres::NoTls)).is_ok()
    }

    /// Kills it without a shutdown.
    pub fn kill(&self) {
        let Some(mut warden) = self.warden.lock().unwrap().take() else { return };
        drop(warden.stdin.take());
        warden.wait().unwrap();
    }

    pub fn url(&self) -> String {
        let user = if self.scheme == "postgres" { "postgres@" } else { "" };
        format!("{}://{user}127.0.0.1:{}{}", self.scheme, self.port, self.path)
    }

    pub fn open(&self, prefix: &str, node: &str, inbox: Arc<dyn BusReceiver>) -> Arc<dyn Bus> {
        open(&self.url(), prefix, node, inbox).expect("the bus opens")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if self.scheme == "postgres" && !self.command.is_empty() {
            let folder = format!("/tmp/tavern-bus-{}-{}", std::process::id(), self.port);
            let _ = std::fs::remove_dir_all(folder);
        }
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
