//! The way to the database: a connection, and how it is made again after it was lost. Trying goes on by itself, ever less
//! often, and is said in the log. Must hold: who asks for the connection waits only briefly for a new one.

use super::address::Address;
use super::link::Link;
use super::tls::Tls;
use super::value::Trouble;
use crate::intake::Arrivals;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Between two tries to connect: doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long work waits for a connection that was just lost: a restarted server or a cut is bridged.
const BRIDGE: Duration = Duration::from_secs(1);

/// Where the database is.
#[derive(Clone)]
pub(super) struct Door {
    pub address: Arc<Address>,
    pub tls: Tls,
    /// Somebody got through: the others need not wait for their turn.
    pub reached: Arc<Notify>,
    pub arrivals: Arc<Arrivals>,
}

pub(super) struct Way {
    door: Door,
    link: Option<Link>,
    /// Tries until there is a new connection.
    coming: Option<JoinHandle<Link>>,
    /// The short wait is over: until the connection is back nobody waits any more.
    down: bool,
}

impl Door {
    pub async fn connect(&self) -> Result<Link, Trouble> {
        Link::connect(&self.address, &self.tls).await
    }

    async fn connect_at_last(self) -> Link {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok(link) => {
                    self.arrivals.note(None);
                    self.reached.notify_waiters();
                    return link;
                }
                Err(trouble) => {
                    let (error, again_ms) = (&trouble as &dyn std::error::Error, pause.as_millis());
                    tracing::warn!(error, again_ms, "the database cannot be reached");
                }
            }
            if tokio::time::timeout(pause, self.reached.notified()).await.is_err() {
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

impl Way {
    pub fn new(door: Door, link: Link) -> Way {
        Way { door, link: Some(link), coming: None, down: false }
    }

    /// The connection. `Down`: there is none and it was waited for.
    pub async fn link(&mut self) -> Result<&Link, Trouble> {
        if self.link.as_ref().is_some_and(|link| link.client.is_closed()) {
            self.lose();
        }
        if self.link.is_none() {
            let door = &self.door;
            let coming = self.coming.get_or_insert_with(|| tokio::spawn(door.clone().connect_at_last()));
            let wait = if self.down { Duration::ZERO } else { BRIDGE };
            match tokio::time::timeout(wait, &mut *coming).await {
                Ok(outcome) => {
                    self.coming = None;
                    self.link = outcome.ok();
                    self.down = false;
                    tracing::info!("the database is reached again");
                }
                Err(_) => self.down = true,
            }
        }
        self.link.as_ref().ok_or(Trouble::Down)
    }

    /// The connection is of no more use.
    pub fn lose(&mut self) {
        if self.link.take().is_some() {
            tracing::warn!("the connection to the database was lost");
            self.coming = Some(tokio::spawn(self.door.clone().connect_at_last()));
        }
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        if let Some(coming) = self.coming.take() {
            coming.abort();
        }
    }
}
