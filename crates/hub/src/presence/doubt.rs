//! Steps that the store did not take, or did not say whether it took: what becomes of them, and of what a session does by
//! itself when its time has come. Must hold: a departure that was begun happens; whoever may be present is remembered by
//! its session, so that it goes with it.

use super::Presence;
use super::task::{Act, Step};
use crate::core::{Core, Timer, refusal};
use tavern_domain::presence::Input;
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_engine::{Answer, Presence as PresenceRow, StoreError, Versioned};

impl Presence {
    /// The store did not take a step: whoever waits hears so. What may have happened all the same is found out, a departure
    /// happens later, and so does what nobody waits for and nobody else would repeat.
    pub(super) fn step_failed(&mut self, core: &mut Core, mut step: Step, committing: bool, answer: &Answer) {
        let Some(claim) = step.claim.take() else { return self.try_later(core, step, answer) };
        core.finish(claim, Err(refusal(answer)));
        let unknown = !matches!(answer, Answer::Failed(error) if error.is_refusal());
        match &step.act {
            Act::Input(Input::Leave { .. }) if !is_hopeless(answer) => self.try_later(core, step, answer),
            Act::Input(Input::Join { .. } | Input::Update { .. }) if committing && unknown => {
                step.doubted = true;
                self.start_step(core, step);
            }
            _ => self.lines.leave(&step.key),
        }
    }

    /// It keeps its place in the line. Commands behind it hear at once that the store does not answer.
    fn try_later(&mut self, core: &mut Core, step: Step, answer: &Answer) {
        for claim in self.lines.give_up(&step.key) {
            core.finish(claim, Err(refusal(answer)));
        }
        let due = core.now + RETRY_AFTER_MS;
        self.later.push_back((due, Step { tries: 0, ..step }));
        core.agenda.set(due, Timer::RetryPresence);
    }

    /// A step whose outcome was not known: if its client is there, its session must know.
    pub(super) fn find_out(&mut self, core: &mut Core, step: Step, found: Option<&Versioned<PresenceRow>>) {
        if let Act::Input(Input::Join { client, .. } | Input::Update { client, .. }) = &step.act {
            let living = found.and_then(|found| found.row.attendance.living().find(|a| a.client == *client));
            if let Some(attendee) = living {
                let home = attendee.home.clone();
                let act = Act::Input(Input::Join { client: *client, home, state: attendee.state.clone() });
                self.note_step(core, &Step { act, ..step.clone() });
            }
        }
        self.lines.leave(&step.key);
    }
}

impl Step {
    /// Not a command: the session comes back, is announced anew, or is lost.
    pub(super) fn is_own(&self) -> bool {
        let own =
            matches!(self.act, Act::Input(Input::Join { .. } | Input::Lose { .. } | Input::LoseAt { .. }));
        self.claim.is_none() && self.listener.is_some() && own
    }

    /// Somebody goes because he said so.
    pub(super) fn is_departure(&self) -> bool {
        matches!(self.act, Act::Input(Input::Leave { .. }) | Act::Release)
    }
}

/// Trying again would never help.
fn is_hopeless(answer: &Answer) -> bool {
    matches!(answer, Answer::Failed(StoreError::TooLarge { .. }))
}

/// What a session does by itself is held against what has become of it meanwhile. False: it means nothing any more.
pub(super) fn freshen(core: &Core, step: &mut Step) -> bool {
    if !step.is_own() || step.doubted {
        return true;
    }
    let session = step.listener.and_then(|id| core.listeners.get(id)?.session());
    let present = session.and_then(|session| session.present.state(&step.key.channel));
    match &mut step.act {
        // With the state it has by now, not the one it had when the store did not answer.
        Act::Input(Input::Join { state, .. }) => match present {
            Some(now) if session.is_some_and(|session| !session.lost) => *state = now.clone(),
            _ => return false,
        },
        Act::Input(Input::Lose { .. } | Input::LoseAt { .. }) => {
            return session.is_none_or(|session| session.lost);
        }
        _ => {}
    }
    true
}

/// A client that was taken for lost while its session lives is present as far as it knows: its update is an arrival.
pub(super) fn insist(core: &Core, step: &mut Step, found: Option<&Versioned<PresenceRow>>) {
    let Act::Input(Input::Update { client, state }) = &step.act else { return };
    let living = found.is_some_and(|found| found.row.attendance.living().any(|a| a.client == *client));
    let session = step.listener.and_then(|id| core.listeners.get(id)?.session());
    if !living && session.is_some_and(|session| session.present.has(&step.key.channel)) {
        let (client, state) = (*client, Some(state.clone()));
        step.act = Act::Input(Input::Join { client, home: core.home(), state });
    }
}
