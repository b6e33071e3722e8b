//! Starting a server for one measurement, on free loopback ports and in a temporary folder, and ending it.
//! Must hold: every process started here is ended here, by its own id.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::plan::Peer;
use crate::pusher;
use crate::target::{Protocol, Target};

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    pub tavern: PathBuf,
    pub redis: PathBuf,
    pub nats: PathBuf,
    /// None: it is left out.
    pub sockudo: Option<PathBuf>,
}

impl Programs {
    fn of(&self, peer: Peer) -> &Path {
        match peer {
            Peer::Tavern | Peer::OneShard | Peer::TwoShards => &self.tavern,
            Peer::Redis => &self.redis,
            Peer::Nats => &self.nats,
            Peer::Sockudo => self.sockudo.as_deref().unwrap_or(Path::new("sockudo")),
        }
    }

    /// The first line of a program's version output. None: it is not installed.
    pub fn version(&self, peer: Peer) -> Option<String> {
        let output = Command::new(self.of(peer)).arg("--version").output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
    }
}

/// A running server.
pub struct Running {
    child: Child,
    http: SocketAddr,
    resp: SocketAddr,
    folder: TempDir,
}

const STARTING: Duration = Duration::from_secs(15);
/// More connections from one address than any workload opens.
const CONNECTIONS: usize = 100_000;
/// Redis refuses more than 10,000 clients by default.
const REDIS_CLIENTS: usize = 12_000;

impl Running {
    /// A Tavern server with this text as its configuration. Without a store it keeps its facts in its own folder.
    pub fn tavern(program: &Path, store: Option<&str>, settings: &str) -> anyhow::Result<Self> {
        let store: Vec<&str> = store.into_iter().flat_map(|store| ["--store", store]).collect();
        Self::tavern_with(program, &store, settings)
    }

    /// The same with options of its command line.
    pub fn tavern_with(program: &Path, options: &[&str], settings: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let (http, resp) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        tavern(&mut command, folder.path(), http, resp, settings)?;
        if !options.contains(&"--data") {
            command.arg("--data").arg(folder.path().join("facts"));
        }
        command.args(options);
        let mut running = Self::spawn(command, folder, http, resp)?;
        running.wait_for(http)?;
        Ok(running)
    }

    pub fn start(peer: Peer, programs: &Programs) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let (http, resp) = (free_port()?, free_port()?);
        let mut command = Command::new(programs.of(peer));
        let shards = |threads: u32| {
            let limits = format!("[limits]\nconnections_per_address = {CONNECTIONS}\n");
            format!("threads = {threads}\n{limits}{}", pusher::settings())
        };
        match peer {
            Peer::Tavern | Peer::OneShard | Peer::TwoShards => {
                let threads = match peer {
                    Peer::OneShard => 1,
                    Peer::TwoShards => 2,
                    _ => 0,
                };
                tavern(&mut command, folder.path(), http, resp, &shards(threads))?;
                command.arg("--data").arg(folder.path().join("facts"));
            }
            Peer::Redis => redis(&mut command, folder.path(), resp),
            Peer::Nats => {
                command.args(["--addr", "127.0.0.1", "--port", &resp.port().to_string()]);
            }
            Peer::Sockudo => {
                command.envs(pusher::sockudo_environment(http.port()));
            }
        }
        let mut running = Self::spawn(command, folder, http, resp)?;
        if peer != Peer::Sockudo {
            running.wait_for(resp)?;
        }
        if !matches!(peer, Peer::Redis | Peer::Nats) {
            running.wait_for(http)?;
        }
        Ok(running)
    }

    /// Another server, which listens on one address: its command line is completed with its folder and that address.
    pub fn program(
        program: &Path,
        complete: impl FnOnce(&mut Command, &Path, SocketAddr) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let address = free_port()?;
        let mut command = Command::new(program);
        complete(&mut command, folder.path(), address)?;
        let mut running = Self::spawn(command, folder, address, address)?;
        running.wait_for(address)?;
        Ok(running)
    }

    fn spawn(
        mut command: Command,
        folder: TempDir,
        http: SocketAddr,
        resp: SocketAddr,
    ) -> anyhow::Result<Self> {
        let log = File::create(folder.path().join("log"))?;
        let child = command
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { child, http, resp, folder })
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    pub fn address(&self) -> SocketAddr {
        self.http
    }

    /// The key with every right that a Tavern in dev mode makes for itself.
    pub fn dev_key(&self) -> anyhow::Result<String> {
        let path = self.folder.path().join("facts").join("dev-key");
        // It is written when the server has opened its store, which may be after it listens.
        let end = Instant::now() + STARTING;
        while !path.exists() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let key = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(key.trim().to_owned())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where this server speaks the protocol.
    pub fn target(&self, protocol: Protocol) -> Target {
        match protocol {
            Protocol::Redis | Protocol::Nats => Target::new(protocol, self.resp),
            Protocol::WebSocket | Protocol::Poll | Protocol::Pusher | Protocol::PusherApi => {
                Target::new(protocol, self.http)
            }
        }
    }

    /// The end of the server's log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Tries to connect until the server accepts: it has no other way to say that it is ready that all share.
    fn wait_for(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let end = Instant::now() + STARTING;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}:\n{}", self.log());
            }
            if Instant::now() > end {
                bail!("the server does not listen on {address}:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It keeps nothing worth a graceful stop. An error means that it has already ended.
        self.kill();
    }
}

fn tavern(
    command: &mut Command,
    folder: &Path,
    http: SocketAddr,
    resp: SocketAddr,
    settings: &str,
) -> anyhow::Result<()> {
    let config = folder.join("tavern.toml");
    fs::write(&config, settings)?;
    // TAVERN_BIN names the program; the program would read it as a setting.
    command.env_remove("TAVERN_BIN");
    command.arg("dev");
    command.args(["--listen", &http.to_string(), "--resp", &resp.to_string()]);
    command.arg("--config").arg(config);
    Ok(())
}

fn redis(command: &mut Command, folder: &Path, address: SocketAddr) {
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
    command.args(["--maxclients", &REDIS_CLIENTS.to_string()]);
    command.arg("--dir").arg(folder);
}

pub(crate) fn free_port() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_its_words() {
        let program = PathBuf::from("/bin/false");
        let programs =
            Programs { tavern: program.clone(), redis: program.clone(), nats: program, sockudo: None };
        let error = Running::start(Peer::Redis, &programs).err().unwrap().to_string();
        assert!(error.contains("ended"), "{error}");
    }

    #[test]
    fn a_program_that_is_missing_has_no_version() {
        let program = PathBuf::from("/nowhere/at-all");
        let programs =
            Programs { tavern: program.clone(), redis: program.clone(), nats: program, sockudo: None };
        assert_eq!(programs.version(Peer::Nats), None);
        assert!(Running::start(Peer::Nats, &programs).is_err());
    }
}
