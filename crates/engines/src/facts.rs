//! What an operator should know about the servers behind a store and a bus: versions, settings, tables. Asked on connections
//! of their own, for `tavern doctor`. Must hold: nothing is changed, not even tables that are missing are made.

use tavern_store::bus::BusError;
use tavern_store::error::StoreError;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub health: Health,
    /// A word or two: what it is about.
    pub about: &'static str,
    /// What was found and, if it is not good, what to do.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Good,
    Doubtful,
    Bad,
}

/// What a look at a store found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    pub facts: Vec<Fact>,
    /// The tables are as this program makes them: opening the store changes nothing.
    pub is_made: bool,
}

/// The servers on other machines can be asked; a folder and the memory have nothing to tell.
pub fn store_facts(url: &str) -> Result<StoreFacts, StoreError> {
    match url.split(':').next().unwrap_or("") {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => crate::postgres::facts(url),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => {
            let facts = crate::redis::facts(url, crate::redis::Duty::Store).map_err(of_store)?;
            Ok(StoreFacts { facts, is_made: true })
        }
        _ => Ok(StoreFacts { facts: Vec::new(), is_made: true }),
    }
}

pub fn bus_facts(url: &str) -> Result<Vec<Fact>, BusError> {
    match url.split(':').next().unwrap_or("") {
        #[cfg(feature = "nats")]
        "nats" | "tls" => crate::nats::facts(url),
        #[cfg(feature = "redis")]
        "redis" | "rediss" => crate::redis::facts(url, crate::redis::Duty::Bus),
        _ => Ok(Vec::new()),
    }
}

/// The same server under another name.
#[cfg(feature = "redis")]
fn of_store(error: BusError) -> StoreError {
    match error {
        BusError::Unavailable { retry_after_ms, source } => {
            StoreError::Unavailable { retry_after_ms, source }
        }
        BusError::Address { kind } => StoreError::Address { kind },
        BusError::Malformed { what } => StoreError::Malformed { what },
    }
}

impl Fact {
    pub(crate) fn good(about: &'static str, text: impl Into<String>) -> Fact {
        Fact { health: Health::Good, about, text: text.into() }
    }

    pub(crate) fn doubtful(about: &'static str, text: impl Into<String>) -> Fact {
        Fact { health: Health::Doubtful, about, text: text.into() }
    }

    pub(crate) fn bad(about: &'static str, text: impl Into<String>) -> Fact {
        Fact { health: Health::Bad, about, text: text.into() }
    }
}

/// Whether words travel hidden. Between programs of one machine that does not matter.
#[cfg(any(feature = "postgres", feature = "remote"))]
pub(crate) fn secrecy(is_tls: bool, hosts: &[&str], remedy: &str) -> Fact {
    let on_loopback = |host: &&str| {
        **host == *"localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    match is_tls {
        true => Fact::good("tls", "the connection is encrypted"),
        false if hosts.iter().all(on_loopback) => Fact::good("tls", "none, on this machine alone"),
        false => Fact::doubtful(
            "tls",
            format!(
                "none: passwords and messages travel in the open; {remedy}, or keep them on a network of your own"
            ),
        ),
    }
}

/// `7.0.15` and the like, to compare.
#[cfg(feature = "remote")]
pub(crate) fn version_number(text: &str) -> (u32, u32) {
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
