//! What a NATS server says about itself to whoever looks after it.

use super::dialect::{Nats, Server};
use crate::fact::{Fact, secrecy, version_number};
use crate::remote::{Address, look};
use tavern_store::bus::BusError;

/// The oldest line of servers that it was tried with.
const OLDEST: (u32, u32) = (2, 0);
/// Below this a full message and its envelope travel in parts.
const COMFORTABLE: usize = 128 * 1024;

pub fn facts(url: &str) -> Result<Vec<Fact>, BusError> {
    let address = Address::parse(url, super::PORT, super::OPTIONS)?;
    let hosts: Vec<String> = address.hosts.iter().map(|host| host.name.clone()).collect();
    let mut nats = Nats::new(address, "doctor")?;
    let server = look(async { nats.visit().await })?;
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    Ok(vec![
        version(&server),
        secrecy(server.is_tls, &hosts, "write tls:// instead of nats://"),
        payload(server.longest),
    ])
}

fn version(server: &Server) -> Fact {
    let text = format!("NATS {}", server.version);
    match version_number(&server.version) {
        found if found < OLDEST => {
            Fact::doubtful("version", format!("{text}; it was tried with 2.0 and newer"))
        }
        _ => Fact::good("version", text),
    }
}

fn payload(longest: usize) -> Fact {
    let text = format!("max_payload is {} KiB", longest / 1024);
    match longest {
        ..COMFORTABLE => Fact::doubtful(
            "payload",
            format!("{text}: longer messages travel in several parts; set it to 1 MiB"),
        ),
        _ => Fact::good("payload", text),
    }
}

impl Nats {
    /// Reaches the first server that takes us.
    async fn visit(&mut self) -> std::io::Result<Server> {
        let mut outcome = Err(crate::remote::broken("no server is named"));
        for host in crate::remote::Dialect::hosts(self).to_vec() {
            outcome = self.log_in(&host).await.map(|(_, _, server)| server);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}
