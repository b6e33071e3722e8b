//! Owns every long-lived thread and task of the process. A part that panics, or returns before the server stops, is a
//! failure: it is logged with its name and reason, the node is not ready from then on, and boot ends the process.
//! Must hold: no part ends unnoticed; a failure is reported once. Threads that an engine starts itself are covered by
//! the panic hook; tasks that serve one connection or one request are not parts (see `panics::contain`).

pub mod fault;
pub mod panics;

use crate::health::NodeHealth;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The name of the threads that run tasks. A panic there ends one task and not the thread.
pub const RUNTIME_THREAD: &str = "runtime";

#[derive(Clone)]
pub struct Supervisor(Arc<SupervisorState>);

struct SupervisorState {
    health: Arc<NodeHealth>,
    failure: OnceLock<Failure>,
    failed: Notify,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// Called once, on the thread on which the first part failed.
    on_failure: Box<dyn Fn() + Send + Sync>,
}

/// The part that ended first, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part} {reason}")]
pub struct Failure {
    pub part: Arc<str>,
    pub reason: FailureReason,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureReason {
    #[error("panicked: {0}")]
    Panicked(String),
    #[error("returned before the server stopped")]
    Returned,
}

/// Whether a part may return while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartLifetime {
    UntilStop,
    Once,
}

impl Supervisor {
    pub fn new(health: Arc<NodeHealth>, on_failure: impl Fn() + Send + Sync + 'static) -> Supervisor {
        Supervisor(Arc::new(SupervisorState {
            health,
            failure: OnceLock::new(),
            failed: Notify::new(),
            threads: Mutex::default(),
            on_failure: Box::new(on_failure),
        }))
    }

    /// From now on a panic on any thread except those that run tasks is a failure of that thread.
    pub fn watch_panics(&self) {
        let shared = Arc::downgrade(&self.0);
        panics::install(move |thread, message| {
            if thread != RUNTIME_THREAD
                && let Some(shared) = shared.upgrade()
            {
                shared.fail(thread, FailureReason::Panicked(message.to_owned()));
            }
        });
    }

    /// Starts a task that runs until the server stops.
    pub fn task(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> SupervisedTask {
        self.spawn(name, PartLifetime::UntilStop, work)
    }

    /// Starts a task that ends by itself when its work is done.
    pub fn task_once(&self, name: &str, work: impl Future<Output = ()> + Send + 'static) -> SupervisedTask {
        self.spawn(name, PartLifetime::Once, work)
    }

    fn spawn(
        &self,
        name: &str,
        life: PartLifetime,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> SupervisedTask {
        let part = SupervisedPart { shared: self.0.clone(), name: name.into(), life };
        SupervisedTask(tokio::spawn(async move {
            let part = part;
            fault::until_due(&part.name, work).await;
        }))
    }

    /// Starts a thread that runs until the server stops.
    pub fn thread(&self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let part =
            SupervisedPart { shared: self.0.clone(), name: name.into(), life: PartLifetime::UntilStop };
        let run = move || {
            let _part = part;
            work();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        self.0.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Waits for the threads that were started here. Blocks.
    pub fn join_threads(&self) {
        let threads = std::mem::take(&mut *self.0.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // The end of a thread is already reported.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }

    /// Waits until a part fails.
    pub async fn failed(&self) -> Failure {
        loop {
            if let Some(failure) = self.failure() {
                return failure;
            }
            self.0.failed.notified().await;
        }
    }

    pub fn failure(&self) -> Option<Failure> {
        self.0.failure.get().cloned()
    }
}

impl SupervisorState {
    fn fail(&self, part: &str, reason: FailureReason) {
        let failure = Failure { part: part.into(), reason };
        if self.failure.set(failure.clone()).is_err() {
            return;
        }
        self.health.set_failed(failure.part.clone());
        tracing::error!(part = %failure.part, reason = %failure.reason, "part failed; stopping the server");
        (self.on_failure)();
        // A permit is kept for a waiter that has not begun to wait.
        self.failed.notify_one();
    }
}

/// A task that was started by the supervisor.
pub struct SupervisedTask(JoinHandle<()>);

impl SupervisedTask {
    pub fn abort(&self) {
        self.0.abort();
    }

    /// Waits until it has ended, however it ended.
    pub async fn ended(self) {
        let _ = self.0.await;
    }
}

/// Lives as long as its thread or task; its drop is the end of the part.
struct SupervisedPart {
    shared: Arc<SupervisorState>,
    name: Arc<str>,
    life: PartLifetime,
}

impl Drop for SupervisedPart {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(&self.name, FailureReason::Panicked(panics::last_message()));
        } else if self.life == PartLifetime::UntilStop && !self.shared.health.is_stopping() {
            self.shared.fail(&self.name, FailureReason::Returned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn supervisor() -> (Supervisor, Arc<NodeHealth>, Arc<AtomicUsize>) {
        let (health, calls) = (Arc::new(NodeHealth::default()), Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let supervisor = Supervisor::new(health.clone(), move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (supervisor, health, calls)
    }

    #[tokio::test]
    async fn a_task_that_panics_or_returns_early_is_a_failure() {
        let (panicking, health, calls) = supervisor();
        panicking.task("delivery", async { panic!("planted") }).ended().await;
        let failure = panicking.failed().await;
        assert_eq!(&*failure.part, "delivery");
        assert!(matches!(failure.reason, FailureReason::Panicked(_)));
        panicking.task("retention", async {}).ended().await;
        assert_eq!(panicking.failure(), Some(failure), "the first failure stays");
        assert_eq!((health.failed_part(), calls.load(Ordering::Relaxed)), (Some("delivery"), 1));

        let (returning, _, _) = supervisor();
        returning.task("retention", async {}).ended().await;
        assert_eq!(returning.failure().unwrap().reason, FailureReason::Returned);
    }

    #[tokio::test]
    async fn a_part_may_end_when_the_server_stops_or_its_work_is_done() {
        let (supervisor, health, _) = supervisor();
        supervisor.task_once("matchmaker", async {}).ended().await;
        assert_eq!(supervisor.failure(), None);
        let waiting = supervisor.task("liveness", std::future::pending());
        health.begin_stop();
        waiting.abort();
        waiting.ended().await;
        supervisor.thread("shard-0", || {}).unwrap();
        supervisor.join_threads();
        assert_eq!(supervisor.failure(), None);
        supervisor.task_once("once", async { panic!("planted") }).ended().await;
        assert_eq!(&*supervisor.failure().unwrap().part, "once", "a panic is always a failure");
    }

    #[test]
    fn a_thread_that_returns_early_is_a_failure() {
        let (supervisor, health, _) = supervisor();
        supervisor.thread("shard-1", || {}).unwrap();
        supervisor.join_threads();
        let failure = supervisor.failure().unwrap();
        assert_eq!(failure.to_string(), "shard-1 returned before the server stopped");
        assert_eq!(health.failed_part(), Some("shard-1"));
    }
}
