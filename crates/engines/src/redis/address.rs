//! The address of a Redis server, how to log in, and how to find the primary. Shared by the store and the bus.
//! Must hold: an error never repeats the address, which may contain a password.
//!
//! `redis://[[user]:password@]host[:port][/number][?option=value&…]` is one server; of several hosts the first that answers is
//! used: they must be names of the same server. `redis-sentinel://host[:port],…?service=NAME` asks sentinels for the
//! primary. `redis-cluster://host[:port],…` starts with any of these and discovers the others. `rediss…` is the same over TLS.
//!
//! | option | means |
//! |---|---|
//! | `prefix` | the prefix of every key of the store, by default `tavern` |
//! | `ca` | a PEM file with the authorities to trust, instead of those that browsers trust |
//! | `service` | the name of the primary at the sentinels, by default `mymaster` |
//! | `wait` | how many replicas must confirm a commit before it is answered, or `aof`: the server's disk must confirm
//! it |

use super::socket::ask;
use crate::remote::{BusSocket, BusTls, Host, ServerAddress, broken, dial};
use bytes::BytesMut;
use std::io;
use tavern_store::BusError;
use tavern_wire::resp::RespValue;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const OPTIONS: [&str; 4] = ["prefix", "ca", "service", "wait"];
const PREFIX: &str = "tavern";
const PREFIX_BYTES: usize = 64;
const SERVICE: &str = "mymaster";
/// More than any deployment has.
const MAX_REPLICAS: u64 = 64;

#[derive(Clone)]
pub struct RedisAddress {
    pub hosts: Vec<Host>,
    pub kind: RedisMode,
    pub prefix: String,
    pub durability: Durability,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    tls: Option<BusTls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisMode {
    Single,
    Sentinel { service: String },
    Cluster,
}

/// Who must confirm a commit before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    Primary,
    Replicas(u64),
    Disk,
}

impl RedisAddress {
    pub fn parse(url: &str) -> Result<RedisAddress, BusError> {
        let scheme = url.split("://").next().unwrap_or("");
        let port = if scheme.ends_with("-sentinel") { SENTINEL_PORT } else { PORT };
        let mut address = ServerAddress::parse(url, port, &OPTIONS)?;
        let wrong = |what| BusError::Malformed { what };
        let service = address.options.remove("service");
        let (secure, kind) = match scheme {
            "redis" => (false, RedisMode::Single),
            "rediss" => (true, RedisMode::Single),
            "redis-cluster" => (false, RedisMode::Cluster),
            "rediss-cluster" => (true, RedisMode::Cluster),
            "redis-sentinel" | "rediss-sentinel" => {
                let service = service.unwrap_or_else(|| SERVICE.into());
                (scheme == "rediss-sentinel", RedisMode::Sentinel { service })
            }
            _ => return Err(wrong("scheme")),
        };
        let database = match &*address.path {
            "" => 0,
            number => number.parse().map_err(|_| wrong("number of the database"))?,
        };
        if database > 0 && kind == RedisMode::Cluster {
            return Err(wrong("number of the database: a cluster has only 0"));
        }
        let durability = match address.options.remove("wait").as_deref() {
            None | Some("0") => Durability::Primary,
            Some("aof") => Durability::Disk,
            Some(number) => match number.parse() {
                Ok(number) if number <= MAX_REPLICAS => Durability::Replicas(number),
                _ => return Err(wrong("option wait")),
            },
        };
        let prefix = address.options.remove("prefix").unwrap_or_else(|| PREFIX.into());
        // A brace would change what Redis Cluster hashes.
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        if prefix.is_empty() || prefix.len() > PREFIX_BYTES || !prefix.bytes().all(plain) {
            return Err(wrong("option prefix"));
        }
        let authorities = address.options.remove("ca");
        let tls = if secure { Some(BusTls::new(authorities.as_deref())?) } else { None };
        let ServerAddress { user, password, hosts, .. } = address;
        Ok(RedisAddress { hosts, kind, prefix, durability, user, password, database, tls })
    }

    /// Whether connections are encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects to a server and logs in; returns what it sent after that.
    pub async fn log_in(&self, host: &Host) -> io::Result<(BusSocket, BytesMut)> {
        let (mut socket, mut input) = self.connect(host).await?;
        self.hello(&mut socket, &mut input).await?;
        if self.database > 0 {
            ask(&mut socket, &mut input, &[b"SELECT", self.database.to_string().as_bytes()]).await?;
        }
        Ok((socket, input))
    }

    async fn hello(&self, socket: &mut BusSocket, input: &mut BytesMut) -> io::Result<()> {
        let mut command: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &self.password {
            let user = self.user.as_deref().unwrap_or("default");
            command.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        ask(socket, input, &command).await.map(drop)
    }

    async fn connect(&self, host: &Host) -> io::Result<(BusSocket, BytesMut)> {
        let plain = dial(host).await?;
        let socket: BusSocket = match &self.tls {
            Some(tls) => tls.wrap(plain, host).await?,
            None => Box::new(plain),
        };
        Ok((socket, BytesMut::new()))
    }

    /// Changes when the server restarts; None: this login is not allowed to read it.
    pub async fn run_id(&self, socket: &mut BusSocket, input: &mut BytesMut) -> io::Result<Option<String>> {
        Ok(match ask(socket, input, &[b"INFO", b"server"]).await {
            Ok((RespValue::Bulk(place), received)) => {
                let text = String::from_utf8_lossy(&received[place]).into_owned();
                text.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned)
            }
            _ => None,
        })
    }

    /// The primary: the host itself, or the one that the host names as a sentinel.
    pub async fn primary(&self, host: &Host) -> io::Result<Host> {
        let RedisMode::Sentinel { service } = &self.kind else { return Ok(host.clone()) };
        let (mut socket, mut input) = self.connect(host).await?;
        let command = [b"SENTINEL", &b"GET-MASTER-ADDR-BY-NAME"[..], service.as_bytes()];
        let answer = match ask(&mut socket, &mut input, &command).await {
            // Sentinels rarely have a password; if they do, it must be that of the servers.
            Err(error) if error.to_string().starts_with("NOAUTH") => {
                self.hello(&mut socket, &mut input).await?;
                ask(&mut socket, &mut input, &command).await?
            }
            answer => answer?,
        };
        match answer {
            (RespValue::List(parts), received) => match &parts[..] {
                [RespValue::Bulk(name), RespValue::Bulk(port)] => {
                    let name = String::from_utf8_lossy(&received[name.clone()]).into_owned();
                    let port = String::from_utf8_lossy(&received[port.clone()]).parse();
                    Ok(Host { name, port: port.map_err(|_| broken("a sentinel sent no port"))? })
                }
                _ => Err(broken("a sentinel sent no server")),
            },
            _ => Err(broken("the sentinel does not know this service")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_parsed() {
        let address = RedisAddress::parse("redis://ann:s%20t@h/2?prefix=p:q&wait=2").unwrap();
        assert_eq!((address.kind, address.database, &*address.prefix), (RedisMode::Single, 2, "p:q"));
        assert_eq!((address.durability, address.hosts[0].port), (Durability::Replicas(2), 6379));
        let address = RedisAddress::parse("redis-sentinel://a,b:1?service=x&wait=aof").unwrap();
        assert_eq!(address.kind, RedisMode::Sentinel { service: "x".into() });
        assert_eq!(
            (address.durability, address.hosts[0].port, address.hosts[1].port),
            (Durability::Disk, 26379, 1)
        );
        assert_eq!(&*RedisAddress::parse("redis-cluster://a").unwrap().prefix, "tavern");
    }

    #[test]
    fn a_wrong_address_is_refused_without_being_repeated() {
        for url in [
            "redis://secret/x",
            "redis-cluster://secret/1",
            "redis://secret?wait=many",
            "redis://secret?prefix=a{b",
            "redis://secret?prefix=",
            "redis-what://secret",
        ] {
            let error = RedisAddress::parse(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
