//! The address of a server: `scheme://[user[:password]@]host[:port][,host[:port]…][/path][?option=value&…]`.
//! Must hold: an error names the wrong part and never repeats the address, which may contain a password.

use std::collections::BTreeMap;
use tavern_store::BusError;

#[derive(Clone, PartialEq, Eq)]
pub struct ServerAddress {
    pub scheme: String,
    pub user: Option<String>,
    pub password: Option<String>,
    /// Tried in turn. At least one.
    pub hosts: Vec<Host>,
    /// The part between the hosts and the options, without its slash.
    pub path: String,
    pub options: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Host {
    pub name: String,
    pub port: u16,
}

/// Servers that one address may name.
const HOSTS: usize = 32;

impl ServerAddress {
    /// `port` is the default; only the `known` options are accepted.
    pub fn parse(url: &str, port: u16, known: &[&str]) -> Result<ServerAddress, BusError> {
        let (scheme, rest) = url.split_once("://").ok_or(BusError::Malformed { what: "scheme" })?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (rest, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match rest.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, rest),
        };
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            Some((user, password)) => (filled(user, "user")?, filled(password, "password")?),
            None => (None, None),
        };
        let hosts = hosts.split(',').map(|host| Host::parse(host, port)).collect::<Result<Vec<_>, _>>()?;
        if hosts.len() > HOSTS {
            return Err(BusError::Malformed { what: "list of hosts" });
        }
        let mut options = BTreeMap::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or(BusError::Malformed { what: "option" })?;
            if !known.contains(&name) {
                return Err(BusError::Malformed { what: "option" });
            }
            options.insert(name.to_owned(), decode(value).ok_or(BusError::Malformed { what: "option" })?);
        }
        Ok(ServerAddress { scheme: scheme.to_owned(), user, password, hosts, path: path.to_owned(), options })
    }
}

impl Host {
    fn parse(text: &str, default: u16) -> Result<Host, BusError> {
        let wrong = BusError::Malformed { what: "host or port" };
        // An IPv6 address is in brackets.
        let (name, port) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((name, port)) => (name, Some(port)),
                None => (text, None),
            },
        };
        let port = match port.filter(|port| !port.is_empty()).map(str::parse) {
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(wrong),
            None => default,
        };
        if name.is_empty() { Err(wrong) } else { Ok(Host { name: name.to_owned(), port }) }
    }
}

fn filled(text: &str, what: &'static str) -> Result<Option<String>, BusError> {
    match text {
        "" => Ok(None),
        text => decode(text).map(Some).ok_or(BusError::Malformed { what }),
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, port: u16) -> Host {
        Host { name: name.into(), port }
    }

    #[test]
    fn an_address_is_read_in_its_parts() {
        let address =
            ServerAddress::parse("nats://ann:p%40ss@a:1,[::1]:2,c?token=x%20y", 4222, &["token"]).unwrap();
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("ann"), Some("p@ss")));
        assert_eq!(address.hosts, [host("a", 1), host("::1", 2), host("c", 4222)]);
        assert_eq!(address.options["token"], "x y");
        let address = ServerAddress::parse("redis://:secret@h/3", 6379, &[]).unwrap();
        assert_eq!((address.user, address.password.as_deref()), (None, Some("secret")));
        assert_eq!((address.hosts, &*address.path), (vec![host("h", 6379)], "3"));
    }

    #[test]
    fn a_wrong_address_is_refused_without_being_repeated() {
        for url in [
            "redis:secret",
            "redis://",
            "redis://secret:x",
            "redis://u:%zz@secret",
            "redis://h?secret=1",
            "redis://a,,b",
            "redis://h:99999",
        ] {
            let error =
                ServerAddress::parse(url, 1, &["ca"]).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
