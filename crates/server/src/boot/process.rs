//! The process as a whole: its log, its limits, the signals that stop it.

use crate::config::{Config, LogFormat};
use std::io::IsTerminal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub fn start_log(config: &Config) {
    let levels: Targets =
        config.log_level.parse().unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let of_modules = levels.iter().map(|(_, level)| level);
    let max = of_modules.chain(levels.default_level()).max().unwrap_or(LevelFilter::INFO);
    let builder =
        tracing_subscriber::fmt().with_max_level(max).with_writer(std::io::stderr).with_ansi(wants_colour());
    // A second server in one process keeps the first one's log.
    let _ = match config.log {
        LogFormat::Json => builder.json().finish().with(levels).try_init(),
        LogFormat::Text => builder.with_target(false).finish().with(levels).try_init(),
    };
}

/// Colours are for terminals; NO_COLOR switches them off there too.
fn wants_colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Tokens and keys that travel unencrypted can be read on the way.
pub fn warn_of_plain_text(config: &Config) {
    if config.tls.is_some() || !config.trusted_proxies.is_empty() {
        return;
    }
    let listens =
        [("listen", Some(config.listen)), ("admin_listen", config.admin_listen), ("resp", config.resp)];
    for (key, address) in listens {
        if let Some(address) = address.filter(|address| !address.ip().is_loopback()) {
            let advice = "set tls_cert and tls_key, or name the proxy that terminates TLS in trusted_proxies";
            tracing::warn!(key, %address, advice, "listening on a public address without TLS");
        }
    }
}

/// An idle connection touches little of its buffers; with huge pages it would occupy all of them.
pub fn keep_pages_small() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "cannot disable transparent huge pages");
    }
}

/// Raises the limit of file descriptors to the maximum: each connection needs one.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_err() {
        tracing::warn!(limit = limit.current, "cannot raise the limit of open files");
    }
}

/// SIGTERM and SIGINT, listened for before the first port opens.
pub struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    pub fn listen() -> anyhow::Result<StopSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(StopSignals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
