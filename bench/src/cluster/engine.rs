//! The servers that nodes share: Postgres, Redis, NATS, each in a temporary folder on a free loopback port.
//! Must hold: every process started here is ended here, by its own id; Postgres and Redis are as durable as the pages advise.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::compare::peer::free_port;
use crate::process;

pub struct Engine {
    child: Child,
    pub address: SocketAddr,
    kind: Kind,
    _folder: Option<TempDir>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Redis,
    Nats,
}

const STARTING: Duration = Duration::from_secs(30);

impl Engine {
    /// `synchronous_commit` and `fsync` stay on.
    pub fn postgres() -> anyhow::Result<Engine> {
        let address = free_port()?;
        // Postgres refuses to run as root.
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "sh"]);
                command
            }
            false => Command::new("sh"),
        };
        let script = include_str!("../../../crates/engines/tests/it/postgres.sh");
        command.args(["-c", script, "postgres.sh", &address.port().to_string(), "durable"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a shell must start Postgres")?;
        let mut first_line = String::new();
        let output = child.stdout.take().context("its output was piped")?;
        BufReader::new(output).read_line(&mut first_line)?;
        ensure!(
            !first_line.is_empty(),
            "Postgres did not start, see its output above; install it with scripts/setup"
        );
        Ok(Engine { child, address, kind: Kind::Postgres, _folder: None })
    }

    /// With a log that is synced every second.
    pub fn redis() -> anyhow::Result<Engine> {
        let (folder, address) = (tempfile::tempdir()?, free_port()?);
        let mut command = Command::new("redis-server");
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]);
        command.arg("--dir").arg(folder.path());
        Engine::start(command, address, Kind::Redis, folder)
    }

    pub fn nats() -> anyhow::Result<Engine> {
        let (folder, address) = (tempfile::tempdir()?, free_port()?);
        let mut command = Command::new("nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &address.port().to_string()]);
        Engine::start(command, address, Kind::Nats, folder)
    }

    fn start(
        mut command: Command,
        address: SocketAddr,
        kind: Kind,
        folder: TempDir,
    ) -> anyhow::Result<Engine> {
        let log = fs::File::create(folder.path().join("log"))?;
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let engine = Engine { child, address, kind, _folder: Some(folder) };
        let end = Instant::now() + STARTING;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if Instant::now() > end {
                bail!("{} does not listen on {address}", program.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(engine)
    }

    /// Its address as a store or a bus. `name` keeps those apart that share it.
    pub fn url(&self, name: &str) -> String {
        match self.kind {
            Kind::Postgres => format!("postgres://postgres@{}/postgres?schema={name}", self.address),
            Kind::Redis => format!("redis://{}", self.address),
            Kind::Nats => format!("nats://{}", self.address),
        }
    }

    /// Processor time so far, of every process of it.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let pid = match self.kind {
            // The shell waits; the server is its child.
            Kind::Postgres => process::children(self.child.id()).first().copied().unwrap_or(self.child.id()),
            Kind::Redis | Kind::Nats => self.child.id(),
        };
        let mut sum = process::usage(pid)?.cpu_seconds;
        for child in process::children(pid) {
            // It may have ended meanwhile.
            sum += process::usage(child).map_or(0.0, |usage| usage.cpu_seconds);
        }
        Ok(sum)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.kind == Kind::Postgres {
            // Its shell stops it when its input ends.
            drop(self.child.stdin.take());
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
