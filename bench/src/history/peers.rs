//! What others keep of a channel, in the same run: streams of Redis, and the history of Centrifugo.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};

use super::publish::{LIST, PUBLISHERS, measure_lists, payload};
use crate::compare::peer::Running;
use crate::events::line::Line;
use crate::process;
use crate::target::Protocol;

/// Messages that a server has stored and answered.
#[derive(Clone, Copy, Debug)]
pub struct StoredPublishes {
    pub per_s: f64,
    /// Of the server, all threads.
    pub cpu_per_million: f64,
}

impl StoredPublishes {
    /// The messages since a moment at which the server had used this much processor time.
    pub fn between(pid: u32, cpu: f64, count: u64, begun: Instant) -> anyhow::Result<StoredPublishes> {
        ensure!(count > 0, "nothing was answered");
        let seconds = begun.elapsed().as_secs_f64();
        let cpu = process::usage(pid)?.cpu_seconds - cpu;
        Ok(StoredPublishes { per_s: count as f64 / seconds, cpu_per_million: cpu * 1e6 / count as f64 })
    }
}

/// `XADD` by 16 connections in pipelines of 16, to streams that keep about 100 entries.
pub fn streams(durable: bool, count: u64) -> anyhow::Result<StoredPublishes> {
    let server = redis(durable)?;
    let port = server.target(Protocol::Redis).resolve()?.port().to_string();
    let (cpu, begun) = (process::usage(server.pid())?.cpu_seconds, Instant::now());
    let (data, connections) = (payload(), PUBLISHERS.to_string());
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port, "-q", "-P", "16", "-r", &connections, "-c", &connections])
        .args(["-n", &count.to_string()])
        .args(["XADD", "log:__rand_int__", "MAXLEN", "~", "100", "*", "data", &data])
        .output()
        .context("redis-benchmark must run")?;
    ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
    StoredPublishes::between(server.pid(), cpu, count, begun)
}

fn redis(durable: bool) -> anyhow::Result<Running> {
    Running::program(Path::new("redis-server"), |command, folder, address| {
        command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--protected-mode", "no", "--dir"]).arg(folder);
        command.args(["--appendonly", if durable { "yes" } else { "no" }, "--appendfsync", "always"]);
        Ok(())
    })
}

const API_KEY: &str = "bench";

/// Requests of many publishes to channels with history, kept by Centrifugo itself or by a Redis.
pub fn centrifugo(program: &Path, uses_redis: bool, seconds: f64) -> anyhow::Result<StoredPublishes> {
    let program: PathBuf = program.canonicalize().with_context(|| format!("no {}", program.display()))?;
    let redis = uses_redis.then(|| redis(false)).transpose()?;
    let engine = match &redis {
        Some(redis) => {
            let address = redis.target(Protocol::Redis).to_string();
            format!(r#"{{"type":"redis","redis":{{"address":"{address}"}}}}"#)
        }
        None => r#"{"type":"memory"}"#.to_owned(),
    };
    let server = Running::program(&program, |command, folder, address| {
        let config = folder.join("config.json");
        let namespace = r#"{"name":"log","history_size":100,"history_ttl":"1h"}"#;
        let port = address.port();
        let text = format!(
            r#"{{"http_server":{{"address":"127.0.0.1","port":"{port}"}},"http_api":{{"key":"{API_KEY}"}},
                "channel":{{"namespaces":[{namespace}]}},"engine":{engine},"log":{{"level":"warn"}}}}"#
        );
        fs::write(&config, text)?;
        command.arg("--config").arg(config);
        Ok(())
    })?;
    let address = server.target(Protocol::Redis).resolve()?;
    let request = |_: &Line, publisher: usize| {
        let publish =
            format!(r#"{{"publish":{{"channel":"log:{publisher}","data":{{"text":{}}}}}}}"#, payload());
        let body = format!(r#"{{"commands":[{}]}}"#, vec![publish; LIST].join(","));
        let length = body.len();
        format!(
            "POST /api/batch HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {API_KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .into_bytes()
    };
    // Each result has the position of its message.
    let is_good = |body: &[u8]| memchr::memmem::find_iter(body, br#""offset":"#).count() == LIST;
    measure_lists(server.pid(), seconds, || Line::open(address, ""), request, is_good)
        .map_err(|error| anyhow::anyhow!("{error:#}\nserver log:\n{}", server.log()))
}
