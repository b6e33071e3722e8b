//! The end of accepting, when the server stops: the kernel refuses new connections, so that a proxy tries another server, and
//! idle HTTP connections end. Requests of services that have begun are answered before the shards stop.
//! Must hold: a request that was accepted is not refused because the server stops, unless it takes too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long connections without a request stay open when nothing is accepted any more. Answers say that the connection closes, so
/// that a proxy does not send a request on one that is closed at this moment: it could not repeat it.
pub const IDLE_CLOSES: Duration = Duration::from_millis(150);
/// A connection that was just accepted has sent its request by then.
const QUIET: Duration = Duration::from_millis(50);
const CHECK: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub struct Closing {
    begun: watch::Sender<bool>,
    /// Requests of services that are not answered.
    running: AtomicUsize,
}

/// A request of a service; answered when it is dropped.
pub struct RunningRequest(Arc<Closing>);

impl Closing {
    /// From now on no connection is accepted.
    pub fn begin(&self) {
        self.begun.send_replace(true);
    }

    /// Waits until no connection is accepted any more.
    pub async fn begun(&self) {
        // It fails only without a sender.
        let _ = self.begun.subscribe().wait_for(|begun| *begun).await;
    }

    pub fn request(self: &Arc<Closing>) -> RunningRequest {
        self.running.fetch_add(1, Ordering::AcqRel);
        RunningRequest(self.clone())
    }

    /// Waits until every request is answered and no other one can come. False: some are not answered in time.
    pub async fn answered(&self, until: Instant) -> bool {
        let mut quiet_since = Instant::now() + IDLE_CLOSES;
        loop {
            let now = Instant::now();
            if self.running.load(Ordering::Acquire) > 0 {
                quiet_since = quiet_since.max(now);
            }
            if now.saturating_duration_since(quiet_since) >= QUIET || now >= until {
                return self.running.load(Ordering::Acquire) == 0;
            }
            tokio::time::sleep(CHECK).await;
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_requests_and_for_a_quiet_moment() {
        let (closing, began) = (Arc::new(Closing::default()), Instant::now());
        let (first, second) = (closing.request(), closing.request());
        let answers = async {
            tokio::time::sleep(IDLE_CLOSES).await;
            drop(first);
            tokio::time::sleep(QUIET).await;
            drop(second);
        };
        let (is_done, ()) = tokio::join!(closing.answered(began + Duration::from_secs(60)), answers);
        // The end of a request is noticed at the next check.
        let least = IDLE_CLOSES + QUIET * 2 - CHECK * 2;
        assert!(is_done && began.elapsed() >= least, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_a_slow_request_for_ever() {
        let closing = Arc::new(Closing::default());
        let _running = closing.request();
        assert!(!closing.answered(Instant::now() + CHECK * 3).await);
    }

    #[tokio::test]
    async fn whoever_asks_late_learns_that_accepting_has_ended() {
        let closing = Closing::default();
        closing.begin();
        closing.begun().await;
    }
}
