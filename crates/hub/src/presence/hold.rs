//! Users whom an app or a party holds in a channel: as long as their clients are in another channel (the carrier), or
//! until a time. Must hold: a held user has a client in the carrier or a time that has not passed; when a client
//! leaves the carrier, is lost or reconnects, the held presence follows, on every node.

use super::Presence;
use super::change::{PresenceAction, PresenceChange};
use super::decision::{PresenceOutcome, changed, commit_of};
use crate::core::{Core, Feature, ReplyTo, Timer};
use crate::held::{HeldChange, arrive};
use crate::rows::{HOLD, expected_user, hold_deadline_key, remove_hold, stored_visibility};
use crate::transaction::{DecisionContext, DecisionStep, Facts, Need};
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, ClientLoss, OfflineReason, PresenceSummary,
};
use tavern_domain::{ClientId, Time};
use tavern_store::{
    Commit, Deadline, Expect, PresenceHold, PresenceKey, PresenceRow, Receipt, Row, RowKey, Versioned, Work,
};

/// A hold that is being committed.
pub(super) struct HoldDecision {
    pub hold: PresenceHold,
    pub claim: ReplyTo,
}

impl HoldDecision {
    pub fn decide(&self, context: &DecisionContext<'_>, facts: &Facts) -> DecisionStep<PresenceOutcome> {
        let hold = &self.hold;
        if facts.hold(&hold.key).is_none() {
            return DecisionStep::Need(vec![Need::Hold(hold.key.clone())]);
        }
        let mut commit = Commit { puts: vec![Row::Hold(hold.clone())], ..context.commit() };
        match hold.until {
            Some(until) => commit.deadlines.push(Deadline::new(until, HOLD, &hold.key.to_string())),
            None => commit.deletes.push(hold_deadline_key(&hold.key)),
        }
        DecisionStep::Commit { commit, outcome: PresenceOutcome::Held }
    }
}

/// Makes a held presence follow its carrier.
pub(super) fn decide_held(
    change: &PresenceChange,
    context: &DecisionContext<'_>,
    facts: &Facts,
) -> DecisionStep<PresenceOutcome> {
    let PresenceAction::SyncHeld { departed, own } = &change.action else {
        return DecisionStep::Done(PresenceOutcome::Dropped);
    };
    let unchanged = || {
        let change = Box::new(change.clone());
        DecisionStep::Done(PresenceOutcome::Unchanged { change, version: 0, wakes: true })
    };
    let hold = match facts.hold(&change.key) {
        None => {
            let needs = vec![Need::Hold(change.key.clone()), Need::Person(change.key.user.clone())];
            return DecisionStep::Need(needs);
        }
        Some(None) => return unchanged(),
        Some(Some(hold)) => hold,
    };
    let Some(person) = facts.person(&change.key.user) else {
        return DecisionStep::Need(vec![Need::Person(change.key.user.clone())]);
    };
    let now = context.now;
    let at = |channel: &str| person.presences.iter().find(|row| *row.row.key.channel == *channel);
    let carrier = hold.row.held_with.as_deref().and_then(at);
    let stored = at(&change.key.channel);
    let over = hold.row.until.is_some_and(|until| now >= until);
    let before = stored.map(|row| row.row.attendance.clone()).unwrap_or_default();
    let mut attendance = before.clone();
    let mut changes = Vec::new();
    if over {
        expire(now, &mut attendance, carrier, &mut changes);
    } else {
        let grace_ms = context.settings.grace_ms(&change.key.channel);
        let own = hold.row.held_with.is_none().then_some(*own);
        arrive(now, &mut attendance, carrier.map(|row| &row.row), own, &mut changes);
        depart(now, &mut attendance, carrier, departed, grace_ms, &mut changes);
    }
    let known = stored.or(carrier).map(|row| &row.row);
    let (name, visibility) = (known.and_then(|row| row.name.clone()), Some(stored_visibility(person)));
    let decided = PresenceChange { name, visibility, ..change.clone() };
    if attendance == before && changes.is_empty() {
        if !over {
            return unchanged();
        }
        let mut commit = context.commit();
        remove_hold(&mut commit, &change.key);
        return DecisionStep::Commit { commit, outcome: PresenceOutcome::Held };
    }
    let mut commit = commit_of(context, &decided, &before, attendance.clone(), &changes);
    // If a carrier changes before the commit, all of this is decided again.
    let mut expect = |key: PresenceKey, row: Option<&Versioned<PresenceRow>>| {
        let version = row.map_or(0, |row| row.version);
        commit.expects.push(Expect { key: RowKey::Presence(key), version });
    };
    expect(change.key.clone(), stored);
    if let Some(channel) = &hold.row.held_with {
        expect(PresenceKey { channel: channel.clone(), user: change.key.user.clone() }, carrier);
    }
    commit.expects.push(expected_user(&change.key.user, person));
    if over {
        remove_hold(&mut commit, &change.key);
    }
    let outcome = changed(context, decided, &attendance, changes, false);
    DecisionStep::Commit { commit, outcome }
}

/// Clients that left the carrier leave here too.
fn depart(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<PresenceRow>>,
    departed: &[(ClientId, OfflineReason)],
    grace_ms: u64,
    changes: &mut Vec<AttendanceChange>,
) {
    let clients = carrier.map_or(&[][..], |row| row.row.attendance.clients());
    for (client, reason) in departed {
        let client = *client;
        match clients.iter().find(|known| known.client == client) {
            Some(known) if known.lost.is_none() => {}
            Some(known) => {
                let at = known.lost.map_or(now, |lost| lost.at);
                let reason = if reason.is_explicit() { OfflineReason::Lost } else { *reason };
                attendance.handle(
                    now,
                    AttendanceInput::Lose { client, loss: ClientLoss { at, grace_ms, reason } },
                    changes,
                );
            }
            None if reason.is_explicit() => {
                attendance.handle(now, AttendanceInput::Leave { client, reason: *reason }, changes);
            }
            None => {
                let loss = ClientLoss { at: now, grace_ms, reason: *reason };
                attendance.handle(now, AttendanceInput::Lose { client, loss }, changes);
            }
        }
    }
}

/// The time of a hold is over: the held client leaves.
fn expire(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<PresenceRow>>,
    changes: &mut Vec<AttendanceChange>,
) {
    let carriers =
        carrier.into_iter().flat_map(|row| row.row.attendance.connected()).map(|client| client.client);
    // A user whom an app holds without a client is on no node.
    let alone =
        attendance.connected().filter(|client| client.node.node.is_empty()).map(|client| client.client);
    let riders: Vec<ClientId> = carriers.chain(alone).collect();
    for client in riders {
        attendance.handle(now, AttendanceInput::Leave { client, reason: OfflineReason::Expired }, changes);
    }
}

/// A commit of another feature has changed a held presence: others are notified.
pub(crate) fn held_committed(presence: &mut Presence, core: &mut Core, held: HeldChange, receipt: &Receipt) {
    let HeldChange { row: PresenceRow { key, name, visibility, attendance, .. }, changes, .. } = held;
    if let Some(due) = attendance.next_wake() {
        core.agenda.set(due, Timer::GraceEnds(key.clone()));
    }
    let shown = core.users.visibility(&key.user).filter(|shown| *shown != visibility);
    let change =
        PresenceChange { name, visibility: Some(visibility), ..PresenceChange::sync_visibility(key.clone()) };
    let stay = PresenceSummary::of(&attendance);
    presence.changes.announce(core, change, core.now, changes, stay, receipt);
    if shown.is_some() && attendance.is_present() {
        // The visibility changed during the commit.
        presence.sync_visibility_in(core, key);
    }
}

/// Removes a hold whose user is not present.
pub(super) fn forget_hold(core: &mut Core, key: &PresenceKey) {
    let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
    remove_hold(&mut commit, key);
    core.submit(Feature::None, Work::Commit(commit));
}
