//! Presence changes as decisions: from the stored presence and the current state of the session, the commit.
//! Must hold: a client is present under the epoch that writes it; an obsolete change writes nothing.

use super::change::{PresenceAction, PresenceChange};
use super::hold::{self, HoldDecision};
use super::sweep::{SweepDecision, SweptPresence};
use super::topic::transitions;
use crate::core::listener::ListenerId;
use crate::rows::{INBOX, MembershipRow, add_presence, expected_user, remove_hold, stored_visibility};
use crate::transaction::{Decision, DecisionContext, DecisionStep, Facts, Need};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{
    Attendance, AttendanceChange, AttendanceInput, ChannelClient, OfflineReason, PresenceSummary, Visibility,
};
use tavern_store::{
    Commit, Deadline, Expect, LastSeenUpdate, PresenceKey, PresenceRow, RowKey, UserSnapshot, Versioned,
    planted,
};
use tavern_wire::error::{Code, Refusal};

pub(super) enum PresenceDecision {
    Change(Box<PresenceChange>),
    /// An app puts a user into a channel.
    Hold(HoldDecision),
    /// Presences without a live node are removed, user by user.
    Sweep(SweepDecision),
}

pub(super) enum PresenceOutcome {
    Refused(Refusal),
    /// The session's state has changed since: the change is obsolete.
    Dropped,
    /// The stored state is already as requested. The version that was read, for cleaning up.
    Unchanged {
        change: Box<PresenceChange>,
        version: u64,
        wakes: bool,
    },
    /// The stored client of a change with an unknown outcome.
    Resolved(Option<ChannelClient>),
    Changed(Box<CommittedPresence>),
    Held,
    Swept(Vec<SweptPresence>),
}

impl PresenceOutcome {
    /// Where else a user is shown as before, as a change of visibility found it.
    pub fn take_others(&mut self) -> Vec<PresenceKey> {
        let decided = match self {
            PresenceOutcome::Changed(changed) => &mut changed.change,
            PresenceOutcome::Unchanged { change, .. } => change,
            _ => return Vec::new(),
        };
        match &mut decided.action {
            PresenceAction::SyncVisibility { others } => std::mem::take(others),
            _ => Vec::new(),
        }
    }
}

/// The result of a committed change.
pub(super) struct CommittedPresence {
    /// As it was decided, with the name and the visibility that are stored.
    pub change: PresenceChange,
    pub at: Time,
    pub changes: Vec<AttendanceChange>,
    /// When the next grace period ends.
    pub due: Option<Time>,
    pub stay: Option<PresenceSummary>,
    /// Since when the client is the only presence of its user.
    pub alone: Option<Time>,
    /// A party or an invite depends on the user.
    pub concerns_party: bool,
}

impl Decision for PresenceDecision {
    type Outcome = PresenceOutcome;
    type Notes = ();

    fn decide(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        (): &mut (),
    ) -> DecisionStep<PresenceOutcome> {
        match self {
            PresenceDecision::Hold(hold) => hold.decide(context, facts),
            PresenceDecision::Sweep(sweep) => sweep.decide(context, facts),
            PresenceDecision::Change(change) => match &change.action {
                PresenceAction::SyncHeld { .. } => hold::decide_held(change, context, facts),
                _ => decide_change(change, context, facts),
            },
        }
    }
}

fn decide_change(
    change: &PresenceChange,
    context: &DecisionContext<'_>,
    facts: &Facts,
) -> DecisionStep<PresenceOutcome> {
    let syncs = matches!(change.action, PresenceAction::SyncVisibility { .. });
    let Some(found) = facts.presence(&change.key) else {
        let person = syncs.then(|| Need::Person(change.key.user.clone()));
        return DecisionStep::Need([Need::Presence(change.key.clone())].into_iter().chain(person).collect());
    };
    if change.unknown {
        return DecisionStep::Done(PresenceOutcome::Resolved(find_client(change, found)));
    }
    if change.is_join() && change.listener.is_some_and(|id| !is_settled(context, id)) {
        // The session has ended or migrates: joining now would take the client away from its new node.
        let refusal = Refusal::new(Code::Gone, "the session has ended; send hello again");
        return DecisionStep::Done(PresenceOutcome::Refused(refusal));
    }
    let Some(mut change) = still_valid(context, change) else {
        return DecisionStep::Done(PresenceOutcome::Dropped);
    };
    join_if_lost(context, &mut change, found);
    if let Some(found) = found.filter(|_| change.listener.is_none()) {
        // No local session: keep the stored name.
        (change.name, change.anonymous) = (found.row.name.clone(), found.row.anonymous);
    }
    let shown = found.map(|found| found.row.visibility);
    let person = facts.person(&change.key.user).filter(|_| syncs);
    change.visibility = match person {
        Some(person) => Some(take_visibility(&mut change, person)),
        None => shown.or_else(|| known_visibility(context, &change)).or(change.visibility),
    };
    let before = found.map(|found| found.row.attendance.clone()).unwrap_or_default();
    let mut attendance = before.clone();
    let mut changes = apply(context, &change, &mut attendance);
    if let Some((from, to)) = shown.zip(change.visibility)
        && from != to
        && attendance.is_present()
    {
        changes.push(AttendanceChange::VisibilityChanged { from, to });
    }
    if changes.contains(&AttendanceChange::NotFound) {
        // A grace period that is over ends by its own deadline.
        let refusal =
            Refusal::new(Code::NotFound, "this client is not present in the channel; join it first");
        return DecisionStep::Done(PresenceOutcome::Refused(refusal));
    }
    if attendance == before && changes.is_empty() {
        let version = found.map_or(0, |found| found.version);
        let wakes = before.next_wake().is_some();
        let change = Box::new(change);
        return DecisionStep::Done(PresenceOutcome::Unchanged { change, version, wakes });
    }
    let mut commit = commit_of(context, &change, &before, attendance.clone(), &changes);
    commit.expects.extend(person.map(|person| expected_user(&change.key.user, person)));
    let mut concerns_party = false;
    if concerns_parties(&change, &before, &attendance, &changes) {
        let Some(membership) = membership_of(&change, facts, &mut commit) else {
            return DecisionStep::Need(vec![Need::Document(MembershipRow::key(&change.key.user))]);
        };
        concerns_party = membership.is_concerned();
        membership.note_departure(context.now, &change.key.user, said_bye(&changes), &mut commit);
    }
    if matches!(change.action, PresenceAction::Release) {
        remove_hold(&mut commit, &change.key);
    }
    let outcome = changed(context, change, &attendance, changes, concerns_party);
    DecisionStep::Commit { commit, outcome }
}

fn apply(
    context: &DecisionContext<'_>,
    change: &PresenceChange,
    attendance: &mut Attendance,
) -> Vec<AttendanceChange> {
    let (now, mut changes) = (context.now, Vec::new());
    match change.action.clone() {
        // A client joins under the current epoch, even if the join started under an earlier one.
        PresenceAction::Input(AttendanceInput::Join { client, state, .. }) => {
            attendance.handle(
                now,
                AttendanceInput::Join { client, node: context.node.clone(), state },
                &mut changes,
            );
        }
        PresenceAction::Input(input) => attendance.handle(now, input, &mut changes),
        PresenceAction::Wake => attendance.wake(now, &mut changes),
        PresenceAction::SyncVisibility { .. } => {}
        PresenceAction::Release => {
            attendance.handle(now, AttendanceInput::Remove { reason: OfflineReason::Removed }, &mut changes);
        }
        PresenceAction::SyncHeld { .. } => unreachable!("held users are decided by themselves"),
    }
    changes
}

/// The visibility that is stored for a user. Notes where else they are present and shown differently.
fn take_visibility(change: &mut PresenceChange, person: &UserSnapshot) -> Visibility {
    let visibility = stored_visibility(person);
    if change.is_own_channel() {
        let stale = person.presences.iter().filter(|row| {
            !row.row.anonymous && row.row.visibility != visibility && row.row.key != change.key
        });
        let others = stale.map(|row| row.row.key.clone()).collect();
        change.action = PresenceAction::SyncVisibility { others };
    }
    visibility
}

/// The visibility of the user of a local session.
fn known_visibility(context: &DecisionContext<'_>, change: &PresenceChange) -> Option<Visibility> {
    context.users.visibility(&change.key.user).filter(|_| change.listener.is_some() && !change.anonymous)
}

/// The user's membership: loaded, or cached and then expected by the commit. None: it must be loaded.
fn membership_of(change: &PresenceChange, facts: &Facts, commit: &mut Commit) -> Option<Arc<MembershipRow>> {
    let key = MembershipRow::key(&change.key.user);
    if let Some(found) = facts.document(&key) {
        let found = found.map(|found| Versioned { version: found.version, row: found.row.body.clone() });
        return Some(Arc::new(MembershipRow::read(found.as_ref()).unwrap_or_default()));
    }
    // If the cached one is stale the commit conflicts, and then it is loaded.
    let cached = change.cached_membership.clone().filter(|_| !facts.is_retry())?;
    commit.expects.push(Expect { key: RowKey::Document(key), version: cached.version });
    Some(cached)
}

pub(super) fn changed(
    context: &DecisionContext<'_>,
    change: PresenceChange,
    attendance: &Attendance,
    changes: Vec<AttendanceChange>,
    concerns_party: bool,
) -> PresenceOutcome {
    PresenceOutcome::Changed(Box::new(CommittedPresence {
        at: context.now,
        changes,
        due: attendance.next_wake().filter(|_| !forgets_grace(&change)),
        stay: PresenceSummary::of(attendance),
        alone: change.listener.and(attendance.alone()),
        concerns_party,
        change,
    }))
}

/// The planted fault.
fn forgets_grace(change: &PresenceChange) -> bool {
    planted("hub-grace") && matches!(change.action, PresenceAction::Input(AttendanceInput::LoseNode { .. }))
}

/// The client of a change whose outcome was unknown, if it is present.
fn find_client(change: &PresenceChange, found: Option<&Versioned<PresenceRow>>) -> Option<ChannelClient> {
    let PresenceAction::Input(AttendanceInput::Join { client, .. } | AttendanceInput::Update { client, .. }) =
        &change.action
    else {
        return None;
    };
    found.and_then(|found| found.row.attendance.connected().find(|a| a.client == *client).cloned())
}

/// An automatic change of a session with the session's current state. None: it is obsolete.
fn still_valid(context: &DecisionContext<'_>, original: &PresenceChange) -> Option<PresenceChange> {
    let mut change = original.clone();
    if !change.is_automatic() {
        return Some(change);
    }
    let session = change.listener.and_then(|id| context.session(id));
    match &mut change.action {
        // Use the current state, not the one from when the store did not answer.
        PresenceAction::Input(AttendanceInput::Join { state, .. }) => {
            let here = session.filter(|session| !session.lost)?;
            *state = here.present.state(&change.key.channel)?.clone();
        }
        PresenceAction::Input(AttendanceInput::Lose { .. } | AttendanceInput::LoseAt { .. }) => {
            return Some(change).filter(|_| session.is_none_or(|session| session.lost));
        }
        _ => {}
    }
    Some(change)
}

/// A client that was marked lost while its session is alive still counts itself as present: its update is a join.
fn join_if_lost(
    context: &DecisionContext<'_>,
    change: &mut PresenceChange,
    found: Option<&Versioned<PresenceRow>>,
) {
    let PresenceAction::Input(AttendanceInput::Update { client, state }) = &change.action else { return };
    let living = found.is_some_and(|found| found.row.attendance.connected().any(|a| a.client == *client));
    let session = change.listener.and_then(|id| context.session(id));
    if !living && session.is_some_and(|session| session.present.has(&change.key.channel)) {
        let (client, state, node) = (*client, Some(state.clone()), context.node.clone());
        change.action = PresenceAction::Input(AttendanceInput::Join { client, node, state });
    }
}

/// Whether a session is here and not migrating.
fn is_settled(context: &DecisionContext<'_>, id: ListenerId) -> bool {
    context.session(id).is_some_and(|session| !session.frozen)
}

/// Whether the party must be notified: none of the user's clients is connected any more, or they left for good.
fn concerns_parties(
    change: &PresenceChange,
    before: &Attendance,
    after: &Attendance,
    changes: &[AttendanceChange],
) -> bool {
    let departed = changes.iter().any(|change| matches!(change, AttendanceChange::UserOffline { .. }));
    let lost = before.connected().next().is_some() && after.connected().next().is_none();
    change.is_own_channel() && (departed || lost)
}

/// The user left on purpose.
fn said_bye(changes: &[AttendanceChange]) -> bool {
    changes
        .iter()
        .any(|change| matches!(change, AttendanceChange::UserOffline { reason, .. } if reason.is_explicit()))
}

/// A user went offline. Where nobody saw them, the time is not recorded, because it would show that they were here; but it
/// counts for the messages in their inbox.
fn note_departure(
    context: &DecisionContext<'_>,
    user: &Arc<str>,
    visibility: Visibility,
    at: Time,
    commit: &mut Commit,
) {
    if visibility == Visibility::Nobody {
        commit.deadlines.push(Deadline::new(context.now + context.settings.inbox.keep_ms, INBOX, user));
    } else {
        commit.seen.push(LastSeenUpdate { user: user.clone(), at });
    }
}

/// The commit of a change. The driver adds the expected versions.
pub(super) fn commit_of(
    context: &DecisionContext<'_>,
    change: &PresenceChange,
    before: &Attendance,
    attendance: Attendance,
    changes: &[AttendanceChange],
) -> Commit {
    let mut commit = context.commit();
    let (key, name, anonymous) = (change.key.clone(), change.name.clone(), change.anonymous);
    let visibility = change.visibility.unwrap_or_default();
    let row = PresenceRow { key, anonymous, name, visibility, attendance };
    add_presence(&mut commit, before, row, changes.len());
    if forgets_grace(change) {
        commit.deadlines.clear();
    }
    // A join may end an earlier presence whose grace period is over.
    let departed = changes.iter().find_map(|change| match change {
        AttendanceChange::UserOffline { last_seen, .. } => Some(*last_seen),
        _ => None,
    });
    if let Some(at) = departed.filter(|_| change.is_own_channel()) {
        note_departure(context, &change.key.user, visibility, at, &mut commit);
    }
    commit.appends = transitions(context, change, changes);
    commit
}
