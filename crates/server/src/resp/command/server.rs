//! The node as a Redis server: INFO, DBSIZE, FLUSHALL, FLUSHDB, FUNCTION FLUSH, DEBUG. There are no keys, so nothing
//! can be counted or flushed; test suites and clients that ask get the answers of an empty server.

use super::{RedisCall, connection, text};
use crate::resp::RedisNext;
use std::fmt::Write;
use tavern_hub::Namespace;
use tavern_wire::resp as reply;

pub fn dbsize(call: &mut RedisCall<'_, '_>) -> RedisNext {
    reply::int(call.out, 0);
    RedisNext::Go
}

pub fn flush(call: &mut RedisCall<'_, '_>) -> RedisNext {
    match call.args.len() {
        1 => call.ok(),
        2 if call.is(1, "sync") || call.is(1, "async") => call.ok(),
        _ => call.error(text::SYNTAX),
    }
}

pub fn function_flush(call: &mut RedisCall<'_, '_>) -> RedisNext {
    match call.args.len() {
        2 => call.ok(),
        3 if call.is(2, "sync") || call.is(2, "async") => call.ok(),
        3 => call.error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"),
        _ => {
            text::error(call.out, &text::wrong_subcommand("function", call.args.at(1)));
            RedisNext::Go
        }
    }
}

/// How much of a client's text goes into the log.
const LOGGED_BYTES: usize = 512;

/// The subcommands that test suites use and that do no harm here. Sleeping would stop a whole shard.
pub fn debug(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let word = call.args.at(1).to_ascii_lowercase();
    match (word.as_slice(), call.args.len()) {
        (b"log", 3) => {
            let text = String::from_utf8_lossy(&call.args.at(2)[..call.args.at(2).len().min(LOGGED_BYTES)]);
            tracing::info!(client = call.peer.info.id, %text, "debug log");
            call.ok()
        }
        (b"set-active-expire", 3) => call.ok(),
        (b"sleep", 3) if !asks_for_time(call.args.at(2)) => call.ok(),
        (b"sleep", 3) => call.error("ERR DEBUG SLEEP is not supported: it would stop other connections too"),
        (b"help", 2) => {
            let lines = [
                "DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "LOG <message>",
                "    Writes the message to the server's log.",
                "SET-ACTIVE-EXPIRE <0|1>",
                "    Accepted, changes nothing.",
                "HELP",
                "    Prints this help.",
            ];
            reply::array(call.out, lines.len());
            for line in lines {
                reply::simple(call.out, line);
            }
            RedisNext::Go
        }
        _ => {
            text::error(call.out, &text::wrong_subcommand("debug", call.args.at(1)));
            RedisNext::Go
        }
    }
}

/// As in Redis, text that is not a number asks for no time.
fn asks_for_time(seconds: &[u8]) -> bool {
    let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok());
    seconds.is_some_and(|seconds| seconds > 0.0)
}

type InfoSection = fn(&RedisCall<'_, '_>, &mut String);

const SECTIONS: [(&str, InfoSection); 8] = [
    ("Server", write_server),
    ("Clients", write_clients),
    ("Memory", write_memory),
    ("Stats", write_stats),
    ("Replication", write_replication),
    ("CPU", write_cpu),
    ("Cluster", |_, text| fact(text, "cluster_enabled", 0)),
    ("Keyspace", |_, _| {}),
];

pub fn info(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let wanted: Vec<Vec<u8>> = call.rest(1).map(<[u8]>::to_ascii_lowercase).collect();
    let whole = [&b"default"[..], b"all", b"everything"];
    let all = wanted.is_empty() || wanted.iter().any(|word| whole.contains(&word.as_slice()));
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if !all && !wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        let _ = write!(text, "# {name}\r\n");
        write(call, &mut text);
    }
    reply::verbatim(call.out, call.proto(), "txt", text.as_bytes());
    RedisNext::Go
}

/// One fact per line. Writing to a String cannot fail.
fn fact(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn write_server(call: &RedisCall<'_, '_>, text: &mut String) {
    let config = &call.context.server.config;
    let uptime = call.context.server.started.elapsed().as_secs();
    fact(text, "redis_version", connection::REDIS_VERSION);
    fact(text, "tavern_version", env!("CARGO_PKG_VERSION"));
    fact(text, "redis_mode", "standalone");
    fact(text, "os", std::env::consts::OS);
    fact(text, "arch_bits", usize::BITS);
    fact(text, "process_id", std::process::id());
    fact(text, "run_id", format_args!("{:0>40x}", call.context.hub.core.node().settings.epoch.0));
    fact(text, "node", &config.node);
    fact(text, "tcp_port", config.resp.map_or(0, |address| address.port()));
    fact(text, "server_time_usec", call.context.now.ms().saturating_mul(1000));
    fact(text, "uptime_in_seconds", uptime);
    fact(text, "uptime_in_days", uptime / 86_400);
    fact(text, "io_threads_active", u8::from(config.threads > 1));
}

fn write_clients(call: &RedisCall<'_, '_>, text: &mut String) {
    let clients = call.context.server.clients.list();
    fact(text, "connected_clients", clients.len());
    fact(text, "cluster_connections", 0);
    fact(text, "maxclients", call.context.server.config.limits.connections);
    fact(text, "blocked_clients", 0);
    fact(text, "tracking_clients", 0);
    fact(text, "pubsub_clients", clients.iter().filter(|client| client.is_subscribed()).count());
}

fn write_memory(call: &RedisCall<'_, '_>, text: &mut String) {
    let used = resident_bytes();
    fact(text, "used_memory", used);
    fact(text, "used_memory_human", format_args!("{:.2}M", used as f64 / (1024.0 * 1024.0)));
    fact(text, "used_memory_rss", used);
    fact(text, "maxmemory", 0);
    fact(text, "maxmemory_policy", "noeviction");
    let mailboxes =
        call.context.hub.core.node().stats.iter().map(|stats| stats.mailbox_bytes.get()).sum::<u64>();
    fact(text, "tavern_mailbox_bytes", mailboxes);
    fact(text, "mem_allocator", "mimalloc");
}

/// Resident memory of this process; 0 where the kernel does not report it.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.as_deref().and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

fn write_stats(call: &RedisCall<'_, '_>, text: &mut String) {
    let node = call.context.hub.core.node();
    let sum = |pick: fn(&tavern_hub::node::stats::Stats) -> u64| {
        node.stats.iter().map(|stats| pick(stats)).sum::<u64>()
    };
    fact(text, "total_connections_received", call.context.server.clients.ever());
    fact(
        text,
        "total_commands_processed",
        sum(|stats| stats.commands.get()) + sum(|stats| stats.published.get()),
    );
    fact(text, "rejected_connections", call.context.server.connections.refused());
    fact(text, "expired_keys", 0);
    fact(text, "evicted_keys", 0);
    fact(text, "keyspace_hits", 0);
    fact(text, "keyspace_misses", 0);
    fact(text, "pubsub_channels", node.registry.listened(Namespace::Channel).len());
    fact(text, "pubsub_patterns", node.registry.pattern_count());
    fact(text, "pubsubshard_channels", node.registry.listened(Namespace::Shard).len());
    fact(text, "client_output_buffer_limit_disconnections", sum(|stats| stats.closed_slow.get()));
    fact(text, "tavern_published", sum(|stats| stats.published.get()));
    fact(text, "tavern_delivered", sum(|stats| stats.delivered.get()));
}

fn write_replication(_: &RedisCall<'_, '_>, text: &mut String) {
    fact(text, "role", "master");
    fact(text, "connected_slaves", 0);
    fact(text, "master_failover_state", "no-failover");
    fact(text, "master_repl_offset", 0);
}

fn write_cpu(_: &RedisCall<'_, '_>, text: &mut String) {
    let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
    let (user, system) = cpu_ticks().unwrap_or_default();
    fact(text, "used_cpu_sys", format_args!("{:.6}", system as f64 / ticks));
    fact(text, "used_cpu_user", format_args!("{:.6}", user as f64 / ticks));
}

/// Processor time of this process in ticks: in user mode, in the kernel.
fn cpu_ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The second field is the program's name in brackets and may hold anything.
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_processor_time_are_read_from_the_kernel() {
        if cfg!(target_os = "linux") {
            assert!(resident_bytes() > 0);
            assert!(cpu_ticks().is_some());
        }
    }
}
