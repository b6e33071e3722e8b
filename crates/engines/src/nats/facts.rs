//! What an operator should know about a NATS server.

use super::protocol::{self, Nats, Server};
use crate::fact::{CheckResult, encryption, version_number};
use crate::remote::{BusProtocol, ask, broken};
use tavern_store::BusError;

/// The oldest tested version.
const OLDEST: (u32, u32) = (2, 0);
/// Below this, a message of the largest size is sent in parts.
const COMFORTABLE: usize = 128 * 1024;

pub fn facts(url: &str) -> Result<Vec<CheckResult>, BusError> {
    let address = protocol::parse(url)?;
    let hosts: Vec<String> = address.hosts.iter().map(|host| host.name.clone()).collect();
    let mut nats = Nats::new(address, "doctor")?;
    let server = ask(async { visit(&mut nats).await })?;
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    Ok(vec![
        version(&server),
        encryption(server.is_tls, &hosts, "write tls:// instead of nats://"),
        payload(server.max_message),
    ])
}

fn version(server: &Server) -> CheckResult {
    let text = format!("NATS {}", server.version);
    match version_number(&server.version) {
        found if found < OLDEST => {
            CheckResult::doubtful("version", format!("{text}; tested with 2.0 and newer"))
        }
        _ => CheckResult::ok("version", text),
    }
}

fn payload(max_message: usize) -> CheckResult {
    let text = format!("max_payload is {} KiB", max_message / 1024);
    match max_message {
        ..COMFORTABLE => CheckResult::doubtful(
            "payload",
            format!("{text}: longer messages are sent in parts; set it to 1 MiB"),
        ),
        _ => CheckResult::ok("payload", text),
    }
}

/// Logs in to the first server that accepts the node.
async fn visit(nats: &mut Nats) -> std::io::Result<Server> {
    let mut outcome = Err(broken("the address has no server"));
    for host in nats.hosts().to_vec() {
        outcome = nats.log_in(&host).await.map(|(_, _, server)| server);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
