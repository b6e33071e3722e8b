//! The way in: what an address says, how to log in to a server, and how to find the one that is in charge. Shared by the store
//! and the bus. Must hold: an error never repeats the address, which may hold a password.
//!
//! `redis://[[user]:password@]host[:port][/number][?option=value&…]` is one server; of several hosts the first that answers is
//! taken: they must be names of the same server. `redis-sentinel://host[:port],…?service=NAME` asks sentinels who is the
//! master. `redis-cluster://host[:port],…` begins with any of these and learns the others. `rediss…` is the same over TLS.
//!
//! | option | means |
//! |---|---|
//! | `prefix` | in front of every key of the store, `tavern` when it is not given |
//! | `ca` | a PEM file with the authorities to trust, instead of those that browsers trust |
//! | `service` | what sentinels call the master, `mymaster` when it is not given |
//! | `wait` | how many replicas must have a commit before it is answered, or `aof`: the server's disk must have it |

use super::socket::ask;
use crate::remote::{Address, Host, Socket, Tls, broken, dial};
use bytes::BytesMut;
use std::io;
use tavern_store::bus::BusError;
use tavern_wire::resp::Value;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const OPTIONS: [&str; 4] = ["prefix", "ca", "service", "wait"];
const PREFIX: &str = "tavern";
const PREFIX_BYTES: usize = 64;
const SERVICE: &str = "mymaster";
/// More replicas than anybody has.
const MOST_REPLICAS: u64 = 64;

#[derive(Clone)]
pub struct Door {
    pub hosts: Vec<Host>,
    pub kind: Kind,
    pub prefix: String,
    pub wait: Wait,
    user: Option<String>,
    password: Option<String>,
    database: u32,
    tls: Option<Tls>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Alone,
    Sentinel { service: String },
    Cluster,
}

/// What makes a commit safe enough to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Primary,
    Replicas(u64),
    Disk,
}

impl Door {
    pub fn parse(url: &str) -> Result<Door, BusError> {
        let scheme = url.split("://").next().unwrap_or("");
        let port = if scheme.ends_with("-sentinel") { SENTINEL_PORT } else { PORT };
        let mut address = Address::parse(url, port, &OPTIONS)?;
        let wrong = |what| BusError::Malformed { what };
        let service = address.options.remove("service");
        let (secure, kind) = match scheme {
            "redis" => (false, Kind::Alone),
            "rediss" => (true, Kind::Alone),
            "redis-cluster" => (false, Kind::Cluster),
            "rediss-cluster" => (true, Kind::Cluster),
            "redis-sentinel" | "rediss-sentinel" => {
                let service = service.unwrap_or_else(|| SERVICE.into());
                (scheme == "rediss-sentinel", Kind::Sentinel { service })
            }
            _ => return Err(wrong("scheme")),
        };
        let database = match &*address.path {
            "" => 0,
            number => number.parse().map_err(|_| wrong("number of the database"))?,
        };
        if database > 0 && kind == Kind::Cluster {
            return Err(wrong("number of the database: a cluster has one"));
        }
        let wait = match address.options.remove("wait").as_deref() {
            None | Some("0") => Wait::Primary,
            Some("aof") => Wait::Disk,
            Some(number) => match number.parse() {
                Ok(number) if number <= MOST_REPLICAS => Wait::Replicas(number),
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
        let tls = if secure { Some(Tls::new(authorities.as_deref())?) } else { None };
        let Address { user, password, hosts, .. } = address;
        Ok(Door { hosts, kind, prefix, wait, user, password, database, tls })
    }

    /// Whether nobody between can read.
    pub fn is_secret(&self) -> bool {
        self.tls.is_some()
    }

    /// Reaches a server and logs in; gives the bytes that came after that.
    pub async fn log_in(&self, host: &Host) -> io::Result<(Socket, BytesMut)> {
        let (mut socket, mut input) = self.reach(host).await?;
        self.greet(&mut socket, &mut input).await?;
        if self.database > 0 {
            ask(&mut socket, &mut input, &[b"SELECT", self.database.to_string().as_bytes()]).await?;
        }
        Ok((socket, input))
    }

    async fn greet(&self, socket: &mut Socket, input: &mut BytesMut) -> io::Result<()> {
        let mut hello: Vec<&[u8]> = vec![b"HELLO", b"3"];
        if let Some(password) = &self.password {
            let user = self.user.as_deref().unwrap_or("default");
            hello.extend([b"AUTH", user.as_bytes(), password.as_bytes()]);
        }
        ask(socket, input, &hello).await.map(drop)
    }

    async fn reach(&self, host: &Host) -> io::Result<(Socket, BytesMut)> {
        let plain = dial(host).await?;
        let socket: Socket = match &self.tls {
            Some(tls) => tls.wrap(plain, host).await?,
            None => Box::new(plain),
        };
        Ok((socket, BytesMut::new()))
    }

    /// Which life of the server this is; None: it does not tell.
    pub async fn life(&self, socket: &mut Socket, input: &mut BytesMut) -> io::Result<Option<String>> {
        Ok(match ask(socket, input, &[b"INFO", b"server"]).await {
            Ok((Value::Bulk(place), said)) => {
                let text = String::from_utf8_lossy(&said[place]).into_owned();
                text.lines().find_map(|line| line.strip_prefix("run_id:")).map(str::to_owned)
            }
            // Not every login may ask.
            _ => None,
        })
    }

    /// The server to use when this host is asked: itself, or what it says as a sentinel.
    pub async fn lead(&self, host: &Host) -> io::Result<Host> {
        let Kind::Sentinel { service } = &self.kind else { return Ok(host.clone()) };
        let (mut socket, mut input) = self.reach(host).await?;
        let question = [b"SENTINEL", &b"GET-MASTER-ADDR-BY-NAME"[..], service.as_bytes()];
        let said = match ask(&mut socket, &mut input, &question).await {
            // Sentinels seldom have a password; those that do must have the servers' own.
            Err(error) if error.to_string().starts_with("NOAUTH") => {
                self.greet(&mut socket, &mut input).await?;
                ask(&mut socket, &mut input, &question).await?
            }
            said => said?,
        };
        match said {
            (Value::List(parts), said) => match &parts[..] {
                [Value::Bulk(name), Value::Bulk(port)] => {
                    let name = String::from_utf8_lossy(&said[name.clone()]).into_owned();
                    let port = String::from_utf8_lossy(&said[port.clone()]).parse();
                    Ok(Host { name, port: port.map_err(|_| broken("a sentinel names no port"))? })
                }
                _ => Err(broken("a sentinel names no server")),
            },
            _ => Err(broken("the sentinel does not know this service")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_to_reach() {
        let door = Door::parse("redis://ann:s%20t@h/2?prefix=p:q&wait=2").unwrap();
        assert_eq!((door.kind, door.database, &*door.prefix), (Kind::Alone, 2, "p:q"));
        assert_eq!((door.wait, door.hosts[0].port), (Wait::Replicas(2), 6379));
        let door = Door::parse("redis-sentinel://a,b:1?service=x&wait=aof").unwrap();
        assert_eq!(door.kind, Kind::Sentinel { service: "x".into() });
        assert_eq!((door.wait, door.hosts[0].port, door.hosts[1].port), (Wait::Disk, 26379, 1));
        assert_eq!(&*Door::parse("redis-cluster://a").unwrap().prefix, "tavern");
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
            let error = Door::parse(url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
