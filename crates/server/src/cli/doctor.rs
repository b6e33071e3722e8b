//! `tavern doctor`: what a server needs around it. Looks and measures; changes nothing but one document of its own,
//! which it removes again. Every finding that is not good says what to do.

use super::certificate::not_after;
use super::options::Options;
use super::table::{self, Colour, paint};
use super::{local, moment, print_line};
use crate::auth::Verifier;
use crate::config::{Config, Mode};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tavern_engine::blocking::Client;
use tavern_engine::{
    Clock, Commit, Document, DocumentKey, Found, Read as StoreRead, Row, StoreError, SystemClock,
};
use tavern_local::Stat;

#[derive(clap::Args)]
pub struct Args {
    /// Look at it as `tavern dev` would
    #[arg(long)]
    dev: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Doubtful,
    Bad,
}

struct Finding {
    verdict: Verdict,
    subject: &'static str,
    detail: String,
}

const STORE_PATIENCE: Duration = Duration::from_secs(5);
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// A commit slower than this makes every command that waits for one feel slow.
const SLOW_COMMIT: Duration = Duration::from_millis(100);
const DAY_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;
/// Files that are not connections: the store, the listeners, logs, webhooks.
const SPARE_DESCRIPTORS: u64 = 200;

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mode = if args.dev { Mode::Dev } else { Mode::Serve };
    let loaded = args.options.load(mode, true)?;
    let mut findings = Vec::new();
    for error in &loaded.errors {
        findings.push(bad("configuration", error.to_string()));
    }
    let config = &loaded.config;
    if loaded.errors.is_empty() {
        findings.push(good("configuration", format!("valid, node {}", config.node)));
    }
    tokens(config, &mut findings);
    store(config, &mut findings);
    bus(&config.data, &mut findings);
    disk(&config.data, &mut findings);
    descriptors(config, &mut findings);
    // Without a valid configuration the addresses are guesses.
    if loaded.errors.is_empty() {
        ports(config, &mut findings);
    }
    tls(config, &mut findings);
    exposure(config, &mut findings);
    report(&findings)
}

fn report(findings: &[Finding]) -> anyhow::Result<ExitCode> {
    let colour = table::wants_colour();
    let row = |finding: &Finding| {
        let word = match finding.verdict {
            Verdict::Good => paint("ok", Colour::Green, colour),
            Verdict::Doubtful => paint("warn", Colour::Yellow, colour),
            Verdict::Bad => paint("fail", Colour::Red, colour),
        };
        vec![word, finding.subject.to_owned(), finding.detail.clone()]
    };
    let rows: Vec<Vec<String>> = findings.iter().map(row).collect();
    print_line(table::columns(&rows).trim_end())?;
    let failed = findings.iter().any(|finding| finding.verdict == Verdict::Bad);
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn good(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Good, subject, detail: detail.into() }
}

fn doubtful(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Doubtful, subject, detail: detail.into() }
}

fn bad(subject: &'static str, detail: impl Into<String>) -> Finding {
    Finding { verdict: Verdict::Bad, subject, detail: detail.into() }
}

fn tokens(config: &Config, findings: &mut Vec<Finding>) {
    if let Err(error) = Verifier::new(config) {
        findings.push(bad("token keys", error.to_string()));
    } else if !config.token_keys.is_empty() {
        findings.push(good("token keys", format!("{} public keys", config.token_keys.len())));
    }
}

fn store(config: &Config, findings: &mut Vec<Finding>) {
    // Opening would make the folder, and a look must not.
    if config.store.starts_with("sqlite:") && !config.data.exists() {
        let detail = format!("{} does not exist yet; the first start makes it", config.data.display());
        findings.push(doubtful("store", detail));
        return;
    }
    let outcome = Client::open(&config.store, Arc::new(SystemClock), STORE_PATIENCE)
        .and_then(|client| round_trip(&client).map(|trip| (client.store().name(), trip)));
    match outcome {
        Ok((name, trip)) => {
            let detail = format!("{name}: wrote in {:.1?}, read in {:.1?}", trip.write, trip.read);
            findings.push(if trip.write > SLOW_COMMIT {
                doubtful("store", format!("{detail}; slow: is the disk busy, or the store far away?"))
            } else {
                good("store", detail)
            });
            findings.push(clock(trip.apart_ms));
        }
        Err(error) => {
            findings.push(bad("store", format!("{error}; check `store`, the folder and its rights")))
        }
    }
}

struct RoundTrip {
    write: Duration,
    read: Duration,
    apart_ms: u64,
}

/// Writes a document, reads it back, removes it, and looks at the store's clock.
fn round_trip(client: &Client) -> Result<RoundTrip, StoreError> {
    let key = DocumentKey::new("doctor", &format!("{:032x}", crate::auth::random_bits()));
    let document = Row::Document(Document { key: key.clone(), body: Arc::from(*b"how do you do") });
    let row = document.key();
    let began = Instant::now();
    client.commit(Commit { puts: vec![document], ..Commit::default() })?;
    let write = began.elapsed();
    let began = Instant::now();
    let found = client.read(StoreRead::Document(key))?;
    let read = began.elapsed();
    client.commit(Commit { deletes: vec![row], ..Commit::default() })?;
    if !matches!(found, Found::Document(Some(_))) {
        let what = "a document was gone right after it was written".to_owned();
        return Err(StoreError::Corrupt { what, source: None });
    }
    let apart_ms = match client.read(StoreRead::Time)? {
        Found::Time(time) => time.ms().abs_diff(SystemClock.now().ms()),
        _ => 0,
    };
    Ok(RoundTrip { write, read, apart_ms })
}

fn clock(apart_ms: u64) -> Finding {
    let detail = format!("{apart_ms} ms between this machine and the store");
    match apart_ms {
        0..1_000 => good("clock", detail),
        1_000..30_000 => doubtful("clock", format!("{detail}; synchronise the clocks (NTP)")),
        _ => bad(
            "clock",
            format!("{detail}; tokens and deadlines will be wrong: synchronise the clocks (NTP)"),
        ),
    }
}

/// The bus in the folder, if anybody has made one: the dead and the slow are its only troubles.
fn bus(folder: &Path, findings: &mut Vec<Finding>) {
    let outcome = local::open(folder).and_then(|bus| Ok(bus.map(|bus| bus.stat()).transpose()?));
    match outcome {
        Ok(Some(stat)) => findings.push(bus_health(folder, &stat)),
        Ok(None) => {}
        Err(error) => findings.push(bad("bus", super::told(&error))),
    }
}

fn bus_health(folder: &Path, stat: &Stat) -> Finding {
    let bounds = tavern_local::Options::default();
    let living = stat.processes.iter().filter(|process| process.alive);
    let alive = living.clone().count();
    let dead = stat.processes.len() - alive;
    let listening = local::counted(alive as u64, "process listens", "processes listen");
    let log = local::counted(stat.log_messages, "message", "messages");
    let detail = format!("{listening}, {log} ({}) under way", table::size(stat.log_bytes));
    let full =
        stat.log_messages >= bounds.log_messages / 10 * 9 || stat.log_bytes >= bounds.log_bytes / 10 * 9;
    let slowest = living.max_by_key(|process| process.queued);
    if dead > 0 {
        let remedy = format!("clean up with `tavern local stat --sweep --data {}`", folder.display());
        doubtful("bus", format!("{detail}, {dead} dead: {remedy}"))
    } else if let (true, Some(slowest)) = (full, slowest) {
        let fault = format!("process {} does not keep up and loses messages: look at it", slowest.pid);
        doubtful("bus", format!("{detail}; the log is full: {fault}"))
    } else {
        good("bus", detail)
    }
}

fn disk(folder: &Path, findings: &mut Vec<Finding>) {
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let finding = match rustix::fs::statvfs(existing) {
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize) / MIB;
            let detail = format!("{free} MiB free at {}", existing.display());
            match free {
                0..64 => bad("disk", format!("{detail}; the store needs room: free some")),
                64..1_024 => doubtful("disk", format!("{detail}; less than 1 GiB: free some")),
                _ => good("disk", detail),
            }
        }
        Err(error) => doubtful("disk", format!("cannot look at {}: {error}", existing.display())),
    };
    findings.push(finding);
}

fn descriptors(config: &Config, findings: &mut Vec<Finding>) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = config.limits.connections as u64 + SPARE_DESCRIPTORS;
    let (now, most) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    findings.push(if now >= wanted {
        good("descriptors", format!("{now} allowed, {wanted} wanted"))
    } else {
        let detail = format!(
            "{now} allowed (at most {most}), {wanted} wanted for limits.connections: raise it with `ulimit -n {wanted}` \
             or LimitNOFILE, or lower limits.connections"
        );
        doubtful("descriptors", detail)
    });
}

fn ports(config: &Config, findings: &mut Vec<Finding>) {
    let plain = config.tls.is_none();
    findings.push(port("http port", config.listen, |stream| {
        !plain || answers(stream, b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n", &[b"HTTP/1.", b" 200 "])
    }));
    if let Some(resp) = config.resp {
        let probe = |stream: TcpStream| !plain || answers(stream, b"PING\r\n", &[b"+PONG"]) || refuses(resp);
        findings.push(port("redis port", resp, probe));
    }
}

/// Free, or held by a Tavern, which is fine: the doctor may visit while the server runs.
fn port(subject: &'static str, address: SocketAddr, is_tavern: impl FnOnce(TcpStream) -> bool) -> Finding {
    let error = match TcpListener::bind(address) {
        Ok(_) => return good(subject, format!("{address} is free")),
        Err(error) => error,
    };
    match TcpStream::connect_timeout(&address, PROBE_PATIENCE).map(is_tavern) {
        Ok(true) => good(subject, format!("{address} is answered by a server")),
        Ok(false) => {
            bad(subject, format!("{address} is held by another program: stop it or choose another port"))
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

/// A server in serve mode wants to know who pings.
fn refuses(address: SocketAddr) -> bool {
    let stream = TcpStream::connect_timeout(&address, PROBE_PATIENCE);
    stream.is_ok_and(|stream| answers(stream, b"PING\r\n", &[b"-NOAUTH"]))
}

fn tls(config: &Config, findings: &mut Vec<Finding>) {
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
        findings.push(bad("tls", format!("{} holds no certificate in PEM form", files.cert.display())));
        return;
    }
    let key = match PrivateKeyDer::from_pem_file(&files.key) {
        Ok(key) => key,
        Err(error) => {
            findings.push(bad("tls", format!("{} holds no private key: {error}", files.key.display())));
            return;
        }
    };
    let end = chain.first().and_then(|certificate| not_after(certificate));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let fits = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    if let Err(error) = fits {
        findings.push(bad("tls", format!("certificate and key do not fit together: {error}")));
        return;
    }
    let Some(end) = end else {
        findings.push(doubtful("tls", "the certificate's end of validity cannot be read"));
        return;
    };
    let (now, shown) = (SystemClock.now(), moment::show(end));
    findings.push(if now >= end {
        bad("tls", format!("the certificate expired at {shown}: renew it"))
    } else if end.since(now) < 14 * DAY_MS {
        doubtful("tls", format!("the certificate expires at {shown}: renew it soon"))
    } else {
        good("tls", format!("the certificate is valid until {shown}"))
    });
}

/// Things that are allowed and still deserve a second look.
fn exposure(config: &Config, findings: &mut Vec<Finding>) {
    if config.mode == Mode::Dev {
        return;
    }
    if config.tls.is_none() && !config.listen.ip().is_loopback() && config.trusted_proxies.is_empty() {
        let detail = "listens beyond this machine without TLS: set tls_cert and tls_key, or put a proxy in front and \
                      name it in trusted_proxies";
        findings.push(doubtful("exposure", detail));
    }
    if config.origins.iter().any(|origin| origin == "*") {
        findings.push(doubtful("origins", "any web page may connect (\"*\"): list the pages that should"));
    }
    if config.admin_key.as_ref().is_some_and(|key| key.expose().len() < 32) {
        findings.push(doubtful("admin key", "shorter than 32 bytes: make one with `openssl rand -hex 32`"));
    }
}
