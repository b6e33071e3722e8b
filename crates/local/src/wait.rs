//! Waiting for a message. One thread of the process sleeps at the bell, the others wait for it to come back.
//! Must hold: nobody sleeps while there is something for it; between looking and sleeping nothing is lost.

use crate::error::Error;
use crate::limits;
use crate::message::{Kind, Message};
use crate::process::{Process, State};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

const LOOK: Duration = Duration::from_millis(limits::LOOK_MS);

impl Process {
    /// The next message, if one is there.
    pub fn poll(&self, subscriber: u64, patience: Duration) -> Result<Option<Message>, Error> {
        self.check()?;
        let mut state = self.state();
        if let Some(message) = take(&mut state, subscriber) {
            return Ok(Some(message));
        }
        if state.looked_at.elapsed() >= LOOK {
            self.look(&mut state, patience)?;
        }
        self.pump_for(&mut state, subscriber, patience)?;
        Ok(take(&mut state, subscriber))
    }

    /// The next message, for which it waits. None: the time is over, or it was interrupted.
    pub fn wait(
        &self,
        subscriber: u64,
        longest: Option<Duration>,
        patience: Duration,
    ) -> Result<Option<Message>, Error> {
        self.check()?;
        let until = longest.and_then(|longest| Instant::now().checked_add(longest));
        let mut state = self.state();
        loop {
            if let Some(message) = take(&mut state, subscriber) {
                return Ok(Some(message));
            }
            if is_called_away(&mut state, subscriber) {
                return Ok(None);
            }
            let until_look = LOOK.saturating_sub(state.looked_at.elapsed());
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            let nap = left.min(until_look);
            if state.attended {
                if left.is_zero() {
                    self.pump_for(&mut state, subscriber, patience)?;
                    return Ok(take(&mut state, subscriber));
                }
                // The other one may leave for good, so the time of the next look is kept here as well.
                let nap = left.min(LOOK);
                let woken = self.stirred.wait_timeout(state, nap);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if until_look.is_zero() {
                self.look(&mut state, patience)?;
            }
            self.pump_for(&mut state, subscriber, patience)?;
            if has_news(&state, subscriber) {
                continue;
            }
            if left.is_zero() {
                return Ok(None);
            }
            let bell = self.bell();
            state.attended = true;
            drop(state);
            bell.sleep(nap);
            state = self.state();
            state.attended = false;
            self.stirred.notify_all();
        }
    }

    /// Ends the wait of a subscriber, or its next one.
    pub fn interrupt(&self, subscriber: u64) {
        if self.check().is_err() {
            return;
        }
        let mut state = self.state();
        if let Some(own) = state.subscribers.get_mut(&subscriber) {
            own.interrupted = true;
        }
        self.stir(&state);
    }
}

fn take(state: &mut State, subscriber: u64) -> Option<Message> {
    state.subscribers.get_mut(&subscriber)?.mailbox.take()
}

fn has_news(state: &State, subscriber: u64) -> bool {
    let narrow = state.narrow;
    state.subscribers.get(&subscriber).is_some_and(|own| {
        !own.mailbox.is_empty() || own.interrupted || own.narrowed != narrow && hears_everything(own)
    })
}

/// It was interrupted, or it hears everything and somebody wants to know what it really listens to.
fn is_called_away(state: &mut State, subscriber: u64) -> bool {
    let narrow = state.narrow;
    let Some(own) = state.subscribers.get_mut(&subscriber) else { return true };
    let asked = own.narrowed != narrow && hears_everything(own);
    std::mem::take(&mut own.interrupted) || asked
}

fn hears_everything(own: &crate::process::Subscriber) -> bool {
    own.interests.iter().any(|interest| interest.kind == Kind::Everything)
}
