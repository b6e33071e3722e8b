//! What the machine itself reaches, in the same run: how often its disk syncs, and how fast a plain Redis pushes and pops.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use crate::compare::peer::{Programs, Running};
use crate::compare::plan::Peer;
use crate::process;
use crate::target::Protocol;

const BLOCK: usize = 4096;
/// The file that is written over and over, as a log of changes is.
const BLOCKS: u64 = 1024;

/// Writes of 4 KiB, each synced before the next, where the servers keep their facts.
pub fn syncs(seconds: f64) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let file = File::create(folder.path().join("blocks"))?;
    let block = [7; BLOCK];
    for at in 0..BLOCKS {
        file.write_all_at(&block, at * BLOCK as u64)?;
    }
    file.sync_all()?;
    let begun = Instant::now();
    let mut count = 0;
    while begun.elapsed().as_secs_f64() < seconds {
        file.write_all_at(&block, count % BLOCKS * BLOCK as u64)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

#[derive(Clone, Copy, Debug)]
pub struct Redis {
    pub per_s: f64,
    pub cpu_per_million: f64,
}

/// `command` by 16 connections in pipelines of 50, each with a hundred bytes. It keeps nothing on disk.
pub fn redis(commands: &[&str], count: u64) -> anyhow::Result<Vec<Redis>> {
    let programs = Programs {
        tavern: PathBuf::new(),
        redis: "redis-server".into(),
        nats: PathBuf::new(),
        sockudo: None,
    };
    let server = Running::start(Peer::Redis, &programs)?;
    let port = server.target(Protocol::Redis).resolve()?.port().to_string();
    let run = |command: &&str| {
        let cpu = process::usage(server.pid())?.cpu_seconds;
        let output = Command::new("redis-benchmark")
            .args(["-h", "127.0.0.1", "-p", &port, "--csv", "-c", "16", "-P", "50", "-d", "100"])
            .args(["-n", &count.to_string(), "-t", command])
            .output()
            .context("redis-benchmark must run")?;
        let cpu = process::usage(server.pid())?.cpu_seconds - cpu;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "redis-benchmark: {text}");
        let per_s = rate(&text, command).with_context(|| format!("no rate in {text:?}"))?;
        Ok(Redis { per_s, cpu_per_million: cpu * 1e6 / count as f64 })
    };
    commands.iter().map(run).collect()
}

/// The rate in a line of `"NAME","RATE",…`.
fn rate(text: &str, command: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.to_lowercase().starts_with(&format!("\"{command}")))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_a_command_is_read() {
        let text = "\"test\",\"rps\"\n\"LPUSH\",\"1234567.50\",\"0.1\"\n";
        assert_eq!(rate(text, "lpush"), Some(1_234_567.5));
        assert_eq!(rate(text, "rpop"), None);
    }
}
