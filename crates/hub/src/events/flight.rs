//! Posts: who may send, in turn; what is under way; what the endpoints have answered.
//! Must hold: each post is answered once; an answer counts for its batch whichever life of the line began it.

use super::courier::{Courier, FLIGHTS};
use super::line::State;
use super::post::{Notice, Outcome, Post};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::Input;

impl Courier {
    /// Those who may send do, in turn.
    pub(super) fn serve(&mut self, now: Time) {
        while self.flights < FLIGHTS
            && let Some(name) = self.ready.pop_front()
        {
            let Some(line) = self.lines.get_mut(&name) else { continue };
            let State::Active(active) = &mut line.state else { continue };
            active.queued = false;
            if !active.holds_lease(now) {
                continue;
            }
            let Some(sending) = active.machine.start(now) else { continue };
            active.started.insert(sending.batch);
            let again = active.machine.is_ready(now);
            if again {
                active.queued = true;
                self.ready.push_back(name.clone());
            }
            match line.flights.get_mut(&sending.batch) {
                // It was sent before this machine was made.
                Some(answer) => {
                    if let Some(outcome) = answer.clone() {
                        self.settle(now, &name, sending.batch, outcome);
                    }
                }
                None => self.send(now, &name, sending),
            }
        }
    }

    pub(super) fn fly(&mut self, name: &Arc<str>, post: Post) {
        if let Some(line) = self.lines.get_mut(name) {
            line.flights.insert(post.batch, None);
        }
        self.flights += 1;
        self.errands.posts.push(post);
    }

    /// An attempt has ended. Each is answered once.
    pub fn posted(&mut self, now: Time, name: &Arc<str>, batch: u64, outcome: Outcome) {
        self.flights -= 1;
        let Some(line) = self.lines.get_mut(name) else { return self.serve(now) };
        let known = matches!(&line.state, State::Active(active) if active.started.contains(&batch));
        line.flights.insert(batch, Some(outcome.clone()));
        if known {
            self.settle(now, name, batch, outcome);
        }
        self.serve(now);
    }

    fn settle(&mut self, now: Time, name: &Arc<str>, batch: u64, outcome: Outcome) {
        let roll = self.dice.roll() as u64;
        let Some(line) = self.lines.get_mut(name) else { return };
        if !matches!(outcome, Outcome::Delivered | Outcome::Partly { .. }) {
            // It will be tried again.
            line.flights.remove(&batch);
        }
        let Some(active) = line.active() else { return };
        active.started.remove(&batch);
        let outcome = active.outcome(batch, outcome);
        let told = active.machine.batch(batch).map(|batch| (batch.reason, batch.entries(), batch.accepted));
        if let Some((reason, events, accepted)) = told {
            let (subscription, waited_ms) = (name.clone(), now.since(accepted));
            let verdict = outcome.verdict();
            self.errands.notices.push(Notice::Attempted { subscription, reason, verdict, events, waited_ms });
        }
        self.give(now, name, Some(Input::Answered { batch, outcome, roll }));
    }
}
