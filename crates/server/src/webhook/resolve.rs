//! Resolves names; `address` decides which addresses are allowed. Must hold: slow name servers block a bounded number of
//! threads.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Concurrent lookups. The system's resolver blocks a thread, for many seconds when a name server is silent, and
/// cannot be interrupted; the others wait within their own timeouts.
const AT_ONCE: usize = 64;

pub type ResolvedAddresses<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// A resolver of names; tests have their own.
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
            // The caller may have given up, but the thread is still busy: hold the permit until it ends.
            let looking = tokio::spawn(async move {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                drop(turn);
                found.map(|found| found.map(|address| address.ip()).collect())
            });
            looking.await.map_err(io::Error::other)?
        })
    }
}
