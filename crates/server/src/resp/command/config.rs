//! CONFIG: settings under their Redis names, for clients that read them. They cannot be changed this way: `CONFIG
//! SET` of a known name is accepted and changes nothing.

use super::{RedisCall, connection, text};
use crate::config::Config;
use crate::resp::RedisNext;
use std::collections::HashSet;
use tavern_domain::pattern;
use tavern_wire::resp as reply;

/// Names whose value never differs here.
const FIXED: &[(&str, &str)] = &[
    ("activerehashing", "yes"),
    ("appendfsync", "everysec"),
    ("appendonly", "no"),
    ("cluster-enabled", "no"),
    ("dir", "."),
    ("enable-debug-command", "yes"),
    ("hz", "10"),
    ("latency-tracking", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("loglevel", "notice"),
    ("maxmemory", "0"),
    ("maxmemory-policy", "noeviction"),
    ("notify-keyspace-events", ""),
    ("proto-inline-max-len", "65536"),
    ("protected-mode", "no"),
    ("requirepass", ""),
    ("save", ""),
    ("slowlog-log-slower-than", "-1"),
    ("slowlog-max-len", "0"),
    ("tcp-keepalive", "300"),
    ("timeout", "0"),
];

/// Every setting with its value, by name.
fn settings(config: &Config) -> Vec<(&'static str, String)> {
    let limits = &config.limits;
    let address = config.resp.unwrap_or(config.listen);
    let pending = limits.redis_pending_bytes;
    let mut all: Vec<(&'static str, String)> =
        FIXED.iter().map(|(name, value)| (*name, value.to_string())).collect();
    all.extend([
        ("bind", address.ip().to_string()),
        ("client-output-buffer-limit", format!("normal {pending} 0 0 slave 0 0 0 pubsub {pending} 0 0")),
        ("client-query-buffer-limit", limits.partial_total_bytes.to_string()),
        ("databases", connection::DATABASES.to_string()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", limits.connections.to_string()),
        ("port", address.port().to_string()),
        ("proto-max-bulk-len", limits.message_bytes.to_string()),
    ]);
    all.sort_unstable();
    all
}

/// Names are matched without regard to case; a name without special characters matches itself.
fn matching<'a>(globs: impl Iterator<Item = &'a [u8]>, all: &mut Vec<(&'static str, String)>) {
    let globs: Vec<Vec<u8>> = globs.map(<[u8]>::to_ascii_lowercase).collect();
    all.retain(|(name, _)| globs.iter().any(|glob| pattern::matches(glob, name.as_bytes())));
}

pub fn get(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let mut found = settings(&call.context.server.config);
    matching(call.rest(2), &mut found);
    let proto = call.proto();
    reply::map(call.out, found.len(), proto);
    for (name, value) in found {
        reply::bulk(call.out, name.as_bytes());
        reply::bulk(call.out, value.as_bytes());
    }
    RedisNext::Go
}

pub fn set(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let args: Vec<&[u8]> = call.rest(2).collect();
    let known = settings(&call.context.server.config);
    match check_set(&args, &known) {
        Ok(()) => call.ok(),
        Err(error) => {
            text::error(call.out, &error);
            RedisNext::Go
        }
    }
}

fn check_set(args: &[&[u8]], known: &[(&'static str, String)]) -> Result<(), Vec<u8>> {
    if !args.len().is_multiple_of(2) {
        return Err(text::SYNTAX.as_bytes().to_vec());
    }
    let mut seen = HashSet::new();
    for name in args.iter().step_by(2) {
        let lower = name.to_ascii_lowercase();
        if !known.iter().any(|(known, _)| known.as_bytes() == lower) {
            let name = text::quoted(name, 128);
            return Err(
                [b"ERR Unknown option or number of arguments for CONFIG SET - '", name, b"'"].concat()
            );
        }
        if !seen.insert(lower) {
            let before = b"ERR CONFIG SET failed (possibly related to argument '";
            return Err([before, text::quoted(name, 128), b"') - duplicate parameter"].concat());
        }
    }
    Ok(())
}

/// Counters of this server only grow: readers take differences.
pub fn resetstat(call: &mut RedisCall<'_, '_>) -> RedisNext {
    call.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed() -> Vec<(&'static str, String)> {
        FIXED.iter().map(|(name, value)| (*name, value.to_string())).collect()
    }

    #[test]
    fn settings_are_found_by_glob_and_in_any_case() {
        let find = |globs: &[&str]| {
            let mut all = fixed();
            matching(globs.iter().map(|glob| glob.as_bytes()), &mut all);
            all.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(find(&["SAVE"]), "save");
        assert_eq!(find(&["appendonl*", "appendonly", "save"]), "appendonly save");
        assert_eq!(find(&["nothing"]), "");
        assert_eq!(find(&["maxmemory*"]), "maxmemory maxmemory-policy");
    }

    #[test]
    fn known_names_can_be_set_once() {
        let check = |line: &str| {
            let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            check_set(&args, &fixed()).map_err(|error| String::from_utf8(error).unwrap())
        };
        assert_eq!(check("maxmemory 0 SAVE x"), Ok(()));
        assert_eq!(check("maxmemory 0 foo"), Err("ERR syntax error".to_string()));
        assert_eq!(
            check("foo bar"),
            Err("ERR Unknown option or number of arguments for CONFIG SET - 'foo'".to_string())
        );
        assert_eq!(
            check("maxmemory 1 maxmemory 2"),
            Err("ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter"
                .to_string())
        );
    }
}
