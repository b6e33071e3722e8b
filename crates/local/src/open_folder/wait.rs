//! Waiting for a message. One thread of the process sleeps at the waker, the others wait for it to return.
//! Must hold: no subscriber sleeps while it has a message; nothing is lost between checking and sleeping.

use super::OpenFolder;
use crate::error::Error;
use crate::limits;
use crate::message::Message;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const MAINTENANCE: Duration = Duration::from_millis(limits::MAINTENANCE_MS);

impl OpenFolder {
    /// The next message, if there is one.
    pub fn poll(&self, subscriber: u64, timeout: Duration) -> Result<Option<Message>, Error> {
        self.process.check()?;
        let mut receiver = self.receiver();
        if let Some(message) = receiver.subscribers.take(subscriber) {
            return Ok(Some(message));
        }
        if receiver.until_maintenance().is_zero() {
            receiver.maintain(&self.process, timeout)?;
        }
        receiver.fetch_for(&self.process, subscriber, timeout)?;
        Ok(receiver.subscribers.take(subscriber))
    }

    /// Waits for the next message. `None`: the time is over, or the wait was interrupted.
    pub fn wait(
        &self,
        subscriber: u64,
        longest: Option<Duration>,
        timeout: Duration,
    ) -> Result<Option<Message>, Error> {
        self.process.check()?;
        let deadline = longest.and_then(|longest| Instant::now().checked_add(longest));
        let mut receiver = self.receiver();
        loop {
            if let Some(message) = receiver.subscribers.take(subscriber) {
                return Ok(Some(message));
            }
            if receiver.subscribers.take_interruption(subscriber) {
                return Ok(None);
            }
            let until_maintenance = receiver.until_maintenance();
            let left =
                deadline.map_or(MAINTENANCE, |deadline| deadline.saturating_duration_since(Instant::now()));
            if receiver.sleeping {
                if left.is_zero() {
                    receiver.fetch_for(&self.process, subscriber, timeout)?;
                    return Ok(receiver.subscribers.take(subscriber));
                }
                // The thread that sleeps may stop waiting for good, so this one also wakes for maintenance.
                let woken = self.process.woken.wait_timeout(receiver, left.min(MAINTENANCE));
                receiver = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if until_maintenance.is_zero() {
                receiver.maintain(&self.process, timeout)?;
            }
            receiver.fetch_for(&self.process, subscriber, timeout)?;
            if receiver.subscribers.must_wake(subscriber) {
                continue;
            }
            if left.is_zero() {
                return Ok(None);
            }
            let waker = self.process.waker();
            receiver.sleeping = true;
            drop(receiver);
            waker.sleep(left.min(until_maintenance));
            receiver = self.receiver();
            receiver.sleeping = false;
            self.process.woken.notify_all();
        }
    }

    /// Ends the wait of a subscriber, or its next one.
    pub fn interrupt(&self, subscriber: u64) {
        if self.process.check().is_err() {
            return;
        }
        let mut receiver = self.receiver();
        receiver.subscribers.interrupt(subscriber);
        self.process.notify(receiver.sleeping);
    }
}
