//! The engines' own load programs, on the same engines in the same run: what a plain client reaches.

use std::process::Command;

use anyhow::{Context, ensure};

use super::engine::Engine;

/// Joins as one would write them for Redis: a script that puts a user into a room and counts.
pub fn lua_joins(quick: bool) -> anyhow::Result<f64> {
    let redis = Engine::redis()?;
    let script =
        "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]); return redis.call('HINCRBY', KEYS[2], 'version', 1)";
    let count = if quick { "100000" } else { "300000" };
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &redis.address.port().to_string(), "-q", "-c", "50", "-n", count])
        .args(["-r", "1000", "EVAL", script, "2", "room", "versions", "user__rand_int__", "state"])
        .output()
        .context("redis-benchmark must run")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // It rewrites one line; the last rate is of the whole run.
    let rate = text.split("requests per second").next().and_then(|head| head.rsplit(':').next());
    rate.and_then(|rate| rate.trim().parse().ok()).with_context(|| format!("no rate in {text:?}"))
}

/// One row put or changed for each transaction.
pub fn upserts(quick: bool) -> anyhow::Result<f64> {
    let postgres = Engine::postgres()?;
    let folder = tempfile::tempdir()?;
    let (table, upsert) = (folder.path().join("table.sql"), folder.path().join("upsert.sql"));
    std::fs::write(
        &table,
        "CREATE TABLE rooms (room int, member int, state text, PRIMARY KEY (room, member));",
    )?;
    std::fs::write(
        &upsert,
        "\\set room random(1, 16)\n\\set member random(1, 1000)\n\
         INSERT INTO rooms VALUES (:room, :member, 'x') ON CONFLICT (room, member) DO UPDATE SET state = excluded.state;\n",
    )?;
    let url = format!("postgres://postgres@{}/postgres", postgres.address);
    let made =
        Command::new("psql").args(["-q", "-f"]).arg(&table).arg(&url).status().context("psql must run")?;
    ensure!(made.success(), "the table could not be made");
    let output = Command::new("pgbench")
        .args(["-n", "-M", "prepared", "-c", "50", "-j", "1", "-T", if quick { "3" } else { "6" }, "-f"])
        .arg(&upsert)
        .arg(&url)
        .output()
        .context("pgbench must run")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rate = text.split("tps = ").nth(1).and_then(|rest| rest.split(' ').next());
    rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("no rate in {text:?}"))
}
