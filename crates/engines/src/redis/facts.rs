//! What an operator should know about a Redis server. Settings that the ACL of this login hides are reported too.

use super::address::RedisAddress;
use super::socket;
use crate::fact::{CheckResult, encryption, version_number};
use crate::remote::{BusSocket, ask, broken};
use bytes::BytesMut;
use std::collections::BTreeMap;
use std::io;
use tavern_store::BusError;
use tavern_wire::resp::RespValue;

/// What the server is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisRole {
    Store,
    Bus,
}

/// The first version with RESP3.
const OLDEST: (u32, u32) = (6, 0);

type RedisSettings = BTreeMap<String, String>;

pub fn facts(url: &str, duty: RedisRole) -> Result<Vec<CheckResult>, BusError> {
    let address = RedisAddress::parse(url)?;
    let (info, config) = ask(read_settings(&address))?;
    let hosts: Vec<&str> = address.hosts.iter().map(|host| &*host.name).collect();
    let tls = encryption(address.is_tls(), &hosts, "write rediss:// instead of redis://");
    let mut facts = vec![version(&info), tls];
    if duty == RedisRole::Store {
        facts.extend([durability(&info, &config), eviction(&info, &config)]);
        facts.extend(role(&info));
    }
    Ok(facts)
}

/// Both are optional: their commands may be forbidden.
async fn read_settings(address: &RedisAddress) -> io::Result<(Option<RedisSettings>, Option<RedisSettings>)> {
    let mut outcome = Err(broken("the address has no server"));
    for host in &address.hosts {
        outcome = match address.primary(host).await {
            Ok(leader) => address.log_in(&leader).await,
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            break;
        }
    }
    let (mut socket, mut input) = outcome?;
    let info = texts(&mut socket, &mut input, &[b"INFO"]).await?;
    let info = match info.as_deref() {
        Some([text]) => Some(lines(text)),
        _ => None,
    };
    let mut config = texts(&mut socket, &mut input, &[b"CONFIG", b"GET", b"append*"]).await?;
    let policy = texts(&mut socket, &mut input, &[b"CONFIG", b"GET", b"maxmemory*"]).await?;
    if let (Some(config), Some(policy)) = (&mut config, policy) {
        config.extend(policy);
    }
    let pairs = |parts: Vec<String>| {
        parts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<RedisSettings>()
    };
    Ok((info, config.map(pairs)))
}

/// The texts of a reply; None: the command is not allowed.
async fn texts(
    socket: &mut BusSocket,
    input: &mut BytesMut,
    parts: &[&[u8]],
) -> io::Result<Option<Vec<String>>> {
    let (value, received) = match socket::ask(socket, input, parts).await {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => return Ok(None),
        reply => reply?,
    };
    let text = |value: &RespValue| match value {
        RespValue::Bulk(place) | RespValue::Simple(place) => {
            String::from_utf8_lossy(&received[place.clone()]).into_owned()
        }
        _ => String::new(),
    };
    Ok(Some(match &value {
        RespValue::List(parts) => parts.iter().map(text).collect(),
        value => vec![text(value)],
    }))
}

/// `name:value`, one each line.
fn lines(text: &str) -> RedisSettings {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn version(info: &Option<RedisSettings>) -> CheckResult {
    let Some(version) = info.as_ref().and_then(|info| info.get("redis_version")) else {
        return CheckResult::doubtful(
            "version",
            "unknown: this user may not run INFO; 6.0 or newer is needed",
        );
    };
    match version_number(version) {
        found if found < OLDEST => {
            CheckResult::bad("version", format!("Redis {version}; 6.0 or newer is needed"))
        }
        _ => CheckResult::ok("version", format!("Redis {version}")),
    }
}

fn durability(info: &Option<RedisSettings>, config: &Option<RedisSettings>) -> CheckResult {
    let aof = info.as_ref().and_then(|info| info.get("aof_enabled")).map(|on| on == "1");
    let fsync = config.as_ref().and_then(|config| config.get("appendfsync")).map(String::as_str);
    match (aof, fsync) {
        (None, _) => CheckResult::doubtful(
            "durability",
            "unknown: this user may not run INFO; check appendonly=yes and appendfsync=everysec yourself",
        ),
        (Some(false), _) => CheckResult::doubtful(
            "durability",
            "appendonly=no: a restart of Redis loses everything since its last snapshot; set appendonly yes",
        ),
        (_, Some("no")) => CheckResult::doubtful(
            "durability",
            "appendfsync=no: a crash of the machine may lose half a minute; set it to everysec or always",
        ),
        (_, fsync) => {
            let shown = fsync.unwrap_or("unknown");
            CheckResult::ok("durability", format!("appendonly=yes, appendfsync={shown}"))
        }
    }
}

fn eviction(info: &Option<RedisSettings>, config: &Option<RedisSettings>) -> CheckResult {
    let of = |settings: &Option<RedisSettings>, name: &str| {
        settings.as_ref().and_then(|all| all.get(name)).cloned()
    };
    let policy = of(info, "maxmemory_policy").or_else(|| of(config, "maxmemory-policy"));
    match policy.as_deref() {
        None => CheckResult::doubtful(
            "eviction",
            "unknown: this user may not run INFO; check maxmemory-policy=noeviction yourself",
        ),
        Some("noeviction") => CheckResult::ok("eviction", "maxmemory-policy=noeviction"),
        Some(other) => CheckResult::bad(
            "eviction",
            format!(
                "maxmemory-policy={other}: Redis may evict rows when memory is short; set it to noeviction"
            ),
        ),
    }
}

fn role(info: &Option<RedisSettings>) -> Option<CheckResult> {
    let role = info.as_ref()?.get("role")?;
    (role != "master").then(|| {
        CheckResult::bad(
            "writing",
            format!("accepts no writes: it is a {role}; use the address of the primary"),
        )
    })
}
