//! The machine: disk space, file descriptors, ports, certificate, and settings that expose the server by mistake.

use super::{Finding, bad, doubtful, ok};
use crate::auth::Verifier;
use crate::cli::certificate::not_after;
use crate::cli::moment;
use crate::config::{Config, ServerMode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tavern_store::{Clock, SystemClock};

const PROBE_PATIENCE: Duration = Duration::from_secs(2);
const DAY_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;
/// Files that are not connections: the store, the listeners, logs, webhooks.
const SPARE_DESCRIPTORS: u64 = 200;

pub fn tokens(config: &Config, findings: &mut Vec<Finding>) {
    let verifier = match Verifier::new(config) {
        Ok(verifier) => verifier,
        Err(error) => return findings.push(bad("token keys", error.to_string())),
    };
    let files = config.token_keys.len() - verifier.key_sets().len();
    if files > 0 {
        findings.push(ok("token keys", format!("{files} in files")));
    }
    for set in verifier.key_sets() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let read = runtime.map(|runtime| runtime.block_on(set.read()));
        findings.push(match read {
            Ok(Ok(keys)) => ok("token keys", format!("{keys} from {}", set.host())),
            Ok(Err(error)) => {
                let host = set.host();
                bad("token keys", format!("cannot read the keys of {host}: {error}; check jwks_url"))
            }
            Err(error) => bad("token keys", error.to_string()),
        });
    }
}

pub fn permissions(config: &Config, findings: &mut Vec<Finding>) {
    if let Some(mode) = config.shared_data_mode() {
        let folder = config.data.display();
        let detail =
            format!("{folder} has the mode {mode:o}, so other users can look into it: chmod 700 {folder}");
        findings.push(doubtful("permissions", detail));
    }
}

pub fn disk(folder: &Path, findings: &mut Vec<Finding>) {
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let finding = match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize) / MIB;
            let detail = format!("{free} MiB free at {}", existing.display());
            match free {
                0..64 => bad("disk", format!("{detail}; the store needs disk space: free some")),
                64..1_024 => doubtful("disk", format!("{detail}; less than 1 GiB: free some")),
                _ => ok("disk", detail),
            }
        }
        Err(error) => doubtful("disk", format!("cannot check {}: {error}", existing.display())),
    };
    findings.push(finding);
}

pub fn descriptors(config: &Config, findings: &mut Vec<Finding>) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = config.limits.connections as u64 + SPARE_DESCRIPTORS;
    let (now, max) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    findings.push(if now >= wanted {
        ok("descriptors", format!("{now} allowed, {wanted} wanted"))
    } else {
        let detail = format!(
            "{now} allowed (at most {max}), {wanted} wanted for limits.connections: raise it with `ulimit -n {wanted}` \
             or LimitNOFILE, or lower limits.connections"
        );
        doubtful("descriptors", detail)
    });
}

pub fn ports(config: &Config, findings: &mut Vec<Finding>) {
    let plain = config.tls.is_none();
    findings.push(port("http port", config.listen, |stream| {
        !plain || answers(stream, b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n", &[b"HTTP/1.", b" 200 "])
    }));
    if let Some(resp) = config.resp {
        let probe = |stream: TcpStream| !plain || answers(stream, b"PING\r\n", &[b"+PONG"]) || refuses(resp);
        findings.push(port("redis port", resp, probe));
    }
}

/// Free, or in use by a Tavern server, which is fine: the doctor may run while the server runs.
fn port(subject: &'static str, address: SocketAddr, is_tavern: impl FnOnce(TcpStream) -> bool) -> Finding {
    let error = match TcpListener::bind(address) {
        Ok(_) => return ok(subject, format!("{address} is free")),
        Err(error) => error,
    };
    match TcpStream::connect_timeout(&address, PROBE_PATIENCE).map(is_tavern) {
        Ok(true) => ok(subject, format!("{address} is in use by a Tavern server")),
        Ok(false) => {
            bad(subject, format!("{address} is in use by another program: stop it or choose another port"))
        }
        Err(_) => bad(subject, format!("cannot listen on {address}: {error}")),
    }
}

fn answers(mut stream: TcpStream, question: &[u8], parts: &[&[u8]]) -> bool {
    let asked = stream.set_read_timeout(Some(PROBE_PATIENCE)).and_then(|()| stream.write_all(question));
    let mut answer = [0; 64];
    let count = asked.and_then(|()| stream.read(&mut answer)).unwrap_or(0);
    parts.iter().all(|part| answer[..count].windows(part.len()).any(|window| window == *part))
}

/// A server in serve mode refuses a PING without login.
fn refuses(address: SocketAddr) -> bool {
    let stream = TcpStream::connect_timeout(&address, PROBE_PATIENCE);
    stream.is_ok_and(|stream| answers(stream, b"PING\r\n", &[b"-NOAUTH"]))
}

pub fn tls(config: &Config, findings: &mut Vec<Finding>) {
    let Some(files) = &config.tls else { return };
    let chain: Vec<CertificateDer> = match CertificateDer::pem_file_iter(&files.cert)
        .and_then(|certificates| certificates.collect::<Result<_, _>>())
    {
        Ok(chain) => chain,
        Err(error) => {
            findings.push(bad("tls", format!("cannot read {}: {error}", files.cert.display())));
            return;
        }
    };
    if chain.is_empty() {
        findings.push(bad("tls", format!("{} contains no certificate in PEM form", files.cert.display())));
        return;
    }
    let key = match PrivateKeyDer::from_pem_file(&files.key) {
        Ok(key) => key,
        Err(error) => {
            findings.push(bad("tls", format!("{} contains no private key: {error}", files.key.display())));
            return;
        }
    };
    let end = chain.first().and_then(|certificate| not_after(certificate));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let fits = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    if let Err(error) = fits {
        findings.push(bad("tls", format!("the certificate and the key do not match: {error}")));
        return;
    }
    let Some(end) = end else {
        findings.push(doubtful("tls", "cannot read the expiry of the certificate"));
        return;
    };
    let (now, shown) = (SystemClock.now(), moment::show(end));
    findings.push(if now >= end {
        bad("tls", format!("the certificate expired at {shown}: renew it"))
    } else if end.since(now) < 14 * DAY_MS {
        doubtful("tls", format!("the certificate expires at {shown}: renew it soon"))
    } else {
        ok("tls", format!("the certificate is valid until {shown}"))
    });
}

/// Settings that are valid and often a mistake.
pub fn exposure(config: &Config, findings: &mut Vec<Finding>) {
    if config.mode == ServerMode::Dev {
        return;
    }
    if config.tls.is_none() && !config.listen.ip().is_loopback() && config.trusted_proxies.is_empty() {
        let detail = "listens on a public address without TLS: set tls_cert and tls_key, or put a proxy in front and \
                      name it in trusted_proxies";
        findings.push(doubtful("exposure", detail));
    }
    if config.origins.iter().any(|origin| origin == "*") {
        findings.push(doubtful("origins", "any web page may connect (\"*\"): list the allowed origins"));
    }
    if config.admin_key.as_ref().is_some_and(|key| key.expose().len() < 32) {
        findings
            .push(doubtful("admin key", "shorter than 32 bytes: generate one with `openssl rand -hex 32`"));
    }
}
