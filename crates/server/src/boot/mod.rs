//! Starts and stops the server. The only place that opens engines by address.
//! Must hold: when `ready` is logged, everything listens; a clean stop leaves every session with another node or in the
//! store; when a part fails, the process exits with an error, even if other parts hang.

mod accept;
mod assemble;
mod engine_check;
mod node_name;
mod process;
mod start;
mod stop;

use crate::config::Config;
use crate::health::NodeHealth;
use crate::supervisor::{RUNTIME_THREAD, Supervisor};
use anyhow::Context;
use std::sync::Arc;
use std::time::Duration;

/// How long `/readyz` reports a failed part before connections are closed: load balancers check every second or two.
const FAILURE_NOTICE: Duration = Duration::from_secs(1);
/// After a failure the process exits within this time, even if something hangs.
const EXIT_DEADLINE: Duration = Duration::from_secs(10);
/// How long the remaining tasks of the runtime may take to end.
const RUNTIME_END: Duration = Duration::from_secs(1);

/// Runs the server until it is stopped by a signal or a part fails. `announce` is called when everything listens, with
/// the addresses that were bound.
pub fn run(config: Config, announce: impl FnOnce(&Config)) -> anyhow::Result<()> {
    process::start_log(&config);
    for warning in config.warnings() {
        tracing::warn!(warning, "configuration warning");
    }
    process::raise_descriptor_limit();
    process::keep_pages_small();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.saturating_sub(config.threads).max(1))
        .thread_name(RUNTIME_THREAD)
        .enable_all()
        .build()
        .context("cannot start the tokio runtime")?;
    let health = Arc::new(NodeHealth::default());
    let supervisor = Supervisor::new(health.clone(), exit_after_deadline);
    supervisor.watch_panics();
    let outcome = runtime.block_on(serve(config, health, &supervisor, announce));
    runtime.shutdown_timeout(RUNTIME_END);
    outcome
}

async fn serve(
    config: Config,
    health: Arc<NodeHealth>,
    supervisor: &Supervisor,
    announce: impl FnOnce(&Config),
) -> anyhow::Result<()> {
    let mut signals = process::StopSignals::listen()?;
    let running = tokio::select! {
        started = start::start(config, health.clone(), supervisor) => started?,
        failure = supervisor.failed() => return Err(failure.into()),
    };
    let config = &running.parts.config;
    announce(config);
    process::warn_of_plain_text(config);
    let admin = config.admin_listen.map(tracing::field::display);
    let redis = config.resp.map(tracing::field::display);
    tracing::info!(node = %config.node, http = %config.listen, admin, redis, shards = config.threads, "ready");
    let failure = tokio::select! {
        () = signals.wait() => None,
        failure = supervisor.failed() => Some(failure),
    };
    if failure.is_some() {
        tokio::time::sleep(FAILURE_NOTICE).await;
    }
    tracing::info!("stopping");
    health.begin_stop();
    let stopped = stop::stop(running, supervisor, failure.is_some()).await;
    // A part may also have failed during the stop.
    match supervisor.failure() {
        Some(failure) => Err(failure.into()),
        None => stopped,
    }
}

/// A wedged runtime or engine must not keep a failed process alive.
fn exit_after_deadline() {
    let exit = || {
        std::thread::sleep(EXIT_DEADLINE);
        tracing::error!("exit deadline reached after a part failed");
        std::process::exit(1);
    };
    if std::thread::Builder::new().name("exit-deadline".into()).spawn(exit).is_err() {
        std::process::exit(1);
    }
}
