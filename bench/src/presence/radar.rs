//! The original Radar (npm, Zendesk) on Redis under the same churn, driven by its own client: `bench/radar/churn.js`.
//! Must hold: its packages live outside the repository; every process started here is ended here.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::churn::Churn;
use crate::process;

const PACKAGES: [&str; 2] = ["radar@0.43.1", "radar_client@0.18.0"];
/// The load, as it was when this program was built.
const LOAD: &str = include_str!("../../radar/churn.js");
const STARTING: Duration = Duration::from_secs(15);

/// Where the packages are: a folder that was given, or a temporary one.
pub struct Packages {
    folder: PathBuf,
    _temporary: Option<TempDir>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RadarResult {
    pub changes_per_s: f64,
    /// Processor time of Radar and of its Redis for one change.
    pub cpu_us: f64,
    /// Events per change at the watcher.
    pub events_each: f64,
}

#[derive(Deserialize)]
struct Counted {
    changes: u64,
    events: u64,
    seconds: f64,
}

/// A process that ends with its owner.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Packages {
    /// Installs them, unless a folder with `node_modules` is given.
    pub fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(folder) = given {
            ensure!(folder.join("node_modules/radar").is_dir(), "no radar in {}", folder.display());
            return Ok(Self { folder: folder.canonicalize()?, _temporary: None });
        }
        let temporary = tempfile::tempdir()?;
        let output = Command::new("npm")
            .args(["install", "--no-audit", "--no-fund", "--prefix"])
            .arg(temporary.path())
            .args(PACKAGES)
            .output()
            .context("npm is not installed")?;
        ensure!(
            output.status.success(),
            "npm could not install radar: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self { folder: temporary.path().into(), _temporary: Some(temporary) })
    }
}

pub fn run(packages: &Packages, churn: &Churn) -> anyhow::Result<RadarResult> {
    let scratch = tempfile::tempdir()?;
    let (redis_port, port) = (free_port()?, free_port()?);
    let mut redis = Command::new("redis-server");
    redis.args([
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--port",
        &redis_port.to_string(),
    ]);
    let mut redis = start(redis, scratch.path(), "redis")?;
    wait_for(&mut redis, redis_port)?;
    let mut radar = Command::new("node");
    radar.arg(packages.folder.join("node_modules/radar/bin/server.js"));
    radar.env("RADAR_PORT", port.to_string()).env("radar_log", "error");
    radar.env("RADAR_REDIS_URL", format!("redis://127.0.0.1:{redis_port}"));
    let mut radar = start(radar, scratch.path(), "radar")?;
    wait_for(&mut radar, port)?;
    let script = scratch.path().join("churn.js");
    std::fs::write(&script, LOAD)?;
    let mut load = Command::new("node");
    load.arg(&script).arg(port.to_string());
    load.args([churn.connections, churn.depth, churn.channels].map(|number| number.to_string()));
    load.arg(churn.seconds.to_string()).env("NODE_PATH", packages.folder.join("node_modules"));
    let load = load.stdout(Stdio::piped()).stdin(Stdio::null()).stderr(Stdio::inherit());
    let mut load = Ended(load.spawn().context("node is not installed")?);
    let mut lines = BufReader::new(load.0.stdout.take().context("stdout is not piped")?).lines();
    let mut line = || lines.next().context("the load ended without output")?.context("unreadable output");
    let cpu = || {
        let spent = [&radar, &redis].map(|server| process::usage(server.0.id()));
        spent.into_iter().map(|usage| Ok(usage?.cpu_seconds)).sum::<anyhow::Result<f64>>()
    };
    let first = line()?;
    ensure!(first == "warm", "unexpected output of the load: {first}");
    let before = cpu()?;
    let Counted { changes, events, seconds } = serde_json::from_str(&line()?)?;
    let spent = cpu()? - before;
    ensure!(changes > 0, "radar answered nothing");
    Ok(RadarResult {
        changes_per_s: changes as f64 / seconds,
        cpu_us: spent * 1e6 / changes as f64,
        events_each: events as f64 / changes as f64,
    })
}

fn start(mut command: Command, folder: &Path, name: &str) -> anyhow::Result<Ended> {
    let log = File::create(folder.join(name))?;
    let command = command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(Ended(command.spawn().with_context(|| format!("{name} cannot be started"))?))
}

fn wait_for(server: &mut Ended, port: u16) -> anyhow::Result<()> {
    let end = Instant::now() + STARTING;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = server.0.try_wait()? {
            bail!("a server ended with {status}");
        }
        ensure!(Instant::now() < end, "no server listens on port {port}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no free port")?.local_addr()?.port())
}
