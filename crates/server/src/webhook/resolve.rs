//! Looks up the addresses of a name; which are allowed is decided elsewhere. Must hold: slow name servers occupy a bounded
//! number of threads.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Lookups under way at once. The system's resolver blocks a thread, for many seconds when a name server is silent, and
/// cannot be interrupted; the others wait within their own timeouts.
const AT_ONCE: usize = 64;

pub type ResolvedAddresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Where names are looked up. A test has its own.
pub trait Resolver: Send + Sync {
    fn look_up<'a>(&'a self, name: &'a str) -> ResolvedAddresses<'a>;
}

/// The resolver of the machine.
pub struct SystemResolver {
    turns: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> SystemResolver {
        SystemResolver { turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Resolver for SystemResolver {
    fn look_up<'a>(&'a self, name: &'a str) -> ResolvedAddresses<'a> {
        Box::pin(async move {
            let turn = self.turns.clone().acquire_owned().await.map_err(io::Error::other)?;
            let name = name.to_owned();
            // The caller may have given up; the thread is busy all the same, so its permit is held until it ends.
            let looking = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                drop(turn);
                found.map(|found| found.map(|address| address.ip()).collect())
            });
            looking.await.map_err(io::Error::other)?
        })
    }
}
