//! Which server is loaded, and in which protocol. Parses addresses; opens nothing.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::Serialize;

/// A way of publishing and listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Redis,
    WebSocket,
    Nats,
    /// Long-poll over HTTP. Its publishers use the WebSocket of the same address.
    Poll,
    /// The WebSocket of a Pusher client. Its publishers use the HTTP API of that protocol.
    Pusher,
    PusherApi,
}

/// A server's address with the protocol to speak there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub protocol: Protocol,
    /// `host:port`, as given; also the `Host` header.
    pub authority: String,
}

impl Target {
    pub fn new(protocol: Protocol, address: SocketAddr) -> Self {
        Self { protocol, authority: address.to_string() }
    }

    /// The first address that the name stands for.
    pub fn resolve(&self) -> anyhow::Result<SocketAddr> {
        self.authority
            .to_socket_addrs()
            .with_context(|| format!("cannot resolve {}", self.authority))?
            .next()
            .with_context(|| format!("{} has no address", self.authority))
    }

    /// Where messages for listeners of this target are published when nothing else is said.
    pub fn publishing(&self) -> Self {
        match self.protocol {
            Protocol::Poll => Self { protocol: Protocol::WebSocket, authority: self.authority.clone() },
            Protocol::Pusher => Self { protocol: Protocol::PusherApi, authority: self.authority.clone() },
            _ => self.clone(),
        }
    }
}

impl FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (scheme, rest) = text.split_once("://").context("expected SCHEME://HOST:PORT")?;
        let protocol = match scheme {
            "redis" => Protocol::Redis,
            "ws" => Protocol::WebSocket,
            "nats" => Protocol::Nats,
            "http" | "poll" => Protocol::Poll,
            "pusher" => Protocol::Pusher,
            other => bail!("{other}: expected redis, ws, nats, pusher or http (long-poll)"),
        };
        let authority = rest.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').context("expected HOST:PORT after the scheme")?;
        port.parse::<u16>().with_context(|| format!("{port} is no port"))?;
        if host.is_empty() || host.contains('/') {
            bail!("{host:?} is no host");
        }
        Ok(Self { protocol, authority: authority.to_owned() })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Redis => "redis",
            Protocol::WebSocket => "ws",
            Protocol::Nats => "nats",
            Protocol::Poll => "http",
            Protocol::Pusher => "pusher",
            Protocol::PusherApi => "pusher-api",
        };
        write!(out, "{scheme}://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_chooses_the_protocol() {
        for (text, protocol) in [
            ("redis://127.0.0.1:7401", Protocol::Redis),
            ("ws://localhost:7400/", Protocol::WebSocket),
            ("nats://[::1]:4222", Protocol::Nats),
            ("http://127.0.0.1:7400", Protocol::Poll),
            ("pusher://127.0.0.1:7400", Protocol::Pusher),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.protocol, protocol);
            assert_eq!(target.to_string(), text.trim_end_matches('/'));
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["127.0.0.1:7401", "ftp://a:1", "redis://a", "redis://:1", "redis://a:70000", "ws://a/b:1"]
        {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn some_listeners_are_published_to_by_another_protocol() {
        let publishing = |text: &str| text.parse::<Target>().unwrap().publishing().to_string();
        assert_eq!(publishing("http://127.0.0.1:7400"), "ws://127.0.0.1:7400");
        assert_eq!(publishing("pusher://127.0.0.1:7400"), "pusher-api://127.0.0.1:7400");
        assert_eq!(publishing("redis://127.0.0.1:7401"), "redis://127.0.0.1:7401");
    }
}
